"""Queue: requests that queued longer than the threshold, and those the queue rejected.

Triton counts a queue timeout as REJECTED (from 24.07 on); requests that find the queue full only traces show.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

from triton_exporter.catalogue import models, state, triton
from triton_slo.indicators.durations import HistogramOrSlices
from triton_slo.indicators.measure import Measure, Scope
from triton_slo.indicators.sources import UNTRACED_QUEUE

_REJECTED = 'reason="REJECTED"'


class Queue(HistogramOrSlices):
    """Share of requests that queued no longer than the threshold; a queue rejection is an error."""

    kind: Literal["queue"] = "queue"
    burn_alert: ClassVar = "TritonQueueBudgetBurn"
    default_seconds: ClassVar = 0.1
    """Threshold that is proposed where nothing was measured."""
    histogram: ClassVar = state.QUEUE_DURATION
    sums: ClassVar = triton.QUEUE_DURATION_US
    signal: ClassVar = "queue"

    def measure(self, threshold: float | None, scope: Scope) -> Measure:
        """Requests that queued too long or were rejected; those of a full queue are in doubt without traces."""
        measure = super().measure(threshold, scope)
        return replace(measure, sources=(*measure.sources, (untraced(scope), UNTRACED_QUEUE)))

    def also_failed(self, scope: Scope, window: str, every: str) -> tuple[str, ...]:
        """Rejections."""
        timed_out = scope.rate(triton.REQUEST_FAILURE, window, _REJECTED)
        either = (f"({one} or {scope.on} 0 * {every})" for one in (timed_out, found_full(scope, window)))
        return (f"({f' + {scope.on} '.join(either)})",)


def found_full(scope: Scope, window: str) -> str:
    """Requests per second that found the queue full, by the exporter's traces."""
    return scope.rate(state.QUEUE_FULL_ESTIMATE, window)


def untraced(scope: Scope) -> str:
    """Groups whose queue has a limit, on a server of whose queue the exporter receives no traces."""
    traced = scope.matchers.equal("signal", Queue.signal).equal("source", "trace")
    return (
        f"group {scope.by} (\n  {models.QUEUE_SIZE_LIMIT}{scope.matchers}\n"
        f"  unless ignoring (priority, signal, source) ({state.DISTRIBUTION_SOURCE}{traced} == 1)\n)"
    )
