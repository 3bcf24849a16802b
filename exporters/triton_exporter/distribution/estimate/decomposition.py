"""One signal of one model version: its recent intervals, and how the requests of each are estimated to spread."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from triton_exporter.distribution.estimate.density import Floats, Sums
from triton_exporter.distribution.estimate.fit import MIN_INTERVALS, Fit, fit, shares
from triton_exporter.distribution.estimate.fit_error import estimated_error
from triton_exporter.distribution.estimate.spread import Intervals
from triton_exporter.distribution.estimate.stated_error import StatedErrors
from triton_exporter.distribution.histogram import Interval

STRETCH_SECONDS = 300.0
"""Over how long the distribution is estimated: shorter follows changes faster, longer is more certain."""

_MAX_COUNT = 2.0**53
"""Requests or seconds of one interval: no counter counts further by ones, and squares of these do not overflow."""

MAX_INTERVALS = 3000
"""Intervals stored; at 20 a second, all of them busy, that is two and a half minutes."""

_WIDTH = 7
"""Numbers stored of each interval, one after the other: the columns that `_recent` names."""

STALE_PART = 0.5
"""An estimate is out of date when the intervals have grown by this part since."""

_NEIGHBOURS = 200
"""Intervals before the last ones that are read with them, to know the level around each."""

_MAX_CERTAIN_ERROR = 0.0005
"""Largest stated error (a share) where it is certain on which side of the bound each request is."""


@dataclass(slots=True)
class Decomposition:
    """Estimates how the requests of each interval spread, from the sums of many intervals.

    The time of a request is a wait in the queue, which the requests of an interval share, and work of its own. The
    work is decomposed. The waits are around their mean; those of one batch differ by when its requests arrived.
    Only one thread may use it, but another one may call `fit` and `update_errors` meanwhile.
    """

    _rows: array[float] = field(default_factory=lambda: array("d"))
    """The intervals, oldest first: _WIDTH numbers of each."""
    errors: Sequence[float] = ()
    """Stated errors (shares) at the thresholds, as of the last estimate."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Taken to change `_rows`, `_fit` or a count, and to read several of them."""
    _fit: Fit | None = None
    _fit_of_errors: Fit | None = None
    """The estimate as of the last `update_errors`: intervals since then were entered with it."""
    _since_errors: int = 0
    """Intervals added since the last `update_errors`."""
    _stated: StatedErrors = field(default_factory=lambda: StatedErrors(STRETCH_SECONDS))
    _fitted: int = 0
    """The value of `undecided` at the last `fit`."""
    undecided: int = 0
    """Intervals so far whose requests could be on both sides of a bucket's bound."""

    def add(self, interval: Interval, lowest: float = 0.0) -> bool:
        """Take in an interval.

        Returns whether its requests could be on both sides of a bound, of which `lowest` is the first.
        """
        end = interval.end
        requests, seconds = min(interval.requests, _MAX_COUNT), min(interval.seconds, _MAX_COUNT)
        units = min(max(interval.units, 1.0), requests)
        waited = min(max(interval.waited, 0.0), seconds)
        each = max(requests, 1.0)
        behind = min(max(interval.worked, 0.0), _MAX_COUNT) / each
        row = (end, requests, seconds - waited, units, interval.lasted, waited / each, behind)
        with self._lock:
            if self.interval_count >= MAX_INTERVALS or (
                self._rows and self._rows[0] < end - 1.25 * STRETCH_SECONDS
            ):
                self._forget(end - STRETCH_SECONDS)
            self._rows.extend(row)
            undecided = requests > 1 and (units > 1 or waited > 0) and seconds > lowest
            self.undecided += undecided
            self._since_errors += 1
        return undecided

    def _forget(self, until: float) -> None:
        """Delete the intervals that ended before `until`, and the oldest beyond three quarters of MAX_INTERVALS.

        Many are deleted at once, because each deletion moves all that stay.
        """
        count = self.interval_count
        most = count - MAX_INTERVALS * 3 // 4
        gone = 0
        while gone < count and (gone < most or self._rows[gone * _WIDTH] < until):
            gone += 1
        del self._rows[: gone * _WIDTH]

    @property
    def interval_count(self) -> int:
        """Number of intervals that are stored."""
        return len(self._rows) // _WIDTH

    @property
    def has_enough(self) -> bool:
        """True if there are as many intervals as an estimate needs."""
        return self.interval_count >= MIN_INTERVALS

    def fit(self) -> None:
        """Estimate again from the stored intervals."""
        with self._lock:
            intervals = self._recent(self.interval_count)
            before, undecided = self._fit, self.undecided
        if len(intervals.ends) < MIN_INTERVALS:
            return
        fitted = fit(intervals, before)
        with self._lock:
            self._fit = fitted
            self._fitted = undecided

    @property
    def is_estimated(self) -> bool:
        """True if there is an estimate that is not out of date: an old one is worse than the mean."""
        grown = self.undecided - self._fitted
        return self._fit is not None and grown <= STALE_PART * max(self.interval_count, MIN_INTERVALS)

    def update_errors(self, bounds: Sequence[float]) -> None:
        """Set `errors`: how far the share at or below each bound may be off, in 95 of 100 cases.

        It is the mean over the estimates of the last STRETCH_SECONDS, and at most what is not guaranteed: the
        requests that can be on either side.
        """
        with self._lock:
            intervals = self._recent(self.interval_count)
            before, fitted = self._fit_of_errors, self._fit
            new = min(self._since_errors, len(intervals.ends))
            self._fit_of_errors, self._since_errors = fitted, 0
        if fitted is None or not len(bounds):
            return
        limits = np.asarray(bounds)
        if new:
            latest = intervals.at(np.arange(len(intervals.ends)) >= len(intervals.ends) - new - _NEIGHBOURS)
            requests = intervals.sums.weight[-new:]
            revised = requests @ (shares(before, latest, new, limits) - shares(fitted, latest, new, limits))
            total = float(requests.sum())
            error = estimated_error(fitted, intervals, limits)
            self._stated.add(float(intervals.ends[-1]), total, error, np.abs(revised) / total)
        each, requests = intervals.means[:, None], intervals.sums.weight[:, None]
        seconds = each * requests
        slowest = np.minimum(requests, np.maximum(np.ceil(seconds / limits - 1e-9) - 1, 0.0))
        either = np.where(requests > 1, slowest - (seconds > requests * limits), 0.0).sum(axis=0)
        self.errors = np.minimum(self._stated.mean(), either / requests.sum() + _MAX_CERTAIN_ERROR).tolist()

    def shares(self, last: int, bounds: Sequence[float]) -> Floats:
        """Return for each of the last intervals added the share of its requests at or below each bound."""
        with self._lock:
            around = self._recent(min(self.interval_count, last + _NEIGHBOURS))
            fitted = self._fit
        return shares(fitted, around, min(last, len(around.ends)), np.asarray(bounds))

    def _recent(self, count: int) -> Intervals:
        """Return copies of the last intervals, as sums over independent units."""
        start = (self.interval_count - count) * _WIDTH
        rows = np.array(self._rows[start:]).reshape(-1, _WIDTH)
        ends, requests, seconds, units, lasted, waits, behind = rows.T.copy()
        sums = Sums(units, seconds * units / np.maximum(requests, 1.0), requests)
        return Intervals(ends=ends, lasted=lasted, sums=sums, waits=waits, behind=behind)
