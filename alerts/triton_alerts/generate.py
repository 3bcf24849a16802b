"""Everything this floor makes: rules for people, their proofs, and Alertmanager's configuration."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from triton_alerts import proof
from triton_alerts.alert import Alert
from triton_alerts.alertmanager import configuration as alertmanager
from triton_alerts.alertmanager import document
from triton_alerts.catalogue import FAMILIES
from triton_alerts.proofs import PROOFS
from triton_alerts.rules import alert_rules as rules
from triton_slo.artifact import Artifact, Options
from triton_slo.rules import rulefile


def artifacts(objectives: Sequence[object], options: Options) -> tuple[Artifact, ...]:
    """Rules and proofs one file a family, and `alertmanager.yml`.

    The alerts of the objectives themselves come from triton_slo. Proofs are promises at real time about
    unselected series, so a time scale or a selector leaves them out.
    """
    families = [
        artifact for family, alerts in FAMILIES.items() for artifact in _family(family, alerts, options)
    ]
    return (*families, *alertmanager.artifacts(options))


def _family(family: str, alerts: Sequence[Alert], options: Options) -> Iterable[Artifact]:
    name = f"triton-{family}.yml"
    groups = [rules.group(family, alerts, options)]
    yield Artifact("rules", name, rulefile.render(groups, f"triton-{family}", options.format))
    if options.time_scale == 1 and not options.selector and options.format == "prometheus":
        yield Artifact("promtool", f"triton-{family}.test.yml", _proofs(name, alerts, options))


def _proofs(rule_file: str, alerts: Sequence[Alert], options: Options) -> str:
    by_name = {alert.name: alert for alert in alerts}
    proofs = [one for one in PROOFS if one.alert in by_name]
    return document.render(
        {
            "rule_files": [f"../rules/{rule_file}"],
            "evaluation_interval": proof.INTERVAL,
            "tests": proof.promtool_cases(proofs, by_name, options),
        }
    )
