"""Define a proof of an alert, and write the file with which promtool checks it: series in, alerts out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal
from urllib.parse import quote_plus

from triton_alerts import rules
from triton_alerts.alert import Alert, Lookup
from triton_slo.artifact import Options

INTERVAL = "15s"
"""Interval between two values of a proof's series."""

Kind = Literal["fires", "quiet", "boundary", "reset", "missing"]


@dataclass(frozen=True, slots=True)
class Fires:
    """One alert that is expected: the labels its expression yields, and what its texts show.

    `value` is `$value` as the texts write it, `cause` what the bridge finds with the alert's query.
    """

    labels: Mapping[str, str]
    value: str = ""
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Proof:
    """One proof about one alert: with these series, exactly these alerts fire at this time.

    `series` maps a series to its values in promtool's notation, 15 s apart.
    """

    kind: Kind
    alert: str
    promise: str
    series: Mapping[str, str]
    at: str
    fires: tuple[Fires, ...] = field(default=())
    before: str = ""
    """An earlier time, at which the fault has not lasted as long as it must: no alert."""


def _proof(
    kind: Kind,
    alert: str,
    promise: str,
    series: Mapping[str, str],
    at: str,
    *expected: Fires,
    before: str = "",
) -> Proof:
    return Proof(kind, alert, promise, series, at, expected, before)


fires = partial(_proof, "fires")
"""The fault is present and the alert fires."""
quiet = partial(_proof, "quiet")
"""A state similar to the fault, and no alert."""
boundary = partial(_proof, "boundary")
"""On either side of a threshold, or of the time that the fault must last."""
reset = partial(_proof, "reset")
"""A counter starts again at 0, or a server restarts."""


def missing(alert: Alert) -> Proof:
    """No series at all, for longer than the `for` of the alert: no alert, and no error."""
    at = "2h5m" if alert.for_.endswith("h") else "35m"
    return Proof("missing", alert.name, "is quiet without series", {}, at)


def promtool_file(rule_file: str, proofs: Iterable[Proof], alerts: Iterable[Alert]) -> str:
    """Write the proofs of these alerts as a file for `promtool test rules`; the same series share a test."""
    by_name = {alert.name: alert for alert in alerts}
    by_series: dict[tuple[tuple[str, str], ...], list[Proof]] = {}
    for proof in proofs:
        if proof.alert in by_name:
            by_series.setdefault(tuple(proof.series.items()), []).append(proof)
    tests = [_case(group, by_name) for group in by_series.values()]
    # Half as many evaluations take promtool half as long, where no proof is about a moment between them.
    times = [at for group in by_series.values() for proof in group for at in (proof.at, proof.before)]
    seldom = not any(at.endswith(("15s", "45s")) for at in times)
    evaluation = "30s" if seldom else INTERVAL
    return json.dumps({"rule_files": [rule_file], "evaluation_interval": evaluation, "tests": tests})


def _case(proofs: Sequence[Proof], alerts: Mapping[str, Alert]) -> dict[str, Any]:
    return {
        "name": "; ".join(f"{proof.alert} {proof.promise}" for proof in proofs),
        "interval": INTERVAL,
        "input_series": [{"series": name, "values": values} for name, values in proofs[0].series.items()],
        "alert_rule_test": [
            {
                "eval_time": at,
                "alertname": proof.alert,
                "exp_alerts": [_expected(expected, alerts[proof.alert]) for expected in firing],
            }
            for proof in proofs
            for at, firing in ((proof.before, ()), (proof.at, proof.fires))
            if at
        ],
        "promql_expr_test": [
            _cause(expected, proof.at, lookup)
            for proof in proofs
            for expected in proof.fires
            if (lookup := alerts[proof.alert].cause_from) is not None
        ],
    }


def _cause(expected: Fires, at: str, lookup: Lookup) -> dict[str, Any]:
    """Ask what the bridge asks about the alert: exactly these values of the label."""
    values = expected.cause.removeprefix(lookup.prefix).split(", ") if expected.cause else []
    found = [{"labels": f'{{{lookup.label}="{value}"}}', "value": 1} for value in values]
    return {
        "eval_time": at,
        "expr": f"group by ({lookup.label}) ({lookup.about(expected.labels)})",
        "exp_samples": found,
    }


def _expected(expected: Fires, alert: Alert) -> dict[str, Any]:
    """Every label and every text, written out without Prometheus' help: so a misspelt label shows."""
    texts = {name: _filled(text, expected) for name, text in rules.texts(alert, Options()).items()}
    texts["dashboard_url"] = re.sub(
        r"\{\{ \$labels\.(\w+) \| urlquery \}\}",
        lambda match: quote_plus(expected.labels.get(match[1], "")),
        texts["dashboard_url"],
    )
    return {"exp_labels": {**rules.labels(alert), **expected.labels}, "exp_annotations": texts}


def _filled(template: str, expected: Fires) -> str:
    template = re.sub(r"\{\{ [^{}]*\$value[^{}]*\}\}", lambda _: expected.value, template)
    template = re.sub(
        r"\{\{ with \$labels\.(\w+) \}\}([^{}]*)\{\{ \. \}\}\{\{ end \}\}",
        lambda match: match[2] + expected.labels[match[1]] if expected.labels.get(match[1]) else "",
        template,
    )
    return re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda match: expected.labels[match[1]], template)
