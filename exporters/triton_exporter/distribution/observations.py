"""Requests of one histogram: those that were counted, and the shape that each interval gets."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from operator import add
from typing import TYPE_CHECKING

from triton_exporter.catalogue.state import DistributionSource
from triton_exporter.distribution.guarantee import Guarantee
from triton_exporter.distribution.histogram import Histogram
from triton_exporter.distribution.quantiles import QuantilePool, RecentQuantiles, fine_bounds
from triton_exporter.distribution.shape import Estimated, Interval, Observed, Point, RecentGain, Shape, Trace
from triton_exporter.distribution.stored import StoredHistogram
from triton_exporter.family import Exemplar
from triton_exporter.tracing.agreement import Agreement

if TYPE_CHECKING:
    from triton_exporter.distribution.estimate.decomposition import Decomposition

MAX_REQUEST_SECONDS = 1e6
"""A longer mean (11 days) is Triton's arithmetic, not a request: an unsigned time that fell below zero.

https://github.com/triton-inference-server/server/issues/1985
"""

TRACE_GRACE_SECONDS = 1.0
"""Triton's spans can end so far out of order: a batch may lack requests this much older than its newest."""

TRACE_WAIT_SECONDS = 15.0
"""An interval waits so long for its traces: three times Triton's default bsp_schedule_delay of 5 s."""

TRACE_GAP_SECONDS = 30.0
"""Requests wait so long, beyond `TRACE_WAIT_SECONDS`, for the next traced one, which represents them."""

NEXT_INTERVALS_SECONDS = 1.0
"""An interval waits so long for the next ones, from which its shape is estimated."""

FIRST_ESTIMATE_SECONDS = 5.0
"""An interval waits so long while there is no estimate yet."""

JOINED_SECONDS = 5.0
"""Over how long sampled requests are weighed together. One alone would take the requests since the one before
it, which are fewest for a slow one: it ends between two others, wherever it began."""

MAX_TRACES = 20_000
"""Traces kept per histogram while they wait for their interval."""


@dataclass(slots=True)
class Observations:
    """One histogram and the requests that wait for their shape.

    Every counted request enters the histogram exactly once, whatever source gives the shape; so sum and
    count are Triton's own, and a change of source is seen in neither. What ended by `closed` (Unix seconds)
    needs no traces any more. Traces that contradict the counters are lost, and `believes_traces` is false
    until they agree again.

    Long because it alone decides when a waiting request enters the histogram: each does so exactly once.
    """

    histogram: Histogram
    guarantee: Guarantee
    lose: Callable[[str, int], None]
    closed: float
    pool: QuantilePool
    source: DistributionSource = "sampled_mean"
    discarded: float = 0.0
    traced_at: float = float("-inf")
    believes_traces: bool = True
    decomposition: Decomposition | None = None
    quantiles: RecentQuantiles | None = None
    _carried: tuple[float, ...] = (0.0, 0.0, 0.0)  # requests, seconds and units for the next interval
    _pending: list[Interval] = field(default_factory=list)
    _waiting: deque[Interval] = field(default_factory=deque)
    _group: list[Interval] = field(default_factory=list)
    _group_traces: list[Trace] = field(default_factory=list)
    _traces: list[Trace] = field(default_factory=list)
    _agreement: Agreement = field(default_factory=Agreement)
    _recent: RecentGain | None = None
    _unwatched: StoredHistogram | None = None  # until the first reading after a restart

    def trace(self, trace: Trace) -> None:
        """Take in one traced request; one whose interval is closed is lost, and so is one too many."""
        self.traced_at = max(self.traced_at, trace.ended)
        if trace.ended <= self.closed:
            self.lose("late", 1)
        elif len(self._traces) >= MAX_TRACES:
            self.lose("overflow", 1)
        else:
            insort(self._traces, trace)

    def carry_over(self, requests: float, seconds: float, units: float = 0.0) -> None:
        """Keep requests for the next interval that is counted."""
        self._carried = tuple(map(add, self._carried, (requests, seconds, units)))

    @property
    def has_carried_over(self) -> bool:
        """True if requests wait for the next interval."""
        return self._carried[0] > 0

    def stored(self, torn: tuple[float, float, float], now: float) -> StoredHistogram:
        """Return all of it, with `torn` among what is carried over (requests, seconds, units)."""
        waiting = chain(self._pending, self._waiting, self._group)
        counts, total = self.histogram.stored((interval.requests, interval.seconds) for interval in waiting)
        requests, seconds, units = map(add, self._carried, torn)
        return StoredHistogram(
            self.histogram.bounds,
            tuple(counts),
            total,
            *self._recent_gains().gained(counts, total, now),
            self.guarantee.stored(),
            (requests, seconds, units),
        )

    def _recent_gains(self) -> RecentGain:
        if self._recent is None:
            nothing = [0] * (len(self.histogram.bounds) + 1)
            self._recent = RecentGain(nothing, 0.0, nothing, 0.0)
        return self._recent

    def restore(self, stored: StoredHistogram) -> None:
        """Go on from there; with other bucket bounds the histogram starts at zero."""
        self.carry_over(*stored.held)
        self.guarantee.restore(stored.within)
        if stored.bounds == self.histogram.bounds:
            self.histogram.restore(stored.counts, stored.sum)
            self._recent = RecentGain(stored.counts, stored.sum, stored.recent, stored.recent_sum)
            self._unwatched = stored

    def count(self, interval: Interval, wait: bool) -> None:
        """Take in what one interval brought; with `wait`, its shape may come from traces."""
        whole = self._with_carried_over(interval)
        if whole is None:
            return
        self.guarantee.add(whole.requests, whole.seconds)
        before = self._unwatched
        if before is not None and whole.source == "sampled_mean":
            whole = whole._replace(shape=before.recent_shape(whole.requests, whole.seconds))
        if wait:
            self._waiting.append(whole)
        elif self.decomposition is not None and whole.source == "sampled_mean" and whole.shape is None:
            self._decompose(self.decomposition, whole)
        else:
            self._enter_interval(whole)

    def _with_carried_over(self, interval: Interval) -> Interval | None:
        """Return an interval with what was carried over; None where no request is left to enter.

        Triton adds to its counters one after the other, so a body can hold a request's time without the
        request; that time waits for the next interval, and the sum stays exact.
        """
        new = (interval.requests, interval.seconds, interval.units)
        requests, seconds, units = map(add, self._carried, new)
        if requests <= 0:
            self._carried = (requests, seconds, self._carried[2])
            return None
        self._carried = (0.0, 0.0, 0.0)
        if seconds / requests > MAX_REQUEST_SECONDS:
            self.discarded += requests
            return None
        part = requests / interval.requests if interval.requests else 0.0
        waited, worked = part * interval.waited, part * interval.worked
        return interval._replace(
            requests=requests, seconds=seconds, units=units, waited=waited, worked=worked
        )

    def _decompose(self, decomposition: Decomposition, interval: Interval) -> None:
        """Enter an interval that is certain at once; the others wait for those after them."""
        undecided = decomposition.add(interval, self.histogram.bounds[0])
        if undecided or self._pending:
            self._pending.append(interval)
        else:
            self._enter_interval(interval._replace(source="decomposed"))

    def _enter_pending(self) -> None:
        decomposition = self.decomposition
        if decomposition is None or not decomposition.is_estimated:
            for interval in self._pending:
                self._enter_interval(interval)
            self._pending.clear()
            return
        quantiles = self._quantiles()
        bounds = quantiles.bounds if quantiles else self.histogram.bounds
        shares = decomposition.shares(len(self._pending), bounds)
        requests = [interval.requests for interval in self._pending]
        shape = Estimated([float(share) / sum(requests) for share in shares.T @ requests])
        seconds = sum(interval.seconds for interval in self._pending)
        self._enter_shape("decomposed", self._pending[-1].end, sum(requests), seconds, shape)
        self._pending.clear()

    def close(self, now: float, watermark: float, enter_pending: bool = True) -> None:
        """Enter what need not wait any longer; all requests that ended by `watermark` have been traced.

        Without `enter_pending`, what waits for an estimate waits on.
        """
        self._unwatched = None
        if enter_pending:
            self._close_pending(now)
        self._close_traced(max(watermark - TRACE_GRACE_SECONDS, now - TRACE_WAIT_SECONDS))
        self._close_group(now)
        if not self._waiting:
            # Traces of requests that no counter counts (failed ones) must not pile up.
            self._traces_until(now - TRACE_WAIT_SECONDS - TRACE_GAP_SECONDS)

    def _close_pending(self, now: float) -> None:
        """Enter what waits for an estimate, if the first of it has waited long enough."""
        is_estimated = self.decomposition is not None and self.decomposition.is_estimated
        longest = NEXT_INTERVALS_SECONDS if is_estimated else FIRST_ESTIMATE_SECONDS
        if self._pending and self._pending[0].end <= now - longest:
            self._enter_pending()

    def _close_traced(self, ended: float) -> None:
        """Group intervals until `ended`, whose traces have come; enter each group that traces represent."""
        while self._waiting and self._waiting[0].end <= ended:
            interval = self._waiting.popleft()
            self._group.append(interval)
            self.closed = interval.end
            self._group_traces += self._traces_until(interval.end)
            joined = interval.end - self._group[0].end
            if self._group_traces and (
                joined >= JOINED_SECONDS or all(trace.weight == 1 for trace in self._group_traces)
            ):
                self._enter_traced_group()

    def _close_group(self, now: float) -> None:
        """Enter a group that has waited long enough for its first trace, or for more of them."""
        longest = TRACE_WAIT_SECONDS + (JOINED_SECONDS if self._group_traces else TRACE_GAP_SECONDS)
        if self._group and self._group[0].end <= now - longest:
            if self._group_traces:
                self._enter_traced_group()
            else:
                self._enter_group()

    def _traces_until(self, end: float) -> list[Trace]:
        if not self._traces:
            return []
        taken = bisect_right(self._traces, end, key=lambda trace: trace.ended)
        traces, self._traces = self._traces[:taken], self._traces[taken:]
        return traces

    def _enter_interval(self, interval: Interval) -> None:
        """Enter an interval with the shape that it has, or at its mean."""
        requests, seconds = interval.requests, interval.seconds
        if interval.shape is not None and interval.source != "sampled_mean":
            self._enter_shape(interval.source, interval.end, requests, seconds, interval.shape)
            return
        self.source = interval.source
        self.histogram.add(requests, seconds, interval.shape or Point(seconds / requests))
        quantiles = self.quantiles
        if self.decomposition is not None or interval.source != "sampled_mean":
            quantiles = self._quantiles()
        if quantiles is not None:
            if interval.source == "sampled_mean" and interval.units > 1:
                quantiles.doubt(interval.end, requests)
            quantiles.add_alike(interval.end, requests, seconds / requests)

    def _enter_shape(
        self, source: DistributionSource, end: float, requests: float, seconds: float, shape: Shape
    ) -> None:
        self.source = source
        quantiles = self._quantiles()
        if quantiles is not None:
            shares = shape.shares(quantiles.bounds)
            quantiles.add(end, requests, shares)
            shape = Estimated([shares[place] for place in fine_bounds(self.histogram.bounds)[1]])
        self.histogram.add(requests, seconds, shape)

    def _quantiles(self) -> RecentQuantiles | None:
        if self.quantiles is None:
            self.quantiles = self.pool.get(fine_bounds(self.histogram.bounds)[0])
        return self.quantiles

    def _enter_group(self) -> None:
        """Enter each interval of the group without traces."""
        for interval in self._group:
            self._enter_interval(interval)
        self._group.clear()

    def _enter_traced_group(self) -> None:
        """Let the traced requests represent all of the group, each for as many as the trace rate says."""
        traces = sorted(self._group_traces, key=lambda trace: trace.seconds)
        self._group_traces = []
        seconds = [trace.seconds for trace in traces]
        counted = [(interval.requests, interval.seconds) for interval in self._group]
        self.believes_traces = self._agreement.update(self.closed, counted, seconds)
        if not self.believes_traces:
            self.lose("contradicts", len(traces))
            self._enter_group()
            return
        shape = Observed(seconds, [trace.weight for trace in traces])
        requests = sum(interval.requests for interval in self._group)
        total = sum(interval.seconds for interval in self._group)
        self._enter_shape("trace", self.closed, requests, total, shape)
        self.histogram.remember(Exemplar(trace.trace_id, trace.seconds, trace.ended) for trace in traces)
        self._group.clear()
