"""Increases of Triton's counters between two readings, with resets of any cause taken into account."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from math import isfinite
from typing import Generic, TypeVar

from triton_exporter.exposition.parse import ParsedFamily, Series
from triton_exporter.snapshot import ModelVersion

K = TypeVar("K", bound=Hashable)


class Increases(Generic[K]):
    """Follows the counters of one family from body to body, added up by what `key` makes of each series.

    A series' first value is only a starting point when the exporter itself starts; later, a series that
    appears has started at 0, and one that is smaller than before was reset to 0 (unload and load again;
    a hot reload resets nothing). A key of None leaves a series out.
    """

    def __init__(self, key: Callable[[Series], K | None]) -> None:
        self._key = key
        self._last: dict[object, float] | None = None
        self._series: Sequence[Series] = ()
        self._followed: list[tuple[int, object, K]] = []
        self._resumed: dict[K, float] = {}  # not seen since the restart
        self.totals: dict[K, float] = {}
        """The counters' values in the last body."""

    def resume(self, totals: Mapping[K, float]) -> None:
        """Go on from what the counters stood at in the last body before a restart of the exporter."""
        self._last, self._resumed, self.totals = {}, dict(totals), dict(totals)

    @property
    def began(self) -> bool:
        """Whether there is something to count from."""
        return self._last is not None

    def update(self, family: ParsedFamily, complete: bool) -> Mapping[K, float]:
        """Growth since the last body, 0 included, by key.

        In a body that is not `complete`, a series that is missing is not gone: its last value is kept.
        """
        if family.series is not self._series:
            self._follow(family.series)
        first, last, values = self._last is None, self._last or {}, family.values
        now: dict[object, float] = {} if complete else dict(last)
        grown: dict[K, float] = {}
        totals: dict[K, float] = {}
        for position, identity, key in self._followed:
            value = values[position]
            before = value if first else last.get(identity, 0.0)
            if not isfinite(value) or value < 0:
                now[identity] = before
                if identity in last:
                    totals[key] = totals.get(key, 0.0) + before
                continue
            now[identity] = value
            totals[key] = totals.get(key, 0.0) + value
            grown[key] = grown.get(key, 0.0) + (value - before if value >= before else value)
        for key in self._resumed.keys() & totals.keys():
            value, before = totals[key], self._resumed.pop(key)
            grown[key] = value - before if value >= before else value
        if complete:
            self._resumed.clear()
        self._last, self.totals = now, totals if complete else self.totals | totals
        return grown

    def _follow(self, series: Sequence[Series]) -> None:
        self._series = series
        keys = [self._key(each) for each in series]
        self._followed = [
            (position, each.identity, key)
            for position, (each, key) in enumerate(zip(series, keys, strict=True))
            if key is not None
        ]


def owner(series: Series) -> ModelVersion | None:
    """Whose series it is; series of one model version on several GPUs (`gpu_uuid`) or with tags are one."""
    model = series.labels.get("model", "")
    return ModelVersion(model, series.labels.get("version", "")) if model else None


def counted_as(
    version: ModelVersion, ensembles: Set[ModelVersion], totals: Mapping[ModelVersion, float]
) -> ModelVersion:
    """Under which version Triton counts a request: version 1 for an ensemble, whatever its folder is called.

    `totals` are its counters: a Triton that counts an ensemble under its own version is believed.
    https://github.com/triton-inference-server/core/blob/main/src/ensemble_scheduler/ensemble_scheduler.cc
    """
    first = ModelVersion(version.model, "1")
    return first if version in ensembles and first in totals and not totals.get(version) else version
