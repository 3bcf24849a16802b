"""State how far an estimate from sums may be off: by what sums do not show, and by what it assumes."""

from __future__ import annotations

import numpy as np

from triton_exporter.distribution.estimate.density import Floats
from triton_exporter.distribution.estimate.fit import Fit
from triton_exporter.distribution.estimate.likeness import in_slow_runs
from triton_exporter.distribution.estimate.spread import Intervals, spread
from triton_exporter.distribution.estimate.stated_error import at_limits, bin_edges, missing, sample

MIN_ERROR = 0.003
"""Part of each estimated error (a share) that depends on nothing.

Of 588 shares of random traffic (`covered` in test_decomposition.py, seeds 7000 to 7014, all kinds)
the stated error contains the truth in 94 of 100; without this part in 92, and of waits in 89 instead of 98.
"""

_MIXED_DOUBT = 0.5
"""Part of the difference between estimate and mean that may be wrong where both are mixed.

It is multiplied by w (1 - w), where w is the weight of the mean: so at most an eighth of the difference, and
nothing where only the estimate or only the mean is used.
"""


def estimated_error(fitted: Fit, intervals: Intervals, limits: Floats) -> Floats:
    """Return how far the share within each limit may be off: the root of three squared errors, and a constant.

    The errors are: what the intervals do not show (`stated_error`, Louis 1982); the difference between estimate
    and mean, where these may be mixed wrongly; and the requests whose side depends on how waits spread, all of
    which may be on the other side.
    """
    sums = intervals.sums
    total = float(sums.weight.sum())
    used = (intervals.ends >= fitted.since) & ~in_slow_runs(intervals.means, fitted.slow)
    known = intervals.at(used) if used.any() else intervals
    unseen, estimated = _unseen(fitted, known, intervals.between, limits)
    each = intervals.means[:, None]
    means = sums.weight @ (each <= limits) / total
    doubt = np.abs(estimated - means) * _MIXED_DOUBT * fitted.mean_weight * (1 - fitted.mean_weight)
    spaced = spread(intervals, intervals.between, fitted.wait_variance_inside, limits, delay=fitted.delay)
    waits_doubt = sums.weight @ np.abs(spaced - (each <= limits)) / total
    return np.asarray(MIN_ERROR + np.hypot(np.hypot((1 - fitted.mean_weight) * unseen, doubt), waits_doubt))


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
