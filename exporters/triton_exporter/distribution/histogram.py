"""How requests spread over time, and what the page shows of it: shapes, the histogram, its guarantee, quantiles."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from math import ceil, floor
from operator import add, mul
from typing import NamedTuple
from weakref import WeakSet

from triton_exporter.catalogue import Metric
from triton_exporter.catalogue.state import QUANTILES, REQUESTS_WITHIN, DistributionSource
from triton_exporter.distribution.buckets import Signal, le
from triton_exporter.family import Exemplar, Sample, TextSamples, series
from triton_exporter.snapshot import ModelVersion

BOUNDS = ("least", "most")
"""Closed set of values of the label `bound`."""

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


# Shapes: the share of an interval's requests at or below each of some ascending bounds (seconds), from 0 to 1.


@dataclass(frozen=True, slots=True)
class Point:
    """All requests took `seconds`: the shape when only the mean is known."""

    seconds: float

    def shares(self, bounds: Sequence[float]) -> list[float]:
        return [float(self.seconds <= bound) for bound in bounds]


@dataclass(frozen=True, slots=True)
class Estimated:
    """Shares at the bounds of one histogram, computed beforehand."""

    values: Sequence[float]

    def shares(self, bounds: Sequence[float]) -> list[float]:
        return list(self.values)


@dataclass(frozen=True, slots=True)
class Observed:
    """Single requests, in seconds and ascending, and how many requests each stands for."""

    seconds: Sequence[float]
    weights: Sequence[float]

    def shares(self, bounds: Sequence[float]) -> list[float]:
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
        shares = []
        for bound in bounds:
            above = bisect_right(self.bounds, bound)
            low, count = (self.bounds[above - 1], self.cumulative[above - 1]) if above else (0.0, 0.0)
            if above < len(self.bounds) - 1:
                high, high_count = self.bounds[above], self.cumulative[above]
                count += (high_count - count) * (bound - low) / (high - low)
            shares.append(min(1.0, count / self.cumulative[-1]))
        return shares


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
        points = [(0.0, 0.0), *self.points, (1.0, self.points[-1][1])]
        masses = [after - before for (before, _), (after, _) in pairwise(points)]
        ends = [seconds for _, seconds in points]
        lowest, highest = sum(map(mul, masses, ends)), sum(map(mul, masses, ends[1:]))
        part_at_higher_end = 1.0
        if highest > lowest:
            part_at_higher_end = min(1.0, max(0.0, (self.mean - lowest) / (highest - lowest)))
        steps = [mass * (1.0 - part_at_higher_end) for mass in masses] + [0.0]
        for position, mass in enumerate(masses, 1):
            steps[position] += mass * part_at_higher_end
        cumulative = [0.0, *(min(1.0, share) for share in accumulate(steps))]
        return [cumulative[bisect_right(ends, bound)] for bound in bounds]


Shape = Point | Estimated | Observed | Binned | Curve


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


class Histogram:
    """Counts by bucket, with sum and count. Bounds are finite, ascending, in seconds, and inclusive.

    Shares make fractions of requests, but only whole requests are shown. What a bucket does not show yet is shown
    as soon as the buckets above it grow as much, so that no bucket ever grows by more than one above it. If each
    bucket were rounded on its own, rates could fall as the bound rises, and histogram_quantile() would be wrong.
    The last bucket always shows the true count.
    """

    def __init__(self, metric: Metric, version: ModelVersion, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.count = 0.0
        self.sum = 0.0
        self._counts = [0] * (len(self.bounds) + 1)
        self._unshown = [0.0] * len(self._counts)  # requests at or below each bound
        self._exemplars: dict[int, Exemplar] = {}
        self._metric = metric
        self._version = version
        whole = [name.replace("%", "%%") for name in self._series_names()]
        template = "".join([f"{name} %d\n" for name in whole[:-1]]) + f"{whole[-1]} %a\n"
        self._template = template.encode("utf-8", "replace")
        self._lines = b""

    def _series_names(self) -> list[str]:
        """Return the series' names, made again at each call: the template contains them already."""
        ends = [*(le(bound) for bound in self.bounds), "+Inf"]
        buckets = [series(self._metric, *self._version, suffix="_bucket", le=end) for end in ends]
        totals = [series(self._metric, *self._version, suffix=suffix) for suffix in ("_count", "_sum")]
        return buckets + totals

    def add(self, requests: float, seconds: float, shape: Shape) -> None:
        """Count `requests` that took `seconds` in all and have this `shape`."""
        self._lines = b""
        self.count += requests
        self.sum += seconds
        if isinstance(shape, Point) and not requests % 1:
            self._counts[bisect_left(self.bounds, shape.seconds)] += int(requests)
            return
        shares = (*shape.shares(self.bounds), 1.0)
        unshown = [rest + requests * share for rest, share in zip(self._unshown, shares, strict=True)]
        # Each bucket shows its whole requests, at most as many as the buckets above it. The margin keeps a whole
        # number that float arithmetic left just below it.
        whole = [max(0, floor(rest + 1e-6)) for rest in unshown]
        shown = [*accumulate(reversed(whole), min)][::-1]
        self._unshown = [rest - more for rest, more in zip(unshown, shown, strict=True)]
        for position, (below, more) in enumerate(pairwise((0, *shown))):
            self._counts[position] += more - below

    def stored(self, pending: Iterable[Interval]) -> tuple[list[int], float]:
        """Return counts by bucket and the sum once `pending` intervals have been added at their means."""
        counts, total = self._counts.copy(), self.sum
        for interval in pending:
            counts[bisect_left(self.bounds, interval.seconds / interval.requests)] += int(interval.requests)
            total += interval.seconds
        return counts, total

    def restore(self, counts: Sequence[int], total: float) -> None:
        """Continue from stored counts by bucket and their sum."""
        self._counts, self.count, self.sum = list(counts), float(sum(counts)), total
        self._lines = b""

    def remember(self, exemplars: Iterable[Exemplar]) -> None:
        """Keep the last exemplar of each bucket."""
        for exemplar in exemplars:
            self._exemplars[bisect_left(self.bounds, exemplar.value)] = exemplar

    def cumulative(self) -> list[float]:
        """Return how many observations were at or below each bound, and in the end all of them."""
        return [float(count) for count in accumulate(self._counts)]

    @property
    def has_exemplars(self) -> bool:
        return bool(self._exemplars)

    def samples(self) -> list[Sample]:
        """Return the series of the histogram as they stand."""
        values = (*self.cumulative(), self.count, self.sum)
        return [
            Sample(name, value, self._exemplars.get(position))
            for position, (name, value) in enumerate(zip(self._series_names(), values, strict=True))
        ]

    def lines(self) -> bytes:
        """Return the series in the text format, written again only after something was added."""
        if not self._lines:
            self._lines = self._template % (*accumulate(self._counts), self.count, self.sum)
        return self._lines


class Guarantee:
    """Counts the requests that are certainly, and those that are possibly, at or below each threshold (seconds)."""

    has_exemplars = False

    def __init__(self, version: ModelVersion, signal: Signal, thresholds: Sequence[float]) -> None:
        self._thresholds = tuple(thresholds)
        self._least = [0.0] * len(self._thresholds)
        self._most = [0.0] * len(self._thresholds)
        self._names = tuple(
            series(REQUESTS_WITHIN, *version, signal, le(threshold), bound)
            for bound in BOUNDS
            for threshold in self._thresholds
        )
        self._lines = b""

    def add(self, requests: float, seconds: float) -> None:
        """Count `requests` that took `seconds` in all."""
        self._lines = b""
        for place, threshold in enumerate(self._thresholds):
            least, most = within(threshold, requests, seconds)
            self._least[place] += least
            self._most[place] += most

    def stored(self) -> tuple[tuple[float, float, float], ...]:
        """Return each threshold with the fewest and the most requests within it."""
        return tuple(zip(self._thresholds, self._least, self._most, strict=True))

    def restore(self, rows: Iterable[tuple[float, float, float]]) -> None:
        """Continue from stored rows; a threshold without one begins at 0."""
        known = {threshold: (least, most) for threshold, least, most in rows}
        for place, threshold in enumerate(self._thresholds):
            self._least[place], self._most[place] = known.get(threshold, (0.0, 0.0))
        self._lines = b""

    def samples(self) -> list[Sample]:
        """Return the series as they stand."""
        return list(map(Sample, self._names, (*self._least, *self._most)))

    def lines(self) -> bytes:
        """Return the series in the text format, written again only after something was added."""
        if self._names and not self._lines:
            lines = "".join(f"{name} {value:.0f}\n" for name, value, _ in self.samples())
            self._lines = lines.encode("utf-8", "replace")
        return self._lines


def within(threshold: float, requests: float, seconds: float) -> tuple[float, float]:
    """Return the fewest and the most of `requests` that took `seconds` in all that can be at or below `threshold`.

    k requests above T take more than k T together, and at least one is above T if the mean is.
    """
    fewest = min(requests, 1.0) if seconds > threshold * requests else 0.0
    slowest = min(requests, max(0, ceil(seconds / threshold - 1e-9) - 1)) if requests > 1 else fewest
    return requests - slowest, requests - fewest


class JoinedSamples(TextSamples):
    """Samples of many histograms as those of one family."""

    def __init__(self, parts: Sequence[Histogram | Guarantee]) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[Sample]:
        for part in self._parts:
            yield from part.samples()

    @property
    def has_exemplars(self) -> bool:
        return any(part.has_exemplars for part in self._parts)

    def pieces(self) -> Iterable[bytes]:
        return (b"".join([part.lines() for part in self._parts]),)


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
            if count * (1 - level) < MIN_BEYOND - 1e-9:
                continue
            rank = level * count
            place = bisect_left(below, rank - 1e-9)
            if place >= len(self.bounds):
                yield level, self.bounds[-1]
            else:
                low, before = (self.bounds[place - 1], below[place - 1]) if place else (0.0, 0.0)
                width = self.bounds[place] - low
                yield level, low + width * (rank - before) / (below[place] - before)


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
