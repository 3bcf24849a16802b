"""Generation of alert rules and of the configuration of Alertmanager."""

from __future__ import annotations

from collections.abc import Sequence

from triton_alerts import alertmanager, rules
from triton_alerts.catalogue import FAMILIES
from triton_slo import artifact
from triton_slo.artifact import Artifact, Options


def artifacts(objectives: Sequence[object], options: Options) -> tuple[Artifact, ...]:
    """Write one rule file for each family, and `alertmanager.yml`.

    The alerts of the objectives themselves come from triton_slo.
    """
    return (*(_rules(family, options) for family in FAMILIES), *alertmanager.artifacts(options))


def _rules(family: str, options: Options) -> Artifact:
    group = rules.group(family, FAMILIES[family], options)
    return Artifact(
        "rules", f"triton-{family}.yml", artifact.render([group], f"triton-{family}", options.format)
    )
