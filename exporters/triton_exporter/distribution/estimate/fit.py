"""Estimate from sums alone how the requests of an interval spread, and how far the estimate may be off."""

from __future__ import annotations

from dataclasses import dataclass

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
from triton_exporter.distribution.estimate.stated_error import at_limits, bin_edges, missing, sample

LEAST_INTERVALS = 30
"""Fewer intervals give no estimate."""

LEAST_SINCE_CHANGE = 60
"""So many intervals since a change of the traffic show whether their requests are independent."""

MOSTLY_ALIKE = 0.6
"""From this weight of the mean on, the requests of an interval are spread evenly around their mean.

With 0.3, the mean error of simulated requests (tests/exporters/test_decomposition.py) is 0.76 instead of 0.71
points; with 0.9 it is the same.
"""

GROUPS = 6
"""Groups of a similar level that intervals are divided into where neighbours are alike."""


@dataclass(frozen=True, slots=True)
class Fit:
    """An estimate from the intervals `since` then: one density for each group of them, by the level around them."""

    since: float
    grouping: Grouping
    edges: Floats
    densities: tuple[Density, ...]
    mean_weight: float
    slow: Floats
    variance_inside: float
    wait_variance_inside: float
    delay: Delay | None
    sizes: Sizes | None
    queue: QueueModel | None

    def group(self, ends: Floats, sums: Sums) -> Places:
        if self.grouping == "none":
            return np.zeros(len(sums), dtype=np.int64)
        return np.searchsorted(self.edges, levels(ends, sums, self.grouping), "right")


def fit(intervals: Intervals, before: Fit | None) -> Fit:
    """Estimate from these intervals; the estimate `before` is where the search for this one starts."""
    slow = slow_levels(intervals.means)
    usual = ~in_slow_runs(intervals.means, slow)
    if np.count_nonzero(usual) >= LEAST_INTERVALS:
        intervals = intervals.at(usual)
    judged, wait_variance = _judged(intervals)
    if judged.grouping != "none":
        # Traffic that changed once looks like a trend, though its requests were independent before and after.
        since = intervals.at(np.arange(len(intervals.ends)) >= change(intervals.sums))
        if len(since.ends) >= LEAST_SINCE_CHANGE:
            after, wait_variance_after = _judged(since)
            if after.grouping == "none":
                intervals, judged, wait_variance = since, after, wait_variance_after
    ends, sums = intervals.ends, intervals.sums
    edges = np.empty(0)
    groups = np.zeros(len(sums), dtype=np.int64)
    if judged.grouping != "none":
        around = levels(ends, sums, judged.grouping)
        order = np.argsort(around)
        part = np.cumsum(sums.weight[order]) / sums.weight.sum()
        count = min(GROUPS, len(sums) // LEAST_INTERVALS)
        edges = np.unique(around[order][np.searchsorted(part, np.arange(1, count) / count)])
        groups = np.searchsorted(edges, around, "right")
    same = before is not None and before.grouping == judged.grouping and len(before.edges) == len(edges)
    densities: list[Density] = []
    unlike = 0.0
    for group in range(len(edges) + 1):
        chosen = groups == group
        members = sums.at(chosen) if chosen.any() else sums
        densities.append(estimate(members, before.densities[group] if same and before else None))
        unlike += _variance(members) if chosen.any() else 0.0
    unlike /= float(sums.weight.sum())
    mean_weight = 0.0
    if judged.grouping != "none" and unlike > 0:
        mean_weight = 1.0 - min(1.0, judged.variance_inside / unlike)
    return Fit(
        float(ends[0]),
        judged.grouping,
        edges,
        tuple(densities),
        mean_weight,
        slow,
        judged.variance_inside,
        wait_variance,
        delay(sums.units, sums.weight, intervals.waits),
        sizes(sums.units, sums.weight, sums.means),
        _queue(intervals),
    )


def shares(fitted: Fit | None, around: Intervals, last: int, limits: Floats) -> Floats:
    """The share at or below each limit of each of the last intervals, by row, given what is `around` them."""
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


def estimated_error(fitted: Fit, intervals: Intervals, limits: Floats) -> Floats:
    """Return how far the share within each limit may be off: three errors, and a constant.

    The errors are: what the intervals do not show; the difference between estimate and mean, where these may be
    mixed wrongly; and the requests whose side depends on how waits spread, all of which may be on the other side.
    """
    sums = intervals.sums
    total = float(sums.weight.sum())
    used = (intervals.ends >= fitted.since) & ~in_slow_runs(intervals.means, fitted.slow)
    known = intervals.at(used) if used.any() else intervals
    unseen, estimated = _unseen(fitted, known, intervals.between, limits)
    each = intervals.means[:, None]
    means = sums.weight @ (each <= limits) / total
    doubt = np.abs(estimated - means) * 0.5 * fitted.mean_weight * (1 - fitted.mean_weight)
    spaced = spread(intervals, intervals.between, fitted.wait_variance_inside, limits, delay=fitted.delay)
    waits_doubt = sums.weight @ np.abs(spaced - (each <= limits)) / total
    return np.asarray(0.003 + np.hypot(np.hypot((1 - fitted.mean_weight) * unseen, doubt), waits_doubt))


def _unseen(fitted: Fit, known: Intervals, between: float, limits: Floats) -> tuple[Floats, Floats]:
    """Return how far the share within each limit may be off by what sums do not show, and the estimated share."""
    places = bin_edges(limits)
    some = known.at(np.isin(np.arange(len(known.ends)), sample(len(known.ends))))
    given_sums, expected = np.empty((2, len(some.ends), len(places)))
    group = fitted.group(some.ends, some.sums)
    variance = fitted.wait_variance_inside
    for number, density in enumerate(fitted.densities):
        rows = group == number
        if rows.any():
            members = some.at(rows)
            given_sums[rows] = spread(members, between, variance, places, density, delay=fitted.delay)
            expected[rows] = density.below(places - members.waits[:, None])
    rows = ~np.isnan(given_sums[:, 0])
    if not rows.any():
        return np.ones(len(limits)), np.full(len(limits), 0.5)
    sums = some.sums.at(rows)
    scale = float(known.sums.weight.sum() / sums.weight.sum())
    unseen = missing(given_sums[rows], expected[rows], sums.units, sums.weight, scale)
    return unseen, np.asarray(sums.weight @ at_limits(given_sums[rows]) / sums.weight.sum())


def _where_known(better: Floats, shares: Floats) -> Floats:
    return np.where(np.isnan(better), shares, better)


def _queue(intervals: Intervals) -> QueueModel | None:
    """Return a model of the queue whose waits the sums are, where the work behind the waits is known."""
    if not intervals.behind.any():
        return None
    sums = intervals.sums
    work = Sums(sums.units, intervals.behind * sums.units, sums.weight)
    return queue_model(intervals.ends, intervals.lasted, work, sums.means)


def _judged(intervals: Intervals) -> tuple[Likeness, float]:
    """Return how alike the work of an interval's requests is, and the variance of their waits inside it."""
    # Where fast and slow readings take turns, the fast ones show how alike neighbours are.
    interval = float(np.quantile(intervals.lasted, 0.2))
    usual = intervals.at(intervals.lasted <= 1.5 * interval)
    variance = 0.0
    if usual.waits.any():
        waits = Sums(usual.sums.units, usual.waits * usual.sums.units, usual.sums.weight)
        variance = variance_inside(usual.ends, waits, interval)
    return likeness(usual.ends, usual.sums, interval), variance


def _variance(sums: Sums) -> float:
    """The variance that independent units of these intervals would have, times the requests."""
    mean = float((sums.weight * sums.means).sum() / sums.weight.sum())
    return float((sums.weight * sums.units * (sums.means - mean) ** 2).sum())
