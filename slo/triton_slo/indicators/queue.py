"""Queue: requests that queued longer than the threshold, and those the queue rejected.

Triton counts a queue timeout as REJECTED (from 24.07 on); requests that find the queue full only traces show.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar, Literal

from triton_exporter.catalogue import models, state, triton
from triton_slo import names
from triton_slo.indicators.histograms import HistogramIndicator, share_of_time
from triton_slo.indicators.indicator import Indicator, Measure, Scope, failures
from triton_slo.promql import Matchers, by, on
from triton_slo.sources import UNTRACED_QUEUE

_REJECTED = 'reason="REJECTED"'
QUEUE_FULL = "QUEUE_FULL"
"""A reason that Triton does not count: requests that found the queue full, which the exporter sees in traces."""


class Queue(HistogramIndicator):
    """Share of requests that queued no longer than the threshold; a queue rejection is an error."""

    kind: Literal["queue"] = "queue"
    burn_alert: ClassVar = "TritonQueueBudgetBurn"
    share_words: ClassVar = "of requests queued at most"
    failed_words: ClassVar = "requests waited over {} or were rejected"
    failing_words: ClassVar = "requests wait over {} or are rejected"
    default_seconds: ClassVar = 0.1
    histogram: ClassVar = state.QUEUE_DURATION
    signal: ClassVar = "queue"
    cause_split: ClassVar = "queue"
    steps_by_cause: ClassVar = {
        "failure": "The queue is full, or requests wait longer than its timeout: add instances or replicas, or reduce the "
        "request rate of the clients.",
        **HistogramIndicator.steps_by_cause,
    }

    def measure(self, threshold: float | None, scope: Scope) -> Measure:
        """Measure requests that queued too long or were rejected; a full queue's are in doubt without traces."""
        measure = super().measure(threshold, scope)
        return replace(measure, sources=(*measure.sources, (untraced(scope), UNTRACED_QUEUE)))

    @classmethod
    def causes(cls, selector: Matchers, window: str, used: Sequence[Indicator]) -> Iterator[tuple[str, str]]:
        """Yield the share of time in the queue, and the shares of all requests that it turned away."""
        yield "queue", share_of_time(triton.QUEUE_DURATION_US, selector, window)
        timed_out = failures(triton.REQUEST_FAILURE, selector.also(_REJECTED), "reason", window)
        away = f"{timed_out} or {full_queue(selector, window)}"
        grouped, each = by(names.GROUPING), by((*names.GROUPING, names.CAUSE))
        every = f"sum {grouped} (rate({triton.REQUEST_SUCCESS}{selector}[{window}]) or {away})"
        yield "", f"sum {each} ({away})\n/ {on(names.GROUPING)} group_left ()\n({every} > 0)"

    def also_failed(self, scope: Scope) -> str:
        """Return the rejected requests: those that timed out, and those that a full queue refused."""
        return f"{scope.series(triton.REQUEST_FAILURE, _REJECTED)} or {full_queue_counter(scope)}"


def full_queue(selector: Matchers, window: str) -> str:
    """Return requests per second that found the queue full, with that as their cause."""
    rate = f"rate({state.QUEUE_FULL_ESTIMATE}{selector}[{window}])"
    return f'label_replace({rate}, "{names.CAUSE}", "failure:{QUEUE_FULL}", "", "")'


def full_queue_counter(scope: Scope) -> str:
    """Return the counter of requests that found the queue full, with that as their reason."""
    return f'label_replace({scope.series(state.QUEUE_FULL_ESTIMATE)}, "reason", "{QUEUE_FULL}", "", "")'


def untraced(scope: Scope) -> str:
    """Return groups whose queue has a limit, on a server of whose queue the exporter receives no traces."""
    traced = scope.matchers.equal("signal", Queue.signal).equal("source", "trace")
    return (
        f"group {scope.by} (\n  {models.QUEUE_SIZE_LIMIT}{scope.matchers}\n"
        f"  unless ignoring (priority, signal, source) ({state.DISTRIBUTION_SOURCE}{traced} == 1)\n)"
    )
