"""Quantiles of the last minutes, read off bounds that are closer than those of the histogram."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import add
from weakref import WeakSet

from triton_exporter.catalogue.state import QUANTILES

STRETCH_SECONDS = 120.0
"""Length of the last period whose requests a quantile is of; the period may be longer by up to one slot."""

SLOT_SECONDS = 30.0

MIN_BEYOND = 2.0
"""Number of requests beyond a quantile from which it is shown; with fewer, chance alone decides it."""

MAX_DOUBTED = 0.2
"""Part of the requests that may be entered at the mean of several: more, and no quantile is shown."""

MAX_QUANTILES = 200
"""Histograms with quantiles at once, some 10 kB each: both of all decomposed model versions, and as many more."""

_FINEST, _COARSEST, _STEP = 0.0005, 120.0, 1.08


@lru_cache(maxsize=64)
def fine_bounds(bounds: tuple[float, ...]) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Return ascending bounds (seconds), each at most 8 % above the last, and where `bounds` are among them."""
    steps = accumulate(range(200), lambda bound, _: bound * _STEP, initial=_FINEST)
    whole = tuple(sorted({*bounds, *(bound for bound in steps if bound < _COARSEST)}))
    return whole, tuple(bisect_left(whole, bound) for bound in bounds)


class RecentQuantiles:
    """Counts by fine bucket over a sliding stretch, whatever the source of the shapes."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self._total = self._nothing()
        self._slots: dict[int, array[float]] = {}
        self._doubted: dict[int, float] = {}
        self._oldest = 0

    def _nothing(self) -> array[float]:
        return array("d", bytes(8 * (len(self.bounds) + 1)))

    def add(self, end: float, requests: float, shares: Sequence[float]) -> None:
        """Count `requests` that ended at `end` (Unix seconds), with the share of them at or below each bound."""
        slot = self._slot(end)
        for place, (below, share) in enumerate(pairwise((0.0, *shares, 1.0))):
            if share > below:
                slot[place] += requests * (share - below)
                self._total[place] += requests * (share - below)

    def add_alike(self, end: float, requests: float, seconds: float) -> None:
        """Count `requests` that took `seconds` each."""
        place = bisect_left(self.bounds, seconds)
        self._slot(end)[place] += requests
        self._total[place] += requests

    def doubt(self, end: float, requests: float) -> None:
        """Note that `requests` are entered at their mean, and may have differed."""
        number = int(end // SLOT_SECONDS)
        self._doubted[number] = self._doubted.get(number, 0.0) + requests

    def _slot(self, end: float) -> array[float]:
        number = int(end // SLOT_SECONDS)
        slot = self._slots.get(number)
        if slot is None:
            self.forget(end)
            slot = self._slots[number] = self._nothing()
        return slot

    def forget(self, now: float) -> bool:
        """Leave out what is older than the stretch; returns whether anything remains."""
        oldest = int((now - STRETCH_SECONDS) // SLOT_SECONDS)
        if oldest > self._oldest:
            self._oldest = oldest
            self._slots = {number: slot for number, slot in self._slots.items() if number >= oldest}
            self._doubted = {number: count for number, count in self._doubted.items() if number >= oldest}
            self._total = self._nothing()
            for slot in self._slots.values():
                self._total = array("d", map(add, self._total, slot))
        return bool(self._slots)

    def values(self) -> Iterable[tuple[float, float]]:
        """Return each level for which there are enough requests, with its seconds."""
        below = list(accumulate(self._total))
        count = below[-1]
        if sum(self._doubted.values()) > MAX_DOUBTED * count:
            return
        for level in QUANTILES:
            if count * (1 - level) >= MIN_BEYOND - 1e-9:
                yield level, self._value_at(below, level * count)

    def _value_at(self, below: Sequence[float], rank: float) -> float:
        place = bisect_left(below, rank - 1e-9)
        if place >= len(self.bounds):
            return self.bounds[-1]
        low, before = (self.bounds[place - 1], below[place - 1]) if place else (0.0, 0.0)
        return low + (self.bounds[place] - low) * (rank - before) / (below[place] - before)


class QuantilePool:
    """Gives quantiles to the first histograms that ask, as long as fewer than `max_used` others use some."""

    def __init__(self, max_used: int = MAX_QUANTILES) -> None:
        self._max_used = max_used
        self._used: WeakSet[RecentQuantiles] = WeakSet()

    def get(self, bounds: tuple[float, ...]) -> RecentQuantiles | None:
        """Return new ones over these bounds, or None."""
        if len(self._used) >= self._max_used:
            return None
        given = RecentQuantiles(bounds)
        self._used.add(given)
        return given
