"""Distribution of the requests of an interval: the share of them that took no longer than a bound.

Each shape answers for ascending bounds in seconds with shares from 0 to 1 that never fall. `RecentGain` has
that of the requests of the last minutes, which serves for requests that nothing measured.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import mul, sub
from typing import NamedTuple, Protocol

from triton_exporter.catalogue.state import DistributionSource

RECENT_SECONDS = 120.0
"""`RecentGain` has the gain of the last one to two times this long."""


class Shape(Protocol):
    """The share of requests at or below each bound."""

    def shares(self, bounds: Sequence[float]) -> list[float]:
        """Return shares for ascending bounds in seconds."""


@dataclass(frozen=True, slots=True)
class Point:
    """All requests took `seconds`: the shape when only the mean is known."""

    seconds: float

    def shares(self, bounds: Sequence[float]) -> list[float]:
        """Return 0 below the mean, 1 from it on."""
        return [float(self.seconds <= bound) for bound in bounds]


@dataclass(frozen=True, slots=True)
class Estimated:
    """Shares at the bounds of one histogram, computed beforehand."""

    values: Sequence[float]

    def shares(self, bounds: Sequence[float]) -> list[float]:
        """Return the shares that were computed beforehand, whatever the bounds."""
        return list(self.values)


@dataclass(frozen=True, slots=True)
class Observed:
    """Single requests, in seconds and ascending, and how many requests each stands for."""

    seconds: Sequence[float]
    weights: Sequence[float]

    def shares(self, bounds: Sequence[float]) -> list[float]:
        """Return the share of the weights at or below each bound."""
        below = [0.0, *accumulate(self.weights)]
        return [below[bisect_right(self.seconds, bound)] / below[-1] for bound in bounds]


@dataclass(frozen=True, slots=True)
class Binned:
    """Cumulative counts of another histogram at its own ascending bounds (seconds), the last one infinite.

    Exact at its own bounds; in between, requests are taken as evenly spread over their bin, as Prometheus'
    histogram_quantile does. Those beyond the last finite bound stay beyond every bound.
    """

    bounds: Sequence[float]
    cumulative: Sequence[float]

    def shares(self, bounds: Sequence[float]) -> list[float]:
        """Read the counts off at each bound."""
        total = self.cumulative[-1]
        return [min(1.0, self._at(bound) / total) for bound in bounds]

    def _at(self, bound: float) -> float:
        above = bisect_right(self.bounds, bound)
        low, low_count = (self.bounds[above - 1], self.cumulative[above - 1]) if above else (0.0, 0.0)
        if above >= len(self.bounds) - 1:
            return low_count
        high, high_count = self.bounds[above], self.cumulative[above]
        return low_count + (high_count - low_count) * (bound - low) / (high - low)


@dataclass(frozen=True, slots=True)
class Curve:
    """A quantile curve: (quantile, seconds) ascending in both, and the mean of the same requests, seconds.

    Between two quantiles the curve does not show how many requests are near the one or near the other; the
    mean does, on the whole: the mass between is split so that the curve has that mean. Requests above the
    highest quantile are taken to be at it.
    """

    points: Sequence[tuple[float, float]]
    mean: float

    def shares(self, bounds: Sequence[float]) -> list[float]:
        """Read the quantiles off at each bound."""
        points = [(0.0, 0.0), *self.points, (1.0, self.points[-1][1])]
        masses = [after - before for (before, _), (after, _) in pairwise(points)]
        ends = [seconds for _, seconds in points]
        high = self._high(masses, ends)
        steps = [mass * (1.0 - high) for mass in masses] + [0.0]
        for position, mass in enumerate(masses, 1):
            steps[position] += mass * high
        cumulative = [0.0, *accumulate(steps)]
        return [min(1.0, cumulative[bisect_right(ends, bound)]) for bound in bounds]

    def _high(self, masses: Sequence[float], ends: Sequence[float]) -> float:
        """Return which part of the mass between two quantiles stands at the higher one."""
        lowest = sum(map(mul, masses, ends))
        highest = sum(map(mul, masses, ends[1:]))
        return min(1.0, max(0.0, (self.mean - lowest) / (highest - lowest))) if highest > lowest else 1.0


class Trace(NamedTuple):
    """One traced request: when it ended (Unix seconds), what it took (seconds), which trace it was.

    `weight` is how many requests it stands for: the trace rate when it began.
    """

    ended: float
    seconds: float
    trace_id: str
    weight: float = 1.0


class Interval(NamedTuple):
    """Requests counted up to `end` (Unix seconds), their seconds, and the best shape without traces.

    `units` of them are independent of each other: the executions, where each answers several requests. The
    interval `lasted` so many seconds. `waited` of the requests' seconds were in the queue, where the seconds are
    of whole requests; where these are waits, the requests `worked` besides.
    """

    end: float
    requests: float
    seconds: float
    units: float = 1.0
    lasted: float = 1.0
    waited: float = 0.0
    worked: float = 0.0
    source: DistributionSource = "sampled_mean"
    shape: Shape | None = None


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
