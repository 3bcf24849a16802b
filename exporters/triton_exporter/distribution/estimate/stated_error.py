"""Compute how far the estimated share of requests within a threshold may be off, in 95 of 100 cases.

Intervals show less than each of their requests would. What is missing is computed as for any incomplete data: the
information about the share that the intervals contain, against what single requests would contain (Louis, Finding
the observed information matrix when using the EM algorithm, https://doi.org/10.1111/j.2517-6161.1982.tb01203.x).
The share is one of several unknowns: how many requests are in each of some bins around the threshold, which become
wider with the distance, so that requests that could be moved over the threshold unnoticed are found at any scale.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from triton_exporter.distribution.estimate.density import Floats

DISTANCES = 0.02 * 2.0 ** np.arange(9)
"""Distances of the bins' edges from the threshold, as parts of it."""

UNKNOWN = 1.4
"""Standard deviation of the logarithm of a bin's requests, as far as the intervals do not show it: a factor of four
either way. Half as large again, the stated error was a fifth larger and right no more often (docs/measurements.md)."""

SURE = 1.96
"""Standard deviations that contain 95 of 100 cases."""

_BELOW = int(np.count_nonzero(DISTANCES < 1))
_EDGES = _BELOW + 1 + len(DISTANCES)

MAX_SAMPLED_INTERVALS = 400
"""Intervals of which the information is computed; it grows with their number."""


def bin_edges(limits: Floats) -> Floats:
    """Return the edges of the bins around all limits, those of one limit after those of another."""
    below = 1 - DISTANCES[:_BELOW][::-1]
    return np.asarray(np.outer(limits, np.concatenate([below, [1.0], 1 + DISTANCES])).ravel())


def missing(given_sums: Floats, expected: Floats, units: Floats, weight: Floats, scale: float) -> Floats:
    """Return for each limit how far the share may be off, in 95 of 100 cases.

    `given_sums` and `expected` have a row for each interval with the shares at or below all `bin_edges`: those of
    its requests, given their sum, and those of any requests. It stands for `scale` intervals.
    """
    errors = []
    for start in range(0, given_sums.shape[1], _EDGES):
        bins, usual = (
            np.diff(below[:, start : start + _EDGES], axis=1, prepend=0.0, append=1.0)
            for below in (given_sums, expected)
        )
        parts = weight @ bins / weight.sum()
        within = np.arange(len(parts)) <= _BELOW
        share = float(parts[within].sum())
        toward = parts * (within - share)
        scores = units[:, None] * (bins - usual)
        scores -= scores.mean(axis=0)
        of_single = units.sum() * (np.diag(parts) - np.outer(parts, parts))
        left = _share_variance(scale * scores.T @ scores, toward) - _share_variance(scale * of_single, toward)
        errors.append(_farthest(share, SURE * max(left, 0.0) ** 0.5))
    return np.array(errors)


def _share_variance(information: Floats, toward: Floats) -> float:
    """Return the variance of a share with the gradient `toward` over the bins, which vary by UNKNOWN at most."""
    values, vectors = np.linalg.eigh(information)
    return float(((toward @ vectors) ** 2 / (np.maximum(values, 0.0) + UNKNOWN**-2)).sum())


def _farthest(share: float, error: float) -> float:
    """Return how far a share can be off either way; `error` is turned into one of the logarithm of its odds."""
    other = 1 - share
    if min(share, other) <= 0:
        return 0.0
    factor = float(np.exp(min(error / (share * other), 50.0)))
    return max(share - share / (share + other * factor), share * factor / (share * factor + other) - share)


def at_limits(below: Floats) -> Floats:
    """Return the columns of `bin_edges` that are the limits."""
    return below[:, _BELOW::_EDGES]


def sample(count: int) -> npt.NDArray[np.int64]:
    """Return positions of at most MAX_SAMPLED_INTERVALS of `count` intervals, evenly."""
    return np.unique(np.linspace(0, count - 1, min(count, MAX_SAMPLED_INTERVALS)).astype(np.int64))


@dataclass(slots=True)
class StatedErrors:
    """The errors of successive estimates, each weighted by the requests that were entered before it.

    These requests were entered with an earlier estimate. Its error is at most its difference from the later
    estimate and the error of the later one, added up.
    """

    seconds: float
    """Length of the past whose errors are weighted."""
    _rows: deque[tuple[float, float, Floats]] = field(default_factory=deque)
    """End (Unix seconds) of the intervals before each estimate, their requests, and the error at each limit."""

    def add(self, end: float, requests: float, error: Floats, revised: Floats) -> None:
        """Take in an estimate: its error, and by what part of the `requests` it differs from the one before."""
        self._rows.append((end, requests, error + revised))
        while self._rows[0][0] < end - self.seconds or len(self._rows[0][2]) != len(error):
            self._rows.popleft()

    def mean(self) -> Floats:
        """Return the mean error at each limit, weighted by requests."""
        requests = np.array([count for _, count, _ in self._rows])
        rows = np.array([error for _, _, error in self._rows])
        return np.asarray(requests @ rows / requests.sum())
