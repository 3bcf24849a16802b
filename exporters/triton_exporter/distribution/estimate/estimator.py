"""All decompositions of one exporter: few enough, and estimated again as often as their share of a core allows."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from triton_exporter.distribution.buckets import Buckets, Signal
from triton_exporter.processor_time import CoreBudget
from triton_exporter.snapshot import ModelVersion

if TYPE_CHECKING:
    from triton_exporter.distribution.estimate.decomposition import Decomposition

MAX_DECOMPOSED = 100
"""Histograms decomposed at once, the busiest first come; some 0.3 MB each. The others stay with the mean."""

IDLE_SECONDS = 600.0
"""Time without several requests in one interval after which another histogram may take its place."""

CORE_SHARE = 0.02
"""Part of one core that estimating may take in the long run."""

_SAVED_SECONDS = 5.0
"""Processor time that may be saved up, for the many first estimates after a start."""

_GROWN = 0.15
"""An estimate is made again when the intervals have grown by this part."""

REFRESH_SECONDS = 30.0
"""An estimate this old is made again when there is anything new: few intervals of a histogram may need it."""


class _Place(NamedTuple):
    """Names one histogram: its model version and its signal."""

    version: ModelVersion
    signal: Signal


class Estimator:
    """Poller (see `app.exporter`): estimates in a thread of its own, without the exporter's lock."""

    interval_seconds = 1.0

    def __init__(self, buckets: Buckets | None = None, max_decomposed: int = MAX_DECOMPOSED) -> None:
        self._buckets = buckets or Buckets()
        self._max_decomposed = max_decomposed
        self._lock = threading.Lock()
        self._decompositions: dict[_Place, Decomposition] = {}
        self._used: dict[_Place, float] = {}
        self._fitted: dict[_Place, tuple[int, float]] = {}
        self._budget = CoreBudget(CORE_SHARE, _SAVED_SECONDS)

    def get(self, version: ModelVersion, signal: Signal, now: float, needed: bool) -> Decomposition | None:
        """Return the decomposition of a histogram, and create it where it is `needed`; None if there is none.

        A histogram gets none while too many others have one.
        """
        key = _Place(version, signal)
        with self._lock:
            decomposition = self._decompositions.get(key)
            if decomposition is None and needed and self._has_capacity(now):
                # Imported here: numpy takes 17 MiB, and hundreds of models are read too seldom to be decomposed.
                from triton_exporter.distribution.estimate.decomposition import Decomposition

                decomposition = self._decompositions[key] = Decomposition()
            if decomposition is not None and needed:
                self._used[key] = now
            return decomposition

    def forget(self, version: ModelVersion) -> None:
        """Let go of a model version that has gone."""
        with self._lock:
            for key in [key for key in self._decompositions if key.version == version]:
                self._drop(key)

    def poll(self, now: float) -> None:
        """Estimate those whose intervals have grown most, as long as processor time is left."""
        for key in self._due(now):
            if self._budget.is_spent:
                return
            with self._budget.charged():
                with self._lock:
                    decomposition = self._decompositions.get(key)
                if decomposition is not None:
                    self._fitted[key] = decomposition.undecided, now
                    decomposition.fit()
                    decomposition.update_errors(
                        self._buckets.with_stated_error(key.version.model, key.signal)
                    )

    def _due(self, now: float) -> Sequence[_Place]:
        due: dict[_Place, float] = {}
        with self._lock:
            for key, decomposition in self._decompositions.items():
                undecided, at = self._fitted.get(key, (0, float("-inf")))
                grown = decomposition.undecided - undecided
                part = grown / max(decomposition.interval_count, 1)
                is_old = grown > 0 and now - at >= REFRESH_SECONDS
                if decomposition.has_enough and (part > _GROWN or is_old):
                    due[key] = part
        return sorted(due, key=due.__getitem__, reverse=True)

    def _has_capacity(self, now: float) -> bool:
        if len(self._decompositions) >= self._max_decomposed:
            oldest = min(self._used, key=self._used.__getitem__)
            if self._used[oldest] > now - IDLE_SECONDS:
                return False
            self._drop(oldest)
        return True

    def _drop(self, key: _Place) -> None:
        del self._decompositions[key]
        self._used.pop(key, None)
        self._fitted.pop(key, None)
