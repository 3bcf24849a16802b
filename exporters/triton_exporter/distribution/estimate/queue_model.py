"""Distribution of the waits of one interval: as in simulated intervals of a queue with the same work and traffic.

A slow request makes those behind it wait and waited little itself, so the waits of an interval are neither
independent nor all near their mean. How they spread follows from the work of single requests, which is estimated,
from how often requests arrive, and from how many are served at once, which is chosen so that simulated waits are
like the observed ones.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from triton_exporter.distribution.estimate.density import Density, Floats, Places, Sums, estimate

SIMULATED = 6000
"""Requests simulated."""

SERVERS = (1, 2, 3, 4, 6, 8, 12, 16)
"""Numbers of servers of the simulated queue; with more, waits are near their mean or there are none."""

SIMILAR = 12
"""Simulated intervals that stand for an observed one: the most similar ones.

With 3 or 48, the mean error of simulated waits (test_decomposition.py) is 0.72 or 0.70 points.
"""

_SCALES = (0.1, 0.15, 0.3)
"""Differences of the logarithms of requests, mean wait and mean work that count alike."""

_MAX_DISTANCE = 6.0
"""Differences added up, beyond which an interval is not similar.

Mean error of simulated waits (test_decomposition.py): 0.72 points; with 2 it is 0.76, with 20
it is 0.96.
"""

_POINTS = 24
"""Quantiles by which the waits of a simulated interval are stored."""

_NEGLIGIBLE = 0.02
"""Differences below this part of the mean of all waits do not count."""

_MIN_SECONDS = 1e-6


@dataclass(frozen=True, slots=True)
class QueueModel:
    """Simulated intervals: their features, and quantiles of their waits as parts of the mean wait."""

    servers: int
    features: Floats
    waits: Floats
    negligible: float

    def shares(self, requests: Floats, waits: Floats, work: Floats, limits: Floats) -> Floats:
        """Return the share of each interval's requests that waited at most each limit, by row.

        `waits` and `work` are the means of each interval. A row is NaN where no simulated interval is similar.
        """
        estimated = np.full((len(requests), len(limits)), np.nan)
        features = _features(requests, waits, work, self.negligible)
        for row, (feature, mean) in enumerate(zip(features, waits.tolist(), strict=True)):
            apart = np.abs(self.features - feature).sum(axis=1)
            near = np.argpartition(apart, SIMILAR)[:SIMILAR]
            near = near[apart[near] <= _MAX_DISTANCE]
            if len(near):
                spread = np.sort(self.waits[near].ravel()) * mean
                estimated[row] = np.searchsorted(spread, limits, "right") / len(spread)
        return estimated


def queue_model(ends: Floats, lasted: Floats, work: Sums, waits: Floats) -> QueueModel | None:
    """Simulate the queue whose intervals these are; None where nothing waits, or too little is known.

    `work` sums up what the requests of each interval took without their waits; `waits` are mean waits (seconds).
    """
    seconds = float(ends[-1] - ends[0])
    mean_wait = float(work.weight @ waits / work.weight.sum())
    mean_work = float(work.weight @ work.means / work.weight.sum())
    if seconds <= 0 or mean_wait < _MIN_SECONDS or mean_work < _MIN_SECONDS:
        return None
    rng = np.random.default_rng(0)
    rate = float(work.weight[1:].sum()) / seconds
    arrivals = np.cumsum(rng.exponential(1 / rate, SIMULATED))
    took = _drawn(rng, estimate(work), SIMULATED)
    took *= mean_work / took.mean()
    interval = float(np.median(lasted))
    order = np.argsort(waits)
    observed, below = waits[order], np.cumsum(work.weight[order]) / work.weight.sum()
    best: tuple[float, int, _Intervals] | None = None
    for servers in SERVERS:
        if servers * 1.05 < rate * mean_work:
            continue
        intervals = _simulated(arrivals, took, servers, interval)
        apart = intervals.apart(observed, below)
        if best is None or apart < best[0]:
            best = apart, servers, intervals
        elif apart > 2 * best[0]:
            break
    if best is None:
        return None
    _, servers, intervals = best
    if len(intervals.requests) <= SIMILAR:
        return None
    negligible = _NEGLIGIBLE * mean_wait
    features = _features(intervals.requests, intervals.waits, intervals.work, negligible)
    return QueueModel(servers, features, intervals.quantiles(), negligible)


@dataclass(frozen=True, slots=True)
class _Intervals:
    """Simulated intervals in which several requests ended: means, and each request's wait from `first` on."""

    requests: Floats
    waits: Floats
    work: Floats
    each: Floats
    first: Places

    def apart(self, observed: Floats, below: Floats) -> float:
        """Return how far the distributions of mean waits are apart: the statistic of Kolmogorov and Smirnov."""
        order = np.argsort(self.waits)
        here = np.cumsum(self.requests[order]) / self.requests.sum()
        waiting = observed > _MIN_SECONDS
        simulated = np.interp(observed[waiting], self.waits[order], here)
        return float(np.abs(simulated - below[waiting]).max(initial=0.0))

    def quantiles(self) -> Floats:
        place = (np.arange(_POINTS) + 0.5) / _POINTS * self.requests[:, None]
        sorted_each = self.each[self.first[:, None] + place.astype(np.int64)]
        return np.asarray(sorted_each / np.maximum(self.waits, 1e-12)[:, None], dtype=np.float32)


def _features(requests: Floats, waits: Floats, work: Floats, negligible: float) -> Floats:
    stacked = np.stack([requests, waits + negligible, work + _MIN_SECONDS], axis=1)
    return np.asarray(np.log(stacked) / _SCALES)


def _drawn(rng: np.random.Generator, density: Density, count: int) -> Floats:
    below = np.cumsum(density.shares)
    place = np.searchsorted(below, rng.random(count) * below[-1])
    return np.asarray(np.maximum((place + rng.uniform(-0.5, 0.5, count)) * density.step, _MIN_SECONDS))


def _simulated(arrivals: Floats, took: Floats, servers: int, interval: float) -> _Intervals:
    """Simulate a queue in which who comes first is served first."""
    if servers == 1:
        before = np.cumsum(took) - took
        starts = np.maximum.accumulate(arrivals - before) + before
    else:
        free = [0.0] * servers
        starts = np.empty(len(arrivals))
        for number, (arrival, needs) in enumerate(zip(arrivals.tolist(), took.tolist(), strict=True)):
            starts[number] = start = max(arrival, free[0])
            heapq.heapreplace(free, start + needs)
    waits = starts - arrivals
    place = np.floor((starts + took) / interval).astype(np.int64)
    order = np.lexsort((waits, place))
    place, waits, took = place[order], waits[order], took[order]
    first = np.flatnonzero(np.diff(place, prepend=-1))
    requests = np.diff(np.append(first, len(place))).astype(np.float64)
    return _Intervals(
        requests,
        np.add.reduceat(waits, first) / requests,
        np.add.reduceat(took, first) / requests,
        waits,
        first,
    )
