"""Words and units for panels, taken from the metric catalogue."""

from __future__ import annotations

from triton_exporter.catalogue import Metric

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
    """Grafana's unit of a series that is drawn as it is."""
    return UNITS.get(metric.unit, "short")


def about(lead: str, *metrics: Metric | str) -> str:
    """A panel's description: what it answers, then each metric with its meaning, switch and caveat."""
    return "\n\n".join((lead, *(_line(metric) for metric in metrics)))


def _line(metric: Metric | str) -> str:
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
