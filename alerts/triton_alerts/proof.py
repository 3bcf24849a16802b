"""What promtool is asked about an alert: series in, alerts out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from triton_alerts.alert import Alert
from triton_alerts.rules import alert_rules as rules
from triton_alerts.rules import links
from triton_slo.artifact import Options

INTERVAL = "15s"
"""How far apart the values of a proof's series are."""

Kind = Literal["fires", "quiet", "boundary", "reset", "missing"]


@dataclass(frozen=True, slots=True)
class Fires:
    """One alert that is expected: the labels its expression yields, and what its texts show.

    `value` is `$value` as the texts write it, `cause` the whole annotation.
    """

    labels: Mapping[str, str]
    value: str = ""
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Proof:
    """One promise about one alert: given these series, at this time exactly these alerts fire.

    `series` maps a series to its values in promtool's notation, 15 s apart.
    """

    kind: Kind
    alert: str
    promise: str
    series: Mapping[str, str]
    at: str
    fires: tuple[Fires, ...] = field(default=())


def _proof(
    kind: Kind, alert: str, promise: str, series: Mapping[str, str], at: str, *expected: Fires
) -> Proof:
    return Proof(kind, alert, promise, series, at, expected)


fires = partial(_proof, "fires")
"""The trouble is there and the alert says so."""
quiet = partial(_proof, "quiet")
"""Something near to the trouble, and no alert."""
boundary = partial(_proof, "boundary")
"""On either side of a threshold, or of the time that the trouble must last."""
reset = partial(_proof, "reset")
"""A counter starts again at 0, a server restarts."""


def missing(alert: Alert) -> Proof:
    """No series at all, for longer than the alert holds back: no alert, and no error."""
    at = "2h5m" if alert.hold.endswith("h") else "35m"
    return Proof("missing", alert.name, "is quiet without series", {}, at)


def promtool_cases(
    proofs: Sequence[Proof], alerts: Mapping[str, Alert], options: Options
) -> list[dict[str, Any]]:
    """The proofs as `tests` of a promtool test file; proofs on the same series share one."""
    by_series: dict[tuple[tuple[str, str], ...], list[Proof]] = {}
    for proof in proofs:
        by_series.setdefault(tuple(proof.series.items()), []).append(proof)
    return [_case(group, alerts, options) for group in by_series.values()]


def _case(proofs: Sequence[Proof], alerts: Mapping[str, Alert], options: Options) -> dict[str, Any]:
    return {
        "name": "; ".join(f"{proof.alert} {proof.promise}" for proof in proofs),
        "interval": INTERVAL,
        "input_series": [{"series": one, "values": values} for one, values in proofs[0].series.items()],
        "alert_rule_test": [
            {
                "eval_time": proof.at,
                "alertname": proof.alert,
                "exp_alerts": [_expected(one, alerts[proof.alert], options) for one in proof.fires],
            }
            for proof in proofs
        ],
    }


def _expected(one: Fires, alert: Alert, options: Options) -> dict[str, Any]:
    """Every label and every text, written out without Prometheus' help: so a misspelt label shows."""
    texts = {name: _filled(text, one) for name, text in rules.texts(alert, options).items()}
    if "cause" in texts:
        texts["cause"] = one.cause
        texts["action"] = dict(alert.steps).get(one.cause, alert.action)
    texts["dashboard_url"] = links.expected_dashboard_url(alert, options, one.labels)
    return {"exp_labels": {**rules.labels(alert), **one.labels}, "exp_annotations": texts}


def _filled(template: str, one: Fires) -> str:
    template = re.sub(r"\{\{ [^{}]*\$value[^{}]*\}\}", lambda _: one.value, template)
    template = re.sub(
        r"\{\{ with \$labels\.(\w+) \}\}([^{}]*)\{\{ \. \}\}\{\{ end \}\}",
        lambda match: match[2] + one.labels[match[1]] if one.labels.get(match[1]) else "",
        template,
    )
    return re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda match: one.labels[match[1]], template)
