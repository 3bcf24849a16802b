"""Classify the requests of an interval as independent, sharing a queue, or following a slow change.

Where neighbours are alike, the mean of a short interval is nearly each of its requests; where they are
independent it is not. The variance inside an interval is computed from the differences between neighbouring
intervals, as geostatistics computes a nugget from a variogram: independent times differ as much at any distance,
shared ones more with distance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from triton_exporter.distribution.estimate.density import Floats, Places, Sums

Grouping = Literal["none", "neighbours", "trend"]

TREND_SECONDS = 5.0
"""Requests this near, before and after an interval, give the level around it."""

QUANTILES = (0.95, 0.98, 0.99)
"""Slow intervals are those beyond one of these."""

CHANCE = 2e-6
"""A run of slow intervals that independent requests make less often than this shares a queue."""

_MIN_PART_OF_MEAN = 0.1
"""Times below this part of the mean are the same: near zero the logarithms of waits differ without end."""

_ALIKE = 0.15
"""A correlation of the logarithms below this changes little, whatever it comes from.

From 0.05 to 0.4, the mean error of simulated requests (test_decomposition.py) is 0.71 points.
"""


@dataclass(frozen=True, slots=True)
class Likeness:
    """Likeness of intervals to those around them, and the variance of requests inside one (seconds squared)."""

    grouping: Grouping
    variance_inside: float


def levels(ends: Floats, sums: Sums, grouping: Grouping) -> Floats:
    """Return the mean around each interval, itself left out; its own mean where there is nothing around it."""
    means = sums.means
    if grouping == "trend":
        around = _around(ends, sums)
    else:
        before = np.concatenate([means[:1], means[:-1]])
        after = np.concatenate([means[1:], means[-1:]])
        around = (before + after) / 2
        if len(means) > 1:
            around[0], around[-1] = means[1], means[-2]
    return np.where(np.isfinite(around) & (around > 0), around, means)


def slow_levels(means: Floats) -> Floats:
    """Return the means beyond which `in_slow_runs` finds intervals slow, one for each of QUANTILES."""
    return np.asarray(np.quantile(means, QUANTILES))


def in_slow_runs(means: Floats, slow: Floats) -> npt.NDArray[np.bool_]:
    """Find the intervals of short disturbances, such as a start: more slow ones in a row than chance brings.

    A second in which all requests wait would otherwise weigh more in the likeness of neighbours than the five
    minutes around it, since its times are many times as long.
    """
    inside = np.zeros(len(means), dtype=bool)
    for quantile, level in zip(QUANTILES, slow, strict=True):
        row = int(np.ceil(np.log(CHANCE) / np.log(1 - quantile)))
        if len(means) < row:
            continue
        rows = np.lib.stride_tricks.sliding_window_view(means > level, row)
        for first in np.flatnonzero(rows.all(axis=1)):
            inside[first : first + row] = True
    return inside


def change(sums: Sums) -> int:
    """Return the position at which the mean before differs most from the mean after: a CUSUM chart's peak."""
    means = sums.means
    off = sums.weight * (means - (sums.weight * means).sum() / sums.weight.sum())
    return int(np.argmax(np.abs(np.cumsum(off)))) + 1


def likeness(ends: Floats, sums: Sums, interval: float) -> Likeness:
    """Judge the intervals of one stretch; `interval` is how long each usually is, in seconds."""
    least = max(1e-9, _MIN_PART_OF_MEAN * float((sums.weight * sums.means).sum() / sums.weight.sum()))
    trend = np.log(np.maximum(levels(ends, sums, "trend"), least))
    logs = np.log(np.maximum(sums.means, least))
    first, second = _pairs(ends, interval, 1)
    off = logs - trend
    weight = np.minimum(sums.weight[first], sums.weight[second])
    grouping: Grouping = "none"
    if _correlation(off[first], off[second], weight) > _chance(weight):
        grouping = "neighbours"
    elif _correlation(logs, trend, sums.weight) > _chance(sums.weight):
        grouping = "trend"
    return Likeness(grouping, variance_inside(ends, sums, interval))


def variance_inside(ends: Floats, sums: Sums, interval: float) -> float:
    """Return the variance of requests around the level of their interval (s squared); infinite if not known.

    Of means over one interval each, with a level that wanders at a rate c: half the mean squared difference at
    distance 1 is the independent part plus 2/3 c, at distance 2 it is the independent part plus 5/3 c, and the
    level wanders by c/3 inside an interval.
    """
    means = sums.means
    edges: list[tuple[float, float]] = []
    for distance in (1, 2):
        first, second = _pairs(ends, interval, distance)
        if len(first) < 10:
            return float("inf")
        weight = sums.weight[first] + sums.weight[second]
        squares = (means[first] - means[second]) ** 2 / 2
        independent = (1 / sums.units[first] + 1 / sums.units[second]) / 2
        edges.append(
            (
                float((weight * squares).sum() / weight.sum()),
                float((weight * independent).sum() / weight.sum()),
            )
        )
    (near, near_part), (far, far_part) = edges
    divisor = near_part * 5 / 3 - far_part * 2 / 3
    wander = max(0.0, (far * near_part - near * far_part) / divisor) if divisor > 0 else 0.0
    return max(0.0, (near - wander * 2 / 3) / near_part) + wander / 3


def _around(ends: Floats, sums: Sums) -> Floats:
    requests = np.concatenate([[0.0], np.cumsum(sums.units)])
    seconds = np.concatenate([[0.0], np.cumsum(sums.seconds)])
    low = np.searchsorted(ends, ends - TREND_SECONDS, "left")
    high = np.searchsorted(ends, ends + TREND_SECONDS, "right")
    others = requests[high] - requests[low] - sums.units
    took = seconds[high] - seconds[low] - sums.seconds
    return np.asarray(np.divide(took, others, out=np.full_like(took, np.nan), where=others > 0))


def _pairs(ends: Floats, interval: float, distance: int) -> tuple[Places, Places]:
    """Return positions of intervals that end `distance` intervals apart."""
    wanted = ends + distance * interval
    second = np.searchsorted(ends, wanted - interval / 2)
    first = np.flatnonzero(second < len(ends))
    second = second[first]
    near = np.abs(ends[second] - wanted[first]) < interval / 2
    return first[near], second[near]


def _chance(weight: Floats) -> float:
    """Return the correlation that chance alone reaches: three standard errors of that many pairs."""
    pairs = float(weight.sum()) ** 2 / max(float((weight**2).sum()), 1e-9)
    return max(_ALIKE, float(3.0 / np.sqrt(max(pairs, 1.0))))


def _correlation(values: Floats, other: Floats, weight: Floats) -> float:
    total = weight.sum()
    if len(weight) < 10 or total <= 0:
        return 0.0
    values = values - (weight * values).sum() / total
    other = other - (weight * other).sum() / total
    scale = float((weight * values * values).sum() * (weight * other * other).sum())
    return float((weight * values * other).sum()) / scale**0.5 if scale > 0 else 0.0
