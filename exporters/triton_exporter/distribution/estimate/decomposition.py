"""One signal of one model version: its recent intervals, and how the requests of each are estimated to spread."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from triton_exporter.distribution.estimate.batches import Delay, Sizes, Waits, delay, sizes
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
from triton_exporter.distribution.estimate.stated_error import (
    StatedErrors,
    at_limits,
    bin_edges,
    missing,
    sample,
)

STRETCH_SECONDS = 300.0
"""Over how long the distribution is estimated: shorter follows changes faster, longer is more certain."""

_MOST = 2.0**53
"""Requests or seconds of one interval: no counter counts further by ones, and squares of these do not overflow."""
MAX_INTERVALS = 3000
"""Intervals kept; at 20 a second, all of them busy, that is two and a half minutes."""

LEAST_INTERVALS = 30
"""Fewer intervals give no estimate."""

LEAST_SINCE_CHANGE = 60
"""So many intervals since a change of the traffic show whether their requests are independent."""

STALE_PART = 0.5
"""An estimate is out of date when the intervals have grown by this part since."""

MOSTLY_ALIKE = 0.6
"""From this weight of the mean on, the requests of an interval lie evenly around it."""

SCATTER = 0.8
"""By which part of their standard deviation inside an interval: simulations and recordings are nearest with it."""

_NEIGHBOURS = 200
"""Intervals before some that are looked at to judge these."""

GROUPS = 6
"""Into how many groups of a similar level intervals are divided where neighbours are alike."""


@dataclass(frozen=True, slots=True)
class _Fit:
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


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Intervals in order: when they ended, how long they lasted, their sums of work, and the mean wait in each.

    Where the sums are themselves of waits, `behind` is the mean work of the same requests; else it is 0.
    """

    ends: Floats
    lasted: Floats
    sums: Sums
    waits: Floats
    behind: Floats

    def at(self, chosen: npt.NDArray[np.bool_]) -> _Stretch:
        return _Stretch(
            self.ends[chosen],
            self.lasted[chosen],
            self.sums.at(chosen),
            self.waits[chosen],
            self.behind[chosen],
        )

    @property
    def between(self) -> float:
        """Seconds from one request to the next, on average."""
        return float(self.ends[-1] - self.ends[0]) / max(float(self.sums.weight[1:].sum()), 1.0)

    @property
    def means(self) -> Floats:
        """Of whole requests."""
        return self.sums.means + self.waits


@dataclass(slots=True)
class Decomposition:
    """What the requests of an interval take is a wait in the queue that they share, and work of their own.

    The work is decomposed. The waits are around their mean; those of one batch differ by when its requests
    arrived. Not safe for threads, but for `fit`, which another thread may run beside the rest.
    """

    _ends: array[float] = field(default_factory=lambda: array("d"))
    _requests: array[float] = field(default_factory=lambda: array("d"))
    _seconds: array[float] = field(default_factory=lambda: array("d"))
    _units: array[float] = field(default_factory=lambda: array("d"))
    _lasted: array[float] = field(default_factory=lambda: array("d"))
    _waits: array[float] = field(default_factory=lambda: array("d"))
    _behind: array[float] = field(default_factory=lambda: array("d"))
    errors: Sequence[float] = ()
    """Estimated errors at the thresholds, as of the last estimate."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _fit: _Fit | None = None
    _judged: _Fit | None = None
    _unjudged: int = 0
    _stated: StatedErrors = field(default_factory=lambda: StatedErrors(STRETCH_SECONDS))
    _fitted: int = 0
    undecided: int = 0
    """Intervals so far whose requests could be on both sides of a bucket's bound."""

    def add(
        self,
        end: float,
        requests: float,
        seconds: float,
        units: float,
        lasted: float,
        lowest: float = 0.0,
        waited: float = 0.0,
        worked: float = 0.0,
    ) -> bool:
        """Take in an interval that ended at `end` and lasted so long, all in seconds.

        `units` is how many of its requests are independent: its executions, where one execution answers several.
        `waited` is the part of `seconds` that the requests waited in the queue. Where `seconds` is itself what they
        waited, `worked` is what they took besides.
        Returns whether its requests could be on both sides of a bound, of which `lowest` is the first.
        """
        requests, seconds, units = (min(amount, _MOST) for amount in (requests, seconds, units))
        units = min(max(units, 1.0), requests)
        waited = min(max(waited, 0.0), seconds)
        each = max(requests, 1.0)
        behind = min(max(worked, 0.0), _MOST) / each
        row = (end, requests, seconds - waited, units, lasted, waited / each, behind)
        with self._lock:
            if len(self._ends) >= MAX_INTERVALS or (
                self._ends and self._ends[0] < end - 1.25 * STRETCH_SECONDS
            ):
                self._forget(end - STRETCH_SECONDS)
            for column, value in zip(self._columns(), row, strict=True):
                column.append(value)
            undecided = requests > 1 and (units > 1 or waited > 0) and seconds > lowest
            self.undecided += undecided
            self._unjudged += 1
        return undecided

    def _columns(self) -> tuple[array[float], ...]:
        return (
            self._ends,
            self._requests,
            self._seconds,
            self._units,
            self._lasted,
            self._waits,
            self._behind,
        )

    def _forget(self, until: float) -> None:
        most = len(self._ends) - MAX_INTERVALS * 3 // 4
        gone = 0
        while gone < len(self._ends) and (gone < most or self._ends[gone] < until):
            gone += 1
        for column in self._columns():
            del column[:gone]

    @property
    def interval_count(self) -> int:
        """How many intervals are kept."""
        return len(self._ends)

    def fit(self) -> None:
        """Estimate again from the intervals kept."""
        with self._lock:
            intervals = self._recent(len(self._ends))
            before, undecided = self._fit, self.undecided
        if len(intervals.ends) < LEAST_INTERVALS:
            return
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
        queue = _queue(intervals)
        with self._lock:
            self._fit = _Fit(
                float(intervals.ends[0]),
                judged.grouping,
                edges,
                tuple(densities),
                mean_weight,
                slow,
                judged.variance_inside,
                wait_variance,
                delay(sums.units, sums.weight, intervals.waits),
                sizes(sums.units, sums.weight, sums.means),
                queue,
            )
            self._fitted = undecided

    @property
    def is_estimated(self) -> bool:
        """Whether there is an estimate that is not out of date: an old one is worse than the mean."""
        grown = self.undecided - self._fitted
        return self._fit is not None and grown <= STALE_PART * max(len(self._ends), LEAST_INTERVALS)

    def judge(self, bounds: Sequence[float]) -> None:
        """Set `errors`: how far the share at or below each bound may be off, in 95 of 100 cases.

        It is the mean over the estimates of the last STRETCH_SECONDS, and at most what is not guaranteed: the
        requests that can be on either side.
        """
        with self._lock:
            intervals = self._recent(len(self._ends))
            before, fit = self._judged, self._fit
            new = min(self._unjudged, len(intervals.ends))
            self._judged, self._unjudged = fit, 0
        if fit is None or not len(bounds):
            return
        limits = np.asarray(bounds)
        if new:
            latest = intervals.at(np.arange(len(intervals.ends)) >= len(intervals.ends) - new - _NEIGHBOURS)
            requests = intervals.sums.weight[-new:]
            revised = requests @ (_shares(before, latest, new, limits) - _shares(fit, latest, new, limits))
            total = float(requests.sum())
            error = _error(fit, intervals, limits)
            self._stated.add(float(intervals.ends[-1]), total, error, np.abs(revised) / total)
        each, requests = intervals.means[:, None], intervals.sums.weight[:, None]
        seconds = each * requests
        slowest = np.minimum(requests, np.maximum(np.ceil(seconds / limits - 1e-9) - 1, 0.0))
        either = np.where(requests > 1, slowest - (seconds > requests * limits), 0.0).sum(axis=0)
        self.errors = np.minimum(self._stated.mean(), either / requests.sum() + 0.0005).tolist()

    def shares(self, last: int, bounds: Sequence[float]) -> Floats:
        """Return for each of the last intervals added the share of its requests at or below each bound."""
        with self._lock:
            around = self._recent(min(len(self._ends), last + _NEIGHBOURS))
            fit = self._fit
        return _shares(fit, around, min(last, len(around.ends)), np.asarray(bounds))

    def _recent(self, count: int) -> _Stretch:
        """Copies of the last intervals, as sums over independent units."""
        start = len(self._ends) - count
        ends, requests, seconds, units, lasted, waits, behind = (
            np.array(column[start:]) for column in self._columns()
        )
        sums = Sums(units, seconds * units / np.maximum(requests, 1.0), requests)
        return _Stretch(ends, lasted, sums, waits, behind)


def _error(fit: _Fit, intervals: _Stretch, limits: Floats) -> Floats:
    """How far the share within each limit may be off: three parts, and a rest.

    What intervals do not show; the difference between estimate and mean, where they may be mixed wrongly; and the
    requests whose side depends on how waits are spread, all of which may be on the other one.
    """
    sums = intervals.sums
    total = float(sums.weight.sum())
    used = (intervals.ends >= fit.since) & ~in_slow_runs(intervals.means, fit.slow)
    known = intervals.at(used) if used.any() else intervals
    unseen, estimated = _unseen(fit, known, intervals.between, limits)
    each = intervals.means[:, None]
    means = sums.weight @ (each <= limits) / total
    doubt = np.abs(estimated - means) * 0.5 * fit.mean_weight * (1 - fit.mean_weight)
    spread = _spread(intervals, intervals.between, fit.wait_variance_inside, limits, delay=fit.delay)
    waits_doubt = sums.weight @ np.abs(spread - (each <= limits)) / total
    return np.asarray(0.003 + np.hypot(np.hypot((1 - fit.mean_weight) * unseen, doubt), waits_doubt))


def _unseen(fit: _Fit, known: _Stretch, between: float, limits: Floats) -> tuple[Floats, Floats]:
    """How far the share within each limit may be off by what sums do not show, and that share as estimated."""
    places = bin_edges(limits)
    some = known.at(np.isin(np.arange(len(known.ends)), sample(len(known.ends))))
    given_sums, expected = np.empty((2, len(some.ends), len(places)))
    group = fit.group(some.ends, some.sums)
    for number, density in enumerate(fit.densities):
        rows = group == number
        if rows.any():
            members = some.at(rows)
            given_sums[rows] = _spread(
                members, between, fit.wait_variance_inside, places, density, delay=fit.delay
            )
            expected[rows] = density.below(places - members.waits[:, None])
    rows = ~np.isnan(given_sums[:, 0])
    if not rows.any():
        return np.ones(len(limits)), np.full(len(limits), 0.5)
    sums = some.sums.at(rows)
    scale = float(known.sums.weight.sum() / sums.weight.sum())
    unseen = missing(given_sums[rows], expected[rows], sums.units, sums.weight, scale)
    return unseen, np.asarray(sums.weight @ at_limits(given_sums[rows]) / sums.weight.sum())


def _shares(fit: _Fit | None, around: _Stretch, last: int, limits: Floats) -> Floats:
    """The share at or below each limit of each of the last intervals, by row, given what is `around` them."""
    pending = around.at(np.arange(len(around.ends)) >= len(around.ends) - last)
    sums = pending.sums
    between = around.between
    delay = None if fit is None else fit.delay
    shares = _spread(pending, between, 0.0, limits, delay=delay)
    several = (sums.units > 1) & (pending.means * sums.weight > limits[0])
    if fit is not None:
        several &= ~in_slow_runs(around.means, fit.slow)[-last:]
    if fit is None or not several.any():
        return shares
    if fit.grouping == "neighbours" and fit.mean_weight >= MOSTLY_ALIKE:
        variance = fit.variance_inside + fit.wait_variance_inside
        alike = _spread(pending, between, variance, limits, whole=True, delay=delay)
        shares = np.where(several[:, None], alike, shares)
    else:
        group = fit.group(around.ends, around.sums)[-last:]
        for number in np.unique(group[several]):
            rows = several & (group == number)
            shares_within = _spread(
                pending.at(rows),
                between,
                fit.wait_variance_inside,
                limits,
                fit.densities[number],
                delay=delay,
            )
            known = ~np.isnan(shares_within[:, :1])
            mixed = (1 - fit.mean_weight) * shares_within + fit.mean_weight * shares[rows]
            shares[rows] = np.where(known, mixed, shares[rows])
    shares[several] = _by_size(pending.at(several), between, limits, fit, shares[several])
    shares[several] = _queued(fit.queue, pending.at(several), limits, shares[several])
    return shares


def _queue(stretch: _Stretch) -> QueueModel | None:
    """Return a model of the queue whose waits the sums are, where the work behind the waits is known."""
    if not stretch.behind.any():
        return None
    sums = stretch.sums
    work = Sums(sums.units, stretch.behind * sums.units, sums.weight)
    return queue_model(stretch.ends, stretch.lasted, work, sums.means)


def _queued(queue: QueueModel | None, stretch: _Stretch, limits: Floats, shares: Floats) -> Floats:
    """`shares` of waits, replaced where the model of the queue knows similar intervals."""
    if queue is None:
        return shares
    queued = queue.shares(stretch.sums.weight, stretch.sums.means, stretch.behind, limits)
    return np.where(np.isnan(queued), shares, queued)


def _judged(stretch: _Stretch) -> tuple[Likeness, float]:
    """How alike the work of an interval's requests is, and the variance of their waits inside it."""
    # Where fast and slow readings take turns, the fast ones show how alike neighbours are.
    interval = float(np.quantile(stretch.lasted, 0.2))
    usual = stretch.at(stretch.lasted <= 1.5 * interval)
    variance = 0.0
    if usual.waits.any():
        waits = Sums(usual.sums.units, usual.waits * usual.sums.units, usual.sums.weight)
        variance = variance_inside(usual.ends, waits, interval)
    return likeness(usual.ends, usual.sums, interval), variance


def _reach(variance: float, means: Floats, units: Floats) -> Floats:
    """How far from the mean of several the single ones lie, if evenly: none below zero."""
    if not np.isfinite(variance):
        return np.full_like(means, 1e-9)
    inside = variance * np.maximum(1.0 - 1.0 / units, 0.0)
    return np.asarray(np.clip(SCATTER * np.sqrt(3.0 * inside), 1e-9, np.maximum(means, 1e-9)))


def _waits(
    stretch: _Stretch, between: float, variance: float, delay: Delay | None, whole: bool
) -> Iterator[Waits]:
    """Of the requests of one execution, the first to arrive waits longest, and the others arrived evenly after it.

    Where batches wait for a `delay` to pass, the first ones wait just that. Elsewhere the longest waits are evenly
    around their mean as far as `variance` says, and the others arrived `between` seconds apart on average.
    """
    sums, waits = stretch.sums, stretch.waits
    first = sums.units / sums.weight
    rest = np.ones(len(sums))
    if delay is not None:
        alone, rest, waits = delay.split(sums.units, sums.weight, waits)
        yield from alone
    arriving = np.minimum(between / first, waits * 2.0 / (1.0 + first))
    longest = waits + arriving * (1.0 - first) / 2
    reach = _reach(variance, longest + (sums.means if whole else 0.0), sums.units)
    yield Waits(True, rest, longest, reach)
    yield Waits(False, rest, longest - arriving / 2, np.maximum(arriving / 2, 1e-9))


def _spread(
    stretch: _Stretch,
    between: float,
    variance: float,
    limits: Floats,
    density: Density | None = None,
    whole: bool = False,
    delay: Delay | None = None,
) -> Floats:
    """The share of each interval's requests at or below each limit, by row.

    A wait and work are added up. Without a `density` the work is the mean of the interval. With `whole`, requests
    and not only waits are as far from their mean as `variance` says.
    """
    sums = stretch.sums
    first = sums.units / sums.weight
    spread = np.zeros((len(sums), len(limits)))
    for wait in _waits(stretch, between, variance, delay, whole):
        part = wait.part * (first if wait.are_first else 1.0 - first)
        rows = part > 0
        if rows.any():
            added = _added(sums.at(rows), density, wait.centre[rows], wait.reach[rows], limits)
            spread[rows] += part[rows, None] * added
    return spread


def _by_size(stretch: _Stretch, between: float, limits: Floats, fit: _Fit, shares: Floats) -> Floats:
    """`shares`, replaced where the sums show how requests were divided over executions of different sizes."""
    if fit.sizes is None:
        return shares
    sums = stretch.sums
    shifted = np.zeros_like(shares)
    counts = fit.sizes.counts(sums.units, sums.weight, sums.means)
    sizes = np.arange(1, counts.shape[1] + 1)
    expected = counts @ (sizes * fit.sizes.seconds)
    known = expected > 0
    scale = sums.means * sums.weight / np.where(known, expected, 1.0)
    for wait in _waits(stretch, between, fit.wait_variance_inside, fit.delay, whole=False):
        for size, seconds in zip(sizes.tolist(), fit.sizes.seconds.tolist(), strict=True):
            part = wait.part * counts[:, size - 1] * (1 if wait.are_first else size - 1) / sums.weight
            rows = part > 1e-4
            if rows.any():
                units = sums.units[rows]
                work = Sums(units, seconds * scale[rows] * units, sums.weight[rows])
                shifted[rows] += part[rows, None] * _added(
                    work, None, wait.centre[rows], wait.reach[rows], limits
                )
    return np.where(known[:, None], shifted, shares)


def _added(sums: Sums, density: Density | None, waits: Floats, reach: Floats, limits: Floats) -> Floats:
    """The share of waits within `reach` and work, added up, at or below each limit, by row."""
    left = limits - waits[:, None]
    if density is not None:
        return density.posterior(sums, left, np.broadcast_to(reach[:, None], left.shape))
    left = left - sums.means[:, None]
    evenly = np.clip(0.5 + left / (2 * reach[:, None]), 0.0, 1.0)
    return np.where(reach[:, None] > 1e-9, evenly, left >= 0).astype(np.float64)


def _variance(sums: Sums) -> float:
    """The variance that independent units of these intervals would have, times the requests."""
    mean = float((sums.weight * sums.means).sum() / sums.weight.sum())
    return float((sums.weight * sums.units * (sums.means - mean) ** 2).sum())
