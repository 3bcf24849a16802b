"""Estimate from sums alone how the requests of an interval spread.

`fit` makes an estimate of some minutes of intervals, and `shares` applies it to single intervals. The parts are in
modules of their own: `density` (independent requests), `likeness` (how alike the requests of an interval are),
`spread` (a wait and work added up), `batches` and `queue_model`; `fit_error` states the error of an estimate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from triton_exporter.distribution.estimate.batches import Delay, Sizes, delay, sizes
from triton_exporter.distribution.estimate.density import Density, Floats, Places, Sums, estimate
from triton_exporter.distribution.estimate.likeness import (
    Grouping,
    Likeness,
    change,
    in_slow_runs,
    levels,
    likeness,
    slow_levels,
    variance_inside,
)
from triton_exporter.distribution.estimate.queue_model import QueueModel, queue_model
from triton_exporter.distribution.estimate.spread import Intervals, spread, spread_by_size

MIN_INTERVALS = 30
"""Fewer intervals give no estimate."""

MIN_SINCE_CHANGE = 60
"""Number of intervals since a change of the traffic that show whether their requests are independent."""

MOSTLY_ALIKE = 0.6
"""From this weight of the mean on, the requests of an interval are spread evenly around their mean.

With 0.3, the mean error of simulated requests (test_decomposition.py) is 0.76 instead of 0.71
points; with 0.9 it is the same.
"""

GROUPS = 6
"""Groups of a similar level that intervals are divided into where neighbours are alike.

From 1 to 12, the mean error of simulated requests (test_decomposition.py, 60 s of each) is 0.60 to
0.61 points.
"""

_USUAL_QUANTILE, _USUAL_FACTOR = 0.2, 1.5
"""Usual intervals last at most this factor of this quantile of all: where fast and slow readings take turns, the
fast ones show how alike neighbours are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """An estimate from the intervals `since` then: one density for each group of them, by the level around them."""

    since: float
    """End of the first interval that the estimate is from (Unix seconds)."""
    grouping: Grouping
    """Intervals that give the level around an interval; `none` where requests are independent."""
    edges: Floats
    """Levels (seconds) that divide the groups, ascending: one less than there are groups, at most GROUPS - 1."""
    densities: tuple[Density, ...]
    """Distribution of the work of single units, for each group."""
    mean_weight: float
    """Weight of an interval's mean beside the densities, from 0 (independent requests) to 1 (all of them alike).

    It is 1 - variance inside intervals / variance that independent units would have, as the weight of the own
    mean in credibility theory (Buehlmann, Experience rating and credibility, ASTIN Bulletin 5 (1969),
    https://doi.org/10.1017/S0515036100008023).
    """
    slow: Floats
    """Mean times (seconds) beyond which an interval is slow, one for each of `likeness.QUANTILES`."""
    variance_inside: float
    """Variance of the work of single units inside an interval (seconds squared); infinite if not known."""
    wait_variance_inside: float
    """Variance of the waits of single units inside an interval (seconds squared); infinite if not known."""
    delay: Delay | None
    """Time for which batches wait to fill; None where most batches do not wait for that alone."""
    sizes: Sizes | None
    """Time of executions by their size; None where it does not depend on the size."""
    queue: QueueModel | None
    """Simulated queue, where the sums are of waits; None where they are of requests, or too little is known."""

    def group(self, ends: Floats, sums: Sums) -> Places:
        """Return the group of each interval: a position in `densities`."""
        if self.grouping == "none":
            return np.zeros(len(sums), dtype=np.int64)
        return np.searchsorted(self.edges, levels(ends, sums, self.grouping), "right")


def fit(intervals: Intervals, before: Fit | None) -> Fit:
    """Estimate from these intervals; the estimate `before` is where the search for this one starts.

    Short disturbances are left out, and so is what came before the traffic changed. The others are divided into
    groups of a similar level, each with a density of its own.
    """
    slow = slow_levels(intervals.means)
    usual = ~in_slow_runs(intervals.means, slow)
    if np.count_nonzero(usual) >= MIN_INTERVALS:
        intervals = intervals.at(usual)
    intervals, judged = _since_change(intervals)
    sums = intervals.sums
    edges, groups = _groups(intervals, judged.work.grouping)
    starts: Sequence[Density | None] = [None] * (len(edges) + 1)
    if before is not None and before.grouping == judged.work.grouping and len(before.edges) == len(edges):
        starts = before.densities
    densities, unlike = _densities(sums, groups, starts)
    mean_weight = 0.0
    if judged.work.grouping != "none" and unlike > 0:
        mean_weight = 1.0 - min(1.0, judged.work.variance_inside / unlike)
    return Fit(
        since=float(intervals.ends[0]),
        grouping=judged.work.grouping,
        edges=edges,
        densities=densities,
        mean_weight=mean_weight,
        slow=slow,
        variance_inside=judged.work.variance_inside,
        wait_variance_inside=judged.wait_variance,
        delay=delay(sums.units, sums.weight, intervals.waits),
        sizes=sizes(sums.units, sums.weight, sums.means),
        queue=_queue(intervals),
    )


class _Judged(NamedTuple):
    """How alike the work of the requests of an interval is, and the variance of their waits inside it."""

    work: Likeness
    wait_variance: float


def _since_change(intervals: Intervals) -> tuple[Intervals, _Judged]:
    """Return the intervals since the traffic changed, if their requests are independent; all of them otherwise.

    Traffic that changed once resembles a trend, though its requests were independent before and after.
    """
    judged = _judge(intervals)
    if judged.work.grouping != "none":
        since = intervals.at(np.arange(len(intervals.ends)) >= change(intervals.sums))
        if len(since.ends) >= MIN_SINCE_CHANGE:
            after = _judge(since)
            if after.work.grouping == "none":
                return since, after
    return intervals, judged


def _groups(intervals: Intervals, grouping: Grouping) -> tuple[Floats, Places]:
    """Return levels that divide the intervals into groups of as many requests each, and the group of each."""
    ends, sums = intervals.ends, intervals.sums
    if grouping == "none":
        return np.empty(0), np.zeros(len(sums), dtype=np.int64)
    around = levels(ends, sums, grouping)
    order = np.argsort(around)
    part = np.cumsum(sums.weight[order]) / sums.weight.sum()
    count = min(GROUPS, len(sums) // MIN_INTERVALS)
    edges = np.unique(around[order][np.searchsorted(part, np.arange(1, count) / count)])
    return edges, np.searchsorted(edges, around, "right")


def _densities(
    sums: Sums, groups: Places, starts: Sequence[Density | None]
) -> tuple[tuple[Density, ...], float]:
    """Return a density for each group, and the variance inside groups that independent units would have."""
    densities: list[Density] = []
    unlike = 0.0
    for group, start in enumerate(starts):
        chosen = groups == group
        members = sums.at(chosen) if chosen.any() else sums
        densities.append(estimate(members, start))
        unlike += _unit_variance(members) if chosen.any() else 0.0
    return tuple(densities), unlike / float(sums.weight.sum())


def shares(fitted: Fit | None, around: Intervals, last: int, limits: Floats) -> Floats:
    """Return the share at or below each limit of each of the last intervals, by row, given what is `around` them.

    Each interval gets the last of these estimates that is known for it:

    1. All requests are at the mean, apart from how the waits of one batch differ (`spread`). This one stays where
       there is no `Fit`, for single units, in slow runs, and where the seconds of all are within the first limit.
    2. Where neighbours are so alike that `mean_weight` is MOSTLY_ALIKE or more, requests are evenly around the
       mean, as far from it as the variance inside intervals shows (`likeness`). Decomposing assumes independent
       requests, and is 10 to 30 points off there (docs/measurements.md). Elsewhere work is decomposed, given the
       interval's sum (`density`, Buchmann and Gruebel 2003), and mixed with the mean by `mean_weight`.
    3. Where the interval's sum shows how large its executions were, each has the time of its size (`batches`):
       work that depends on the size is not independent.
    4. Waits are as in similar intervals of a simulated queue (`queue_model`): decomposed, those of random queues
       were up to 20.9 points off, simulated up to 7.1 (docs/measurements.md).
    """
    pending = around.at(np.arange(len(around.ends)) >= len(around.ends) - last)
    sums = pending.sums
    between = around.between
    delay = None if fitted is None else fitted.delay
    within = spread(pending, between, 0.0, limits, delay=delay)
    several = (sums.units > 1) & (pending.means * sums.weight > limits[0])
    if fitted is not None:
        several &= ~in_slow_runs(around.means, fitted.slow)[-last:]
    if fitted is None or not several.any():
        return within
    variance = fitted.wait_variance_inside
    if fitted.grouping == "neighbours" and fitted.mean_weight >= MOSTLY_ALIKE:
        both = fitted.variance_inside + variance
        alike = spread(pending, between, both, limits, whole=True, delay=delay)
        within = np.where(several[:, None], alike, within)
    else:
        group = fitted.group(around.ends, around.sums)[-last:]
        for number in np.unique(group[several]):
            rows = several & (group == number)
            density = fitted.densities[number]
            decomposed = spread(pending.at(rows), between, variance, limits, density, delay=delay)
            mixed = (1 - fitted.mean_weight) * decomposed + fitted.mean_weight * within[rows]
            within[rows] = _where_known(mixed, within[rows])
    some = pending.at(several)
    if fitted.sizes is not None:
        by_size = spread_by_size(some, between, variance, limits, fitted.sizes, delay)
        within[several] = _where_known(by_size, within[several])
    if fitted.queue is not None:
        queued = fitted.queue.shares(some.sums.weight, some.sums.means, some.behind, limits)
        within[several] = _where_known(queued, within[several])
    return within


def _where_known(better: Floats, otherwise: Floats) -> Floats:
    return np.where(np.isnan(better), otherwise, better)


def _queue(intervals: Intervals) -> QueueModel | None:
    """Return a model of the queue whose waits the sums are, where the work behind the waits is known."""
    if not intervals.behind.any():
        return None
    sums = intervals.sums
    work = Sums(sums.units, intervals.behind * sums.units, sums.weight)
    return queue_model(intervals.ends, intervals.lasted, work, sums.means)


def _judge(intervals: Intervals) -> _Judged:
    interval = float(np.quantile(intervals.lasted, _USUAL_QUANTILE))
    usual = intervals.at(intervals.lasted <= _USUAL_FACTOR * interval)
    variance = 0.0
    if usual.waits.any():
        waits = Sums(usual.sums.units, usual.waits * usual.sums.units, usual.sums.weight)
        variance = variance_inside(usual.ends, waits, interval)
    return _Judged(likeness(usual.ends, usual.sums, interval), variance)


def _unit_variance(sums: Sums) -> float:
    """Return the variance that independent units of these intervals would have, times the requests.

    The mean of n independent units has 1/n of their variance, so each interval counts n times the squared
    difference of its mean from the mean of all (seconds squared).
    """
    mean = float((sums.weight * sums.means).sum() / sums.weight.sum())
    return float((sums.weight * sums.units * (sums.means - mean) ** 2).sum())
