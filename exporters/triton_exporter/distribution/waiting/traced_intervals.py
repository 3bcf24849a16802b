"""Intervals that wait for the traces of their requests, and traces that wait for their interval."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from triton_exporter.distribution.shape import Interval, Observed, Trace
from triton_exporter.tracing.agreement import Agreement

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
    _waiting: deque[Interval] = field(default_factory=deque)
    _traces: list[Trace] = field(default_factory=list)
    _group: list[Interval] = field(default_factory=list)
    _group_traces: list[Trace] = field(default_factory=list)
    _agreement: Agreement = field(default_factory=Agreement)

    def __iter__(self) -> Iterator[Interval]:
        yield from self._waiting
        yield from self._group

    def add(self, interval: Interval) -> None:
        """Let an interval wait for its traces."""
        self._waiting.append(interval)

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
        while self._waiting and self._waiting[0].end <= ended:
            self._group_next()
            if self._is_represented():
                yield from self._take_group()
        longest = TRACE_WAIT_SECONDS + (JOINED_SECONDS if self._group_traces else TRACE_GAP_SECONDS)
        if self._group and self._group[0].end <= now - longest:
            yield from self._take_group()
        if not self._waiting:
            # Traces of requests that no counter counts (failed ones) must not pile up.
            self._traces_until(now - TRACE_WAIT_SECONDS - TRACE_GAP_SECONDS)

    def _group_next(self) -> None:
        """Move the first interval, whose traces have come, into the group."""
        interval = self._waiting.popleft()
        self.closed = interval.end
        self._group.append(interval)
        self._group_traces += self._traces_until(interval.end)

    def _is_represented(self) -> bool:
        """Return whether the traces of the group are enough: all of its requests, or those of some seconds."""
        is_long = self._group[-1].end - self._group[0].end >= JOINED_SECONDS
        traces = self._group_traces
        return bool(traces) and (is_long or all(trace.weight == 1 for trace in traces))

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
