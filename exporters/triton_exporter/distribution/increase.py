"""How much Triton's counters grew, per model version, whatever resets them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import NamedTuple

from triton_exporter.parse import Family, Series
from triton_exporter.snapshot import ModelVersion


class _Source(NamedTuple):
    """One series of a counter: what tells it from all others, and whose it is."""

    identity: object
    owner: ModelVersion


class Increases:
    """Follows one counter family from body to body.

    A series' first value is only a starting point when the exporter itself starts; later, a series that
    appears has started at 0, and one that is smaller than before was reset to 0 (unload and load again;
    a hot reload resets nothing). Series of one model version on several GPUs (`gpu_uuid`) or with custom
    tags are added up.
    """

    def __init__(self) -> None:
        self._last: dict[object, float] | None = None
        self._series: Sequence[Series] = ()
        self._sources: list[_Source] = []

    def take(self, family: Family, complete: bool) -> Mapping[ModelVersion, float]:
        """Growth since the last body, 0 included, of every model version that `family` has.

        In a body that is not `complete`, a series that is missing is not gone: its last value is kept.
        """
        if family.series is not self._series:
            self._series = family.series
            self._sources = [_Source(one.identity, _owner(one)) for one in family.series]
        first, last = self._last is None, self._last or {}
        now: dict[object, float] = {} if complete else dict(last)
        grown: dict[ModelVersion, float] = {}
        for (identity, owner), value in zip(self._sources, family.values, strict=True):
            before = value if first else last.get(identity, 0.0)
            if not isfinite(value) or value < 0:
                now[identity] = before
                continue
            now[identity] = value
            grown[owner] = grown.get(owner, 0.0) + (value - before if value >= before else value)
        self._last = now
        return grown


def _owner(series: Series) -> ModelVersion:
    return ModelVersion(series.labels.get("model", ""), series.labels.get("version", ""))
