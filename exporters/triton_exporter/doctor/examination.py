"""Recommend settings of a Triton that make it more observable: each finding with its flag and its cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from triton_exporter.doctor.finding import Finding, TritonFacts
from triton_exporter.doctor.metrics_checks import (
    check_counters,
    check_default_buckets,
    check_metrics,
    check_missing_histograms,
    check_summaries,
)
from triton_exporter.doctor.server_checks import (
    check_log,
    check_namespacing,
    check_queues,
    check_reachable,
    check_readiness,
    check_release,
    check_restricted,
)
from triton_exporter.doctor.trace_check import check_tracing

Check = Callable[[TritonFacts], Iterator[Finding]]


def examine(facts: TritonFacts) -> list[Finding]:
    """Return everything worth changing, problems first."""
    if facts.is_other_server:
        checks: tuple[Check, ...] = (check_reachable,)
    elif facts.snapshot.api_failure:
        # Metrics may answer all the same: from another Triton of that machine, whose traffic this is not about.
        # A dcgm-exporter answers for itself.
        checks = (check_reachable, check_metrics, _check_gpus)
    else:
        checks = CHECKS
    findings = [finding for check in checks for finding in check(facts)]
    return sorted(findings, key=lambda finding: finding.grade != "problem")


def _check_gpus(facts: TritonFacts) -> Iterator[Finding]:
    yield from facts.gpu


CHECKS: tuple[Check, ...] = (
    check_reachable,
    check_metrics,
    check_restricted,
    check_namespacing,
    check_counters,
    check_readiness,
    check_missing_histograms,
    check_default_buckets,
    check_summaries,
    _check_gpus,
    check_log,
    check_queues,
    check_tracing,
    check_release,
)
