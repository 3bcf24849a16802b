"""Queue: requests that queued longer than the threshold, and those the queue rejected.

Triton counts a queue timeout as REJECTED; what a full queue turns away only traces show.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from triton_exporter.catalogue import state, triton
from triton_slo.indicators.durations import HistogramOrSlices
from triton_slo.indicators.measure import Scope

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

    def also_failed(self, scope: Scope, window: str, every: str) -> tuple[str, ...]:
        """Rejections."""
        timed_out = scope.rate(triton.REQUEST_FAILURE, window, _REJECTED)
        found_full = scope.rate(state.QUEUE_FULL_ESTIMATE, window)
        either = (f"({rejected} or {scope.on} 0 * {every})" for rejected in (timed_out, found_full))
        return (f"({f' + {scope.on} '.join(either)})",)
