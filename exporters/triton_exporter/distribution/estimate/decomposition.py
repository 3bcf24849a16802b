"""One signal of one model version: its recent intervals, and how the requests of each are estimated to spread."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from triton_exporter.distribution.estimate.density import Density, Floats, Places, Sums, estimate
from triton_exporter.distribution.estimate.likeness import (
    Grouping,
    Likeness,
    in_slow_runs,
    levels,
    likeness,
    slow_levels,
)

STRETCH_SECONDS = 300.0
"""Over how long the distribution is estimated: shorter follows changes faster, longer is more certain."""

MAX_INTERVALS = 3000
"""Intervals kept; at 20 a second, all of them busy, that is two and a half minutes."""

LEAST_INTERVALS = 30
"""Fewer intervals give no estimate."""

STALE_PART = 0.5
"""An estimate is out of date when the intervals have grown by this part since."""

GROUPS = 6
"""Into how many groups of a similar level intervals are divided where neighbours are alike."""


@dataclass(frozen=True, slots=True)
class _Fit:
    """An estimate: one density for each group of intervals, by the level around them."""

    grouping: Grouping
    edges: Floats
    densities: tuple[Density, ...]
    mean_weight: float
    slow: Floats

    def group(self, ends: Floats, sums: Sums) -> Places:
        if self.grouping == "none":
            return np.zeros(len(sums), dtype=np.int64)
        return np.searchsorted(self.edges, levels(ends, sums, self.grouping), "right")


@dataclass(slots=True)
class Decomposition:
    """Not safe for threads, but for `fit`, which another thread may run beside the rest."""

    _ends: array[float] = field(default_factory=lambda: array("d"))
    _requests: array[float] = field(default_factory=lambda: array("d"))
    _seconds: array[float] = field(default_factory=lambda: array("d"))
    _units: array[float] = field(default_factory=lambda: array("d"))
    _lasted: array[float] = field(default_factory=lambda: array("d"))
    errors: Sequence[float] = ()
    """Estimated errors at the thresholds, as of the last estimate."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _fit: _Fit | None = None
    _fitted: int = 0
    undecided: int = 0
    """Intervals so far whose requests could be on both sides of a bucket's bound."""

    def add(
        self, end: float, requests: float, seconds: float, units: float, lasted: float, lowest: float = 0.0
    ) -> bool:
        """Take in an interval that ended at `end` and lasted so long, all in seconds.

        `units` is how many of its requests are independent: its executions, where one execution answers several.
        Returns whether its requests could be on both sides of a bound, of which `lowest` is the first.
        """
        units = min(max(units, 1.0), requests)
        with self._lock:
            if len(self._ends) >= MAX_INTERVALS or (
                self._ends and self._ends[0] < end - 1.25 * STRETCH_SECONDS
            ):
                self._forget(end - STRETCH_SECONDS)
            for column, value in zip(self._columns(), (end, requests, seconds, units, lasted), strict=True):
                column.append(value)
            undecided = units > 1 and seconds > lowest
            self.undecided += undecided
        return undecided

    def _columns(self) -> tuple[array[float], ...]:
        return self._ends, self._requests, self._seconds, self._units, self._lasted

    def _forget(self, until: float) -> None:
        most = len(self._ends) - MAX_INTERVALS * 3 // 4
        gone = 0
        while gone < len(self._ends) and (gone < most or self._ends[gone] < until):
            gone += 1
        for column in self._columns():
            del column[:gone]

    @property
    def kept(self) -> int:
        """How many intervals are kept."""
        return len(self._ends)

    def fit(self) -> None:
        """Estimate again from the intervals kept."""
        with self._lock:
            ends, sums = self._recent(len(self._ends))
            lasted = np.array(self._lasted)
            before, undecided = self._fit, self.undecided
        if len(sums) < LEAST_INTERVALS:
            return
        slow = slow_levels(sums.means)
        usual = ~in_slow_runs(sums.means, slow)
        if np.count_nonzero(usual) >= LEAST_INTERVALS:
            ends, sums, lasted = ends[usual], sums.at(usual), lasted[usual]
        judged = _judged(ends, sums, lasted)
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
        with self._lock:
            self._fit = _Fit(judged.grouping, edges, tuple(densities), mean_weight, slow)
            self._fitted = undecided

    @property
    def is_estimated(self) -> bool:
        """Whether there is an estimate that is not out of date: an old one is worse than the mean."""
        grown = self.undecided - self._fitted
        return self._fit is not None and grown <= STALE_PART * max(len(self._ends), LEAST_INTERVALS)

    def judge(self, bounds: Sequence[float]) -> None:
        """Set `errors`: how far the share at or below each bound may be off, in 95 of 100 cases.

        Three parts, calibrated on simulated traffic: chance, as if each interval counted as one request; the
        difference between estimate and mean, where they may be mixed wrongly; and a rest. It is at most what is
        not guaranteed: the requests that can be on either side.
        """
        with self._lock:
            ends, sums = self._recent(len(self._ends))
            fit = self._fit
        if fit is None:
            return
        limits = np.asarray(bounds)
        total = float(sums.weight.sum())
        groups = fit.group(ends, sums)
        estimated = np.zeros(len(limits))
        for number, density in enumerate(fit.densities):
            estimated += sums.weight[groups == number].sum() / total * density.below(limits)
        means = sums.weight @ (sums.means[:, None] <= limits) / total
        mixed = fit.mean_weight * means + (1 - fit.mean_weight) * estimated
        crowd = min(float(sums.weight.mean()), 20.0)
        chance = 1.7 * np.sqrt(np.maximum(mixed * (1 - mixed), 5e-4) * crowd / min(total, 3000.0))
        doubt = np.abs(estimated - means) * max(0.12, 0.5 * fit.mean_weight * (1 - fit.mean_weight))
        requests, seconds = sums.weight[:, None], (sums.means * sums.weight)[:, None]
        slowest = np.minimum(requests, np.ceil(seconds / limits - 1e-9) - 1)
        either = np.where(requests > 1, slowest - (seconds > requests * limits), 0.0).sum(axis=0) / total
        self.errors = np.minimum(0.003 + np.hypot(chance, doubt), either + 0.0005).tolist()

    def shares(self, last: int, bounds: Sequence[float]) -> Floats:
        """Return for each of the last intervals added the share of its requests at or below each bound."""
        with self._lock:
            ends, sums = self._recent(min(len(self._ends), last + 200))
            fit = self._fit
        last = min(last, len(sums))
        limits = np.asarray(bounds)
        pending = sums.at(np.arange(len(sums)) >= len(sums) - last)
        means = (pending.means[:, None] <= limits).astype(np.float64)
        several = (pending.units > 1) & (pending.means * pending.weight > limits[0])
        if fit is not None:
            several &= ~in_slow_runs(sums.means, fit.slow)[-last:]
        if fit is None or not several.any():
            return means
        group = fit.group(ends, sums)[-last:]
        shares = means.copy()
        for number in np.unique(group[several]):
            rows = np.flatnonzero(several & (group == number))
            chosen = np.zeros(last, dtype=bool)
            chosen[rows] = True
            found = fit.densities[number].posterior(pending.at(chosen), limits)
            known = ~np.isnan(found[:, :1])
            mixed = (1 - fit.mean_weight) * found + fit.mean_weight * means[rows]
            shares[rows] = np.where(known, mixed, means[rows])
        return shares

    def _recent(self, count: int) -> tuple[Floats, Sums]:
        """Copies of the last intervals: when they ended, and their sums over independent units."""
        start = len(self._ends) - count
        ends, requests, seconds, units = (
            np.array(column[start:]) for column in (self._ends, self._requests, self._seconds, self._units)
        )
        return ends, Sums(units, seconds * units / np.maximum(requests, 1.0), requests)


def _judged(ends: Floats, sums: Sums, lasted: Floats) -> Likeness:
    # Where fast and slow readings take turns, the fast ones show how alike neighbours are.
    interval = float(np.quantile(lasted, 0.2))
    usual = lasted <= 1.5 * interval
    return likeness(ends[usual], sums.at(usual), interval)


def _variance(sums: Sums) -> float:
    """The variance that independent units of these intervals would have, times the requests."""
    mean = float((sums.weight * sums.means).sum() / sums.weight.sum())
    return float((sums.weight * sums.units * (sums.means - mean) ** 2).sum())
