"""Words and units for panels, taken from the metric catalogue."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from triton_exporter.catalogue import METRICS, Metric
from triton_exporter.exposition.parse import without_strings
from triton_slo import bridge_series
from triton_slo.signals import Signal

MetricNames = Metric | str | Sequence[Metric | str]

UNITS = {
    "s": "s",
    "ms": "ms",
    "us": "µs",
    "bytes": "bytes",
    "bytes/s": "Bps",
    "ratio": "percentunit",
    "W": "watt",
    "J": "joule",
    "C": "celsius",
    "Hz": "hertz",
    "requests": "short",
    "inferences": "short",
    "executions": "short",
    "tokens": "short",
}
"""Unit on the wire -> Grafana's id of it."""


def unit(metric: Metric) -> str:
    """Return Grafana's unit of a series that is drawn as it is."""
    return UNITS.get(metric.unit, "short")


def about(lead: str, *metrics: Metric | str) -> str:
    """Return a panel's description: what it answers, then each metric with its meaning, switch and caveat."""
    return "\n\n".join((lead, *(_metric_line(metric) for metric in metrics)))


def metrics_of(exprs: Iterable[str]) -> tuple[Metric | str, ...]:
    """Return the metrics that expressions read, in order: those of the catalogues, and recorded series."""
    words = (word for expr in exprs for word in _WORD.findall(without_strings(expr)))
    return tuple(
        dict.fromkeys(_FAMILIES.get(word, word) for word in words if word in _FAMILIES or ":" in word)
    )


_WORD = re.compile(r"(?<![\w:$])[a-zA-Z_:][\w:]*")
_FAMILIES = {
    name: metric
    for metric in (*METRICS, *bridge_series.METRICS)
    for name in (metric.name, metric.bucket, metric.sum, metric.count)
}


def fires(signal: Signal) -> str:
    """Name the alert on the same figure and its limit, which such a panel draws."""
    condition = f"fires {signal.threshold.condition}" if signal.enabled else "is disabled"
    exceptions = f" For some models: {'; '.join(signal.exceptions)}." if signal.exceptions else ""
    return f"`{signal.alert}` {condition}.{exceptions}"


def _metric_line(metric: Metric | str) -> str:
    if isinstance(metric, str):
        return f"`{metric}`: recorded by the generated rules."
    parts = [f"`{metric}`: {metric.help}"]
    if metric.since:
        parts.append(f"Since Triton {metric.since}.")
    if metric.flag:
        parts.append(f"Needs `{metric.flag}`.")
    if metric.caveat:
        parts.append(metric.caveat)
    return " ".join(parts)
