"""What promtool is asked about an alert: series in, alerts out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from triton_alerts import links, rules
from triton_alerts.alert import Alert
from triton_slo.artifact import Options

INTERVAL = "15s"
"""How far apart the values of a proof's series are."""


@dataclass(frozen=True, slots=True)
class Fires:
    """One alert that is expected: all its labels beside those every alert carries, and its texts."""

    labels: Mapping[str, str]
    summary: str
    description: str
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Proof:
    """One promise about one alert: given these series, at this time exactly these alerts fire.

    `series` maps a series to its values in promtool's notation, 15 s apart.
    """

    alert: str
    promise: str
    series: Mapping[str, str]
    at: str
    fires: tuple[Fires, ...] = field(default=())


def promtool_case(proof: Proof, alert: Alert, options: Options) -> dict[str, Any]:
    """The proof as one entry of `tests` in a promtool test file."""
    return {
        "name": f"{proof.alert}: {proof.promise}",
        "interval": INTERVAL,
        "input_series": [{"series": name, "values": values} for name, values in proof.series.items()],
        "alert_rule_test": [
            {
                "eval_time": proof.at,
                "alertname": proof.alert,
                "exp_alerts": [_expected(fires, alert, options) for fires in proof.fires],
            }
        ],
    }


def _expected(fires: Fires, alert: Alert, options: Options) -> dict[str, Any]:
    texts = {
        "summary": fires.summary,
        "description": fires.description,
        "cause": fires.cause,
        "runbook_url": links.runbook_url(alert.name, options),
        "dashboard_url": links.expected_dashboard_url(alert, options, fires.labels),
    }
    # Prometheus keeps an annotation whose template came out empty.
    written = rules.texts(alert, options)
    return {
        "exp_labels": {**rules.labels(alert), **fires.labels},
        "exp_annotations": {name: text for name, text in texts.items() if name in written},
    }
