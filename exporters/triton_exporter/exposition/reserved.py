"""Names that a model's own metrics must not bear: rules, boards and people believe them."""

from __future__ import annotations

from triton_exporter.catalogue import METRICS
from triton_exporter.catalogue.external import stack

_NAMES = frozenset(
    name
    for metric in METRICS
    if metric.name.startswith("triton_")
    for name in (metric.name, metric.name.removesuffix("_total"), metric.bucket, metric.sum, metric.count)
) | {stack.UP, "ALERTS", "ALERTS_FOR_STATE"}

_PREFIXES = ("scrape_", "slo:", "triton_alert_bridge_")
"""Prefixes of the series that Prometheus adds to each scrape, that the rules record, and that the bridge has."""

_RECORDED = ":triton_"
"""Part of the names of all other series that the rules record, as in model:triton_..."""


def is_reserved(name: str) -> bool:
    """Return whether only the exporter, Prometheus or the rules may give a series this name.

    https://prometheus.io/docs/concepts/jobs_instances/#automatically-generated-labels-and-time-series
    """
    return name in _NAMES or name.startswith(_PREFIXES) or _RECORDED in name
