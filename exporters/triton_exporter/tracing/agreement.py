"""Decide whether traced requests can be some of those that Triton counted: any client can send spans.

Triton's counters give the exact number and total time of all requests in each interval. If the traced requests
are a random part of them, their total differs from its expectation by chance only, which is bounded by the
second moment of the request times; the counters give that moment, too, by how the intervals differ.
Bounds: https://en.wikipedia.org/wiki/Bernstein_inequalities_(probability_theory); for the lower side, that of
a sum of variables that are not negative.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

WINDOW_SECONDS = 300.0
"""Time over which traces and counters are compared, and for which traces are not used after a contradiction."""

_SLOT_SECONDS = 10.0

_CHANCE_EXPONENT = 12.0
"""True traces contradict the counters once in exp(12) comparisons, some 160,000, at most."""

_MIN_RELATIVE_DIFFERENCE = 0.1
_MIN_DIFFERENCE_SECONDS = 0.0005
"""A smaller difference of the means is left alone: traces and counters are stamped at different lines of code."""


@dataclass(slots=True)
class _Slot:
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

    _slots: deque[_Slot] = field(default_factory=deque)

    def update(self, end: float, counted: Sequence[tuple[float, float]], traced: Sequence[float]) -> bool:
        """Add intervals up to `end` and the traced requests that stand for them; returns whether they agree.

        `counted` has (requests, seconds) of each interval, `traced` the seconds of each traced request.
        """
        while self._slots and self._slots[0].start <= end - WINDOW_SECONDS:
            self._slots.popleft()
        if not self._slots or end >= self._slots[-1].start + _SLOT_SECONDS:
            self._slots.append(_Slot(end))
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
