"""Spread the requests of each interval: each has a wait in the queue, which they share, and work of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from triton_exporter.distribution.estimate.batches import EXACT, Delay, Sizes, Waits
from triton_exporter.distribution.estimate.density import Density, Floats, Sums

SCATTER = 0.8
"""Part of their standard deviation inside an interval by which requests of several executions are spread.

Mean error of the simulated requests and waits of test_decomposition.py, 30 s of each, in points:
0.71 and 0.72; with 0.5 it is 0.74 and 0.76, with 1.2 it is 0.71 and 0.79.
"""


_NEGLIGIBLE = 1e-4
"""Requests below this part of an interval's are left out of its shares."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """Intervals in order; each array has a number for each interval."""

    ends: Floats
    """When the interval ended (Unix seconds)."""
    lasted: Floats
    """Length of the interval (seconds)."""
    sums: Sums
    """Sums of the work of its requests, or of their waits where these are what is estimated."""
    waits: Floats
    """Mean wait of its requests (seconds); 0 where the sums are of waits."""
    behind: Floats
    """Mean work of its requests (seconds) where the sums are of waits; else 0."""

    def at(self, chosen: npt.NDArray[np.bool_]) -> Intervals:
        """Return the chosen intervals."""
        return Intervals(
            ends=self.ends[chosen],
            lasted=self.lasted[chosen],
            sums=self.sums.at(chosen),
            waits=self.waits[chosen],
            behind=self.behind[chosen],
        )

    @property
    def between(self) -> float:
        """Seconds from one request to the next, on average."""
        return float(self.ends[-1] - self.ends[0]) / max(float(self.sums.weight[1:].sum()), 1.0)

    @property
    def means(self) -> Floats:
        """Mean seconds of a whole request in each interval: its wait and its work."""
        return self.sums.means + self.waits


def _reach_of_times(variance: float, means: Floats, units: Floats) -> Floats:
    """Return how far single times are from the mean of `units` if they are spread evenly, none below zero.

    One of n independent times differs from their mean by 1 - 1/n of their variance; a time that is spread evenly
    over r both ways has the variance r^2 / 3.
    """
    if not np.isfinite(variance):
        return np.full_like(means, EXACT)
    inside = variance * np.maximum(1.0 - 1.0 / units, 0.0)
    return np.asarray(np.clip(SCATTER * np.sqrt(3.0 * inside), EXACT, np.maximum(means, EXACT)))


def _waits(
    intervals: Intervals, between: float, variance: float, delay: Delay | None, whole: bool
) -> Iterator[Waits]:
    """Yield waits of the first requests of executions, which wait longest, and of those that arrived evenly after.

    Where batches wait for a `delay` to pass, the first ones wait just that. Elsewhere the longest waits are evenly
    around their mean, with this `variance`, and the others arrived `between` seconds apart on average.
    """
    sums, waits = intervals.sums, intervals.waits
    first = sums.units / sums.weight
    rest = np.ones(len(sums))
    if delay is not None:
        alone, rest, waits = delay.split(sums.units, sums.weight, waits)
        yield from alone
    arriving = np.minimum(between / first, waits * 2.0 / (1.0 + first))
    longest = waits + arriving * (1.0 - first) / 2
    reach = _reach_of_times(variance, longest + (sums.means if whole else 0.0), sums.units)
    yield Waits(True, rest, longest, reach)
    yield Waits(False, rest, longest - arriving / 2, np.maximum(arriving / 2, EXACT))


def spread(
    intervals: Intervals,
    between: float,
    variance: float,
    limits: Floats,
    density: Density | None = None,
    whole: bool = False,
    delay: Delay | None = None,
) -> Floats:
    """Return the share of each interval's requests at or below each limit, by row.

    A wait and work are added up. Without a `density` the work is the mean of the interval. With `whole`, requests
    and not only waits, have this `variance` around their mean.
    """
    sums = intervals.sums
    first = sums.units / sums.weight
    shares = np.zeros((len(sums), len(limits)))
    for wait in _waits(intervals, between, variance, delay, whole):
        part = wait.part * (first if wait.are_first else 1.0 - first)
        rows = part > 0
        if rows.any():
            added = _added(sums.at(rows), density, wait.centre[rows], wait.reach[rows], limits)
            shares[rows] += part[rows, None] * added
    return shares


def spread_by_size(
    intervals: Intervals, between: float, variance: float, limits: Floats, sizes: Sizes, delay: Delay | None
) -> Floats:
    """Return what `spread` does, where sums show how requests were divided over executions by size; else NaN."""
    sums = intervals.sums
    shares = np.zeros((len(sums), len(limits)))
    counts = sizes.counts(sums.units, sums.weight, sums.means)
    numbers = np.arange(1, counts.shape[1] + 1)
    expected = counts @ (numbers * sizes.seconds)
    known = expected > 0
    scale = sums.means * sums.weight / np.where(known, expected, 1.0)
    for wait in _waits(intervals, between, variance, delay, whole=False):
        for size, seconds in zip(numbers.tolist(), sizes.seconds.tolist(), strict=True):
            part = wait.part * counts[:, size - 1] * (1 if wait.are_first else size - 1) / sums.weight
            rows = part > _NEGLIGIBLE
            if rows.any():
                units = sums.units[rows]
                work = Sums(units, seconds * scale[rows] * units, sums.weight[rows])
                shares[rows] += part[rows, None] * _added(
                    work, None, wait.centre[rows], wait.reach[rows], limits
                )
    return np.where(known[:, None], shares, np.nan)


def _added(sums: Sums, density: Density | None, waits: Floats, reach: Floats, limits: Floats) -> Floats:
    """Return the share of waits within `reach` and work, added up, at or below each limit, by row."""
    left = limits - waits[:, None]
    if density is not None:
        return density.posterior(sums, left, np.broadcast_to(reach[:, None], left.shape))
    left = left - sums.means[:, None]
    evenly = np.clip(0.5 + left / (2 * reach[:, None]), 0.0, 1.0)
    return np.where(reach[:, None] > EXACT, evenly, left >= 0).astype(np.float64)
