"""Recommend settings of a Triton that make it more observable: each finding with its flag and its cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from triton_exporter.doctor.finding import Finding, TritonFacts
from triton_exporter.doctor.metrics_checks import (
    counters,
    default_buckets,
    estimates,
    metrics,
    missing_histograms,
    summaries,
)
from triton_exporter.doctor.server_checks import (
    age,
    log,
    namespacing,
    queues,
    reachable,
    readiness,
    restricted,
)
from triton_exporter.doctor.trace_check import tracing

Check = Callable[[TritonFacts], Iterator[Finding]]


def examine(facts: TritonFacts) -> list[Finding]:
    """Everything worth changing, problems first."""
    if facts.is_other_server:
        checks: tuple[Check, ...] = (reachable,)
    elif facts.snapshot.api_failure:
        # Metrics may answer all the same: from another Triton of that machine, whose traffic this is not about.
        # A dcgm-exporter answers for itself.
        checks = (reachable, metrics, _gpus)
    else:
        checks = CHECKS
    findings = [finding for check in checks for finding in check(facts)]
    return sorted(findings, key=lambda finding: finding.grade != "problem")


def _gpus(facts: TritonFacts) -> Iterator[Finding]:
    yield from facts.gpu


CHECKS: tuple[Check, ...] = (
    reachable,
    metrics,
    restricted,
    namespacing,
    counters,
    readiness,
    missing_histograms,
    default_buckets,
    estimates,
    summaries,
    _gpus,
    log,
    queues,
    tracing,
    age,
)
