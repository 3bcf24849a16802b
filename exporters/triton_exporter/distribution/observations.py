"""The histogram of one signal of one model version, and the requests on their way into it.

    interval ──► carried ──┬──► traced  ──┐
                           ├──► pending ──┼──► histogram
                           └──────────────┘

An interval without a request, or whose source shows no shape this time, is `carried` over to the next one. Those of
a traced model are `traced`: they wait for the traces of their requests. Those of which only the mean is known are
`pending`: they wait for an estimate. The others enter at once.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import sub
from typing import TYPE_CHECKING, NamedTuple

from triton_exporter.catalogue.state import DistributionSource
from triton_exporter.distribution.histogram import (
    Estimated,
    Guarantee,
    Histogram,
    Interval,
    Observed,
    Point,
    QuantilePool,
    RecentQuantiles,
    fine_bounds,
)
from triton_exporter.distribution.state_file import StoredHistogram
from triton_exporter.family import Exemplar

if TYPE_CHECKING:
    from triton_exporter.distribution.estimate.decomposition import Decomposition


WINDOW_SECONDS = 300.0
"""Time over which traces and counters are compared, and for which traces are not used after a contradiction."""

_SLOT_SECONDS = 10.0

_CHANCE_EXPONENT = 12.0
"""True traces contradict the counters once in exp(12) comparisons, some 160,000, at most."""

_MIN_RELATIVE_DIFFERENCE = 0.1
_MIN_DIFFERENCE_SECONDS = 0.0005
"""A smaller difference of the means is left alone: traces and counters are stamped at different lines of code."""


@dataclass(slots=True)
class _AgreementSlot:
    """Sums over the intervals and traces of a few seconds; `expected` is what the traces should add up to."""

    start: float
    requests: float = 0.0
    seconds: float = 0.0
    requests_squared: float = 0.0
    seconds_squared: float = 0.0
    product: float = 0.0
    traces: int = 0
    traced: float = 0.0
    expected: float = 0.0
    longest: float = 0.0


@dataclass(slots=True)
class Agreement:
    """Compares the traces of one histogram with what Triton counted, over the last WINDOW_SECONDS."""

    _slots: list[_AgreementSlot] = field(default_factory=list)

    def update(self, end: float, counted: Sequence[tuple[float, float]], traced: Sequence[float]) -> bool:
        """Add intervals up to `end` and the traced requests that stand for them; returns whether they agree.

        `counted` has (requests, seconds) of each interval, `traced` the seconds of each traced request.
        """
        while self._slots and self._slots[0].start <= end - WINDOW_SECONDS:
            del self._slots[0]
        if not self._slots or end >= self._slots[-1].start + _SLOT_SECONDS:
            self._slots.append(_AgreementSlot(end))
        slot = self._slots[-1]
        for requests, seconds in counted:
            slot.requests_squared += requests * requests
            slot.seconds_squared += seconds * seconds
            slot.product += requests * seconds
        requests, seconds = (sum(column) for column in zip(*counted, strict=True))
        slot.requests += requests
        slot.seconds += seconds
        slot.traces += len(traced)
        slot.traced += sum(traced)
        slot.expected += len(traced) * seconds / requests
        slot.longest = max(slot.longest, *traced)
        return self._agrees()

    def _agrees(self) -> bool:
        traces = sum(slot.traces for slot in self._slots)
        expected = sum(slot.expected for slot in self._slots)
        difference = sum(slot.traced for slot in self._slots) - expected
        if abs(difference) <= max(_MIN_RELATIVE_DIFFERENCE * expected, _MIN_DIFFERENCE_SECONDS * traces):
            return True
        longest = max(slot.longest for slot in self._slots) if difference > 0 else 0.0
        spread = traces * self._second_moment() + abs(difference) * longest / 3
        return difference * difference <= 2 * _CHANCE_EXPONENT * spread

    def _second_moment(self) -> float:
        """Return that of the time of a counted request (seconds squared), from how the intervals' totals vary."""
        requests = sum(slot.requests for slot in self._slots)
        mean = sum(slot.seconds for slot in self._slots) / requests
        unlike = sum(
            slot.seconds_squared - 2 * mean * slot.product + mean * mean * slot.requests_squared
            for slot in self._slots
        )
        return max(0.0, unlike) / requests + mean * mean


MAX_REQUEST_SECONDS = 1e6
"""A longer mean (11 days) is Triton's arithmetic, not a request: an unsigned time that fell below zero.

https://github.com/triton-inference-server/server/issues/1985
"""

NEXT_INTERVALS_SECONDS = 1.0
"""Time for which an interval waits for the next ones, from which its shape is estimated."""

FIRST_ESTIMATE_SECONDS = 5.0
"""Time for which an interval waits while there is no estimate yet."""

TRACE_GRACE_SECONDS = 1.0
"""Time before the newest request of a batch from which requests may be missing: Triton sends spans out of order."""

TRACE_WAIT_SECONDS = 15.0
"""Time for which an interval waits for its traces: three times Triton's default bsp_schedule_delay of 5 s."""

TRACE_GAP_SECONDS = 30.0
"""Time, beyond `TRACE_WAIT_SECONDS`, for which requests wait for the next traced one, which represents them."""

JOINED_SECONDS = 5.0
"""Time whose sampled requests represent its intervals together. If each represented the requests since the sampled
one before it, slow ones would represent too few: they end between two others, wherever they began."""

MAX_TRACES = 20_000
"""Traces stored per histogram while they wait for their interval."""

RECENT_SECONDS = 120.0
"""`RecentGain` has the gain of the last one to two times this long."""


class Trace(NamedTuple):
    """One traced request: when it ended (Unix seconds), what it took (seconds), which trace it was.

    `weight` is how many requests it stands for: the trace rate when it began.
    """

    ended: float
    seconds: float
    trace_id: str
    weight: float = 1.0


@dataclass(slots=True)
class TracedIntervals:
    """Intervals of one histogram in three steps: waiting for traces, in the group that traces will represent, left.

    What ended by `closed` (Unix seconds) needs no traces any more; `newest_at` is when the newest traced request
    ended. Traces that contradict the counters are lost, and `believes_traces` is false until they agree again.
    `lose` is called with the reason (of `LOSSES`) and the number of traces that are lost.
    """

    lose: Callable[[str, int], None]
    closed: float
    newest_at: float = float("-inf")
    believes_traces: bool = True
    waiting: list[Interval] = field(default_factory=list)
    _traces: list[Trace] = field(default_factory=list)
    _group: list[Interval] = field(default_factory=list)
    _group_traces: list[Trace] = field(default_factory=list)
    _agreement: Agreement = field(default_factory=Agreement)

    def __iter__(self) -> Iterator[Interval]:
        yield from self.waiting
        yield from self._group

    def add_trace(self, trace: Trace) -> None:
        """Take in one traced request; one whose interval is closed is lost, and so is one too many."""
        self.newest_at = max(self.newest_at, trace.ended)
        if trace.ended <= self.closed:
            self.lose("late", 1)
        elif len(self._traces) >= MAX_TRACES:
            self.lose("overflow", 1)
        else:
            insort(self._traces, trace)

    def leaving(self, now: float, watermark: float) -> Iterator[tuple[Interval, Sequence[Trace]]]:
        """Remove and yield what need not wait any longer, with the traces that represent it.

        All requests that ended by `watermark` have been traced. Where no traces represent an interval, it is left
        with the shape that it has.
        """
        ended = max(watermark - TRACE_GRACE_SECONDS, now - TRACE_WAIT_SECONDS)
        while self.waiting and self.waiting[0].end <= ended:
            interval = self.waiting.pop(0)
            self.closed = interval.end
            self._group.append(interval)
            self._group_traces += self._traces_until(interval.end)
            # They represent the group if they are all of its requests, or those of some seconds.
            is_long = interval.end - self._group[0].end >= JOINED_SECONDS
            if self._group_traces and (is_long or all(trace.weight == 1 for trace in self._group_traces)):
                yield from self._take_group()
        longest = TRACE_WAIT_SECONDS + (JOINED_SECONDS if self._group_traces else TRACE_GAP_SECONDS)
        if self._group and self._group[0].end <= now - longest:
            yield from self._take_group()
        if not self.waiting:
            # Traces of requests that no counter counts (failed ones) must not pile up.
            self._traces_until(now - TRACE_WAIT_SECONDS - TRACE_GAP_SECONDS)

    def _take_group(self) -> Iterator[tuple[Interval, Sequence[Trace]]]:
        """Remove the group and yield it with its traced requests, each of which represents `weight` requests."""
        group, self._group = self._group, []
        traces = sorted(self._group_traces, key=lambda trace: trace.seconds)
        self._group_traces = []
        seconds = [trace.seconds for trace in traces]
        if traces:
            counted = [(interval.requests, interval.seconds) for interval in group]
            self.believes_traces = self._agreement.update(self.closed, counted, seconds)
            if not self.believes_traces:
                self.lose("contradicts", len(traces))
        if not traces or not self.believes_traces:
            yield from ((interval, ()) for interval in group)
            return
        requests = sum(interval.requests for interval in group)
        total = sum(interval.seconds for interval in group)
        shape = Observed(seconds, [trace.weight for trace in traces])
        yield Interval(self.closed, requests, total, source="trace", shape=shape), traces

    def _traces_until(self, end: float) -> list[Trace]:
        """Remove and return the traces of requests that ended by then."""
        if not self._traces:
            return []
        taken = bisect_right(self._traces, end, key=lambda trace: trace.ended)
        traces, self._traces = self._traces[:taken], self._traces[taken:]
        return traces


class RecentGain:
    """Recent gain of a histogram: counts by bucket, and their seconds. It begins with a gain known from before."""

    def __init__(self, counts: Sequence[int], seconds: float, gained: Sequence[int], gain: float) -> None:
        self._turned = float("-inf")
        self._older = self._newer = (tuple(map(sub, counts, gained)), seconds - gain)

    def gained(self, counts: Sequence[int], seconds: float, now: float) -> tuple[tuple[int, ...], float]:
        """Return the gain until `now` (Unix seconds), when the histogram is at `counts` and `seconds`."""
        if not 0 <= now - self._turned < RECENT_SECONDS:
            self._older, self._newer = self._newer, (tuple(counts), seconds)
            self._turned = now
        before, sum_before = self._older
        # Requests that wait for an estimate are stored at their mean, and may enter other buckets later.
        grown = tuple([max(0, count - earlier) for count, earlier in zip(counts, before, strict=True)])
        return grown, max(0.0, seconds - sum_before)


class Carried(NamedTuple):
    """Requests for the next interval, their seconds, and how many `units` of them are independent of each other."""

    requests: float = 0.0
    seconds: float = 0.0
    units: float = 0.0


@dataclass(slots=True)
class Observations:
    """One histogram and the requests that wait for their shape.

    Every counted request enters the histogram exactly once, whatever source gives the shape; so sum and
    count are Triton's own, and a change of source is seen in neither.
    """

    histogram: Histogram
    guarantee: Guarantee
    traced: TracedIntervals
    pool: QuantilePool
    carried: Carried = field(default_factory=Carried)
    source: DistributionSource = "sampled_mean"
    decomposition: Decomposition | None = None
    quantiles: RecentQuantiles | None = None
    _pending: list[Interval] = field(default_factory=list)
    _recent: RecentGain | None = None
    _before_restart: StoredHistogram | None = None  # until the first reading after a restart

    def stored(self, torn: Carried, now: float) -> StoredHistogram:
        """Return the histogram to store, with the requests of a torn reading among those that are carried over."""
        counts, total = self.histogram.stored(chain(self._pending, self.traced))
        if self._recent is None:
            nothing = [0] * len(counts)
            self._recent = RecentGain(nothing, 0.0, nothing, 0.0)
        recent, recent_sum = self._recent.gained(counts, total, now)
        carried = self.carried
        held = (carried.requests + torn.requests, carried.seconds + torn.seconds, carried.units + torn.units)
        return StoredHistogram(
            self.histogram.bounds, tuple(counts), total, recent, recent_sum, self.guarantee.stored(), held
        )

    def restore(self, stored: StoredHistogram) -> None:
        """Continue from a stored histogram; with other bucket bounds it starts at zero."""
        self.carry(*stored.held)
        self.guarantee.restore(stored.within)
        if stored.bounds == self.histogram.bounds:
            self.histogram.restore(stored.counts, stored.sum)
            self._recent = RecentGain(stored.counts, stored.sum, stored.recent, stored.recent_sum)
            self._before_restart = stored

    def carry(self, requests: float, seconds: float, units: float = 0.0) -> None:
        """Let these enter the histogram as a part of the next interval."""
        before = self.carried
        self.carried = Carried(before.requests + requests, before.seconds + seconds, before.units + units)

    def count(self, interval: Interval, wait: bool) -> None:
        """Count the requests of an interval; with `wait`, their shape may come from traces.

        Triton adds to its counters one after the other, so a body can contain a request's time without the
        request; that time waits for the next interval, and the sum stays exact.
        """
        carried, self.carried = self.carried, Carried()
        requests, seconds = carried.requests + interval.requests, carried.seconds + interval.seconds
        if requests <= 0:
            self.carried = Carried(requests, seconds, carried.units)
            return
        if seconds / requests > MAX_REQUEST_SECONDS:
            return
        self.guarantee.add(requests, seconds)
        shape = interval.shape
        if self._before_restart is not None and interval.source == "sampled_mean":
            shape = self._before_restart.recent_shape(requests, seconds)
        part = requests / interval.requests if interval.requests else 0.0
        whole = interval._replace(
            requests=requests,
            seconds=seconds,
            units=carried.units + interval.units,
            waited=part * interval.waited,
            worked=part * interval.worked,
            shape=shape,
        )
        if wait:
            self.traced.waiting.append(whole)
        elif self.decomposition is None or whole.source != "sampled_mean" or shape is not None:
            self._enter(whole)
        elif self.decomposition.add(whole, self.histogram.bounds[0]) or self._pending:
            self._pending.append(whole)
        else:  # certain: all of its requests are in the first bucket, or alike
            self._enter(whole._replace(source="decomposed"))

    @property
    def has_pending(self) -> bool:
        """True if intervals wait for an estimate."""
        return bool(self._pending)

    def close(self, now: float, watermark: float, enter_pending: bool = True) -> None:
        """Enter intervals that need not wait any longer; all requests that ended by `watermark` have been traced.

        Without `enter_pending`, intervals that wait for an estimate go on waiting.
        """
        self._before_restart = None
        if enter_pending and self._pending:
            decomposition = self.decomposition
            if decomposition is not None and not decomposition.is_estimated:
                decomposition = None
            longest = FIRST_ESTIMATE_SECONDS if decomposition is None else NEXT_INTERVALS_SECONDS
            if self._pending[0].end <= now - longest:
                self._enter_pending(decomposition)
        for interval, traces in self.traced.leaving(now, watermark):
            self._enter(interval)
            self.histogram.remember(Exemplar(trace.trace_id, trace.seconds, trace.ended) for trace in traces)

    def _enter_pending(self, decomposition: Decomposition | None) -> None:
        """Enter all pending intervals at their means, or as one with the shape that is estimated for it."""
        pending, self._pending = self._pending, []
        if decomposition is None:
            for interval in pending:
                self._enter(interval)
            return
        quantiles = self._quantiles_from_pool()
        requests = [interval.requests for interval in pending]
        bounds = quantiles.bounds if quantiles else self.histogram.bounds
        shares = decomposition.shares(len(pending), bounds).T @ requests
        shape = Estimated([float(share) / sum(requests) for share in shares])
        seconds = sum(interval.seconds for interval in pending)
        self._enter(Interval(pending[-1].end, sum(requests), seconds, source="decomposed", shape=shape))

    def _enter(self, interval: Interval) -> None:
        """Enter an interval with the shape that it has, or at its mean; after a restart, as the recent ones."""
        _, requests, seconds, units, *_ = interval
        self.source, shape = interval.source, interval.shape
        if shape is not None and interval.source != "sampled_mean":
            quantiles = self._quantiles_from_pool()
            if quantiles is not None:
                shares = shape.shares(quantiles.bounds)
                quantiles.add(interval.end, requests, shares)
                shape = Estimated([shares[place] for place in fine_bounds(self.histogram.bounds)[1]])
            self.histogram.add(requests, seconds, shape)
            return
        self.histogram.add(requests, seconds, shape or Point(seconds / requests))
        quantiles = self.quantiles
        if self.decomposition is not None or interval.source != "sampled_mean":
            quantiles = self._quantiles_from_pool()
        if quantiles is not None:
            if interval.source == "sampled_mean" and units > 1:
                quantiles.doubt(interval.end, requests)
            quantiles.add_alike(interval.end, requests, seconds / requests)

    def _quantiles_from_pool(self) -> RecentQuantiles | None:
        """Return the quantiles of this histogram, from the pool the first time; None if too many others use it."""
        if self.quantiles is None:
            self.quantiles = self.pool.get(fine_bounds(self.histogram.bounds)[0])
        return self.quantiles
