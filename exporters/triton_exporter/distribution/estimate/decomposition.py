"""One signal of one model version: its recent intervals, and how the requests of each are estimated to spread."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from triton_exporter.distribution.estimate.density import Floats, Sums
from triton_exporter.distribution.estimate.fit import LEAST_INTERVALS, Fit, estimated_error, fit, shares
from triton_exporter.distribution.estimate.spread import Intervals
from triton_exporter.distribution.estimate.stated_error import StatedErrors

STRETCH_SECONDS = 300.0
"""Over how long the distribution is estimated: shorter follows changes faster, longer is more certain."""

_MOST = 2.0**53
"""Requests or seconds of one interval: no counter counts further by ones, and squares of these do not overflow."""

MAX_INTERVALS = 3000
"""Intervals kept; at 20 a second, all of them busy, that is two and a half minutes."""

STALE_PART = 0.5
"""An estimate is out of date when the intervals have grown by this part since."""

_NEIGHBOURS = 200
"""Intervals before some that are looked at to judge these."""


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
    _fit: Fit | None = None
    _judged: Fit | None = None
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
        fitted = fit(intervals, before)
        with self._lock:
            self._fit = fitted
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
            before, fitted = self._judged, self._fit
            new = min(self._unjudged, len(intervals.ends))
            self._judged, self._unjudged = fitted, 0
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
        self.errors = np.minimum(self._stated.mean(), either / requests.sum() + 0.0005).tolist()

    def shares(self, last: int, bounds: Sequence[float]) -> Floats:
        """Return for each of the last intervals added the share of its requests at or below each bound."""
        with self._lock:
            around = self._recent(min(len(self._ends), last + _NEIGHBOURS))
            fitted = self._fit
        return shares(fitted, around, min(last, len(around.ends)), np.asarray(bounds))

    def _recent(self, count: int) -> Intervals:
        """Copies of the last intervals, as sums over independent units."""
        start = len(self._ends) - count
        ends, requests, seconds, units, lasted, waits, behind = (
            np.array(column[start:]) for column in self._columns()
        )
        sums = Sums(units, seconds * units / np.maximum(requests, 1.0), requests)
        return Intervals(ends, lasted, sums, waits, behind)
