"""Increases of Triton's counters between two readings, with resets of any cause taken into account."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from math import isfinite
from typing import Generic, TypeVar

from triton_exporter.catalogue import Metric, triton
from triton_exporter.distribution.buckets import SIGNALS, Signal
from triton_exporter.distribution.stored import StoredModel
from triton_exporter.exposition.exposition_values import Exposition, ParsedFamily
from triton_exporter.exposition.series_text import Series
from triton_exporter.snapshot import ModelVersion

K = TypeVar("K", bound=Hashable)

_COUNT, _EXECUTIONS = triton.REQUEST_SUCCESS.name, triton.EXEC_COUNT.name
_MICROS: Mapping[Signal, Metric] = {
    "request": triton.REQUEST_DURATION_US,
    "queue": triton.QUEUE_DURATION_US,
}
COUNTERS = frozenset({_COUNT, _EXECUTIONS} | {metric.name for metric in _MICROS.values()})
"""The families that are read at every sample."""


class Increases(Generic[K]):
    """The increases of a family's counters from body to body, added up by the `key` of their series.

    A series whose key is None is left out. In the first body each value is only a starting point. Later, a series
    that appears has started at 0, and one that is smaller than before was reset to 0 (by unload and load; a hot
    reload resets nothing).
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
        """Continue from the values of the counters in the last body before a restart of the exporter."""
        self._last, self._resumed, self.totals = {}, dict(totals), dict(totals)

    @property
    def began(self) -> bool:
        """True if there is a first reading, from which increases are counted."""
        return self._last is not None

    def update(self, family: ParsedFamily, complete: bool) -> Mapping[K, float]:
        """Return by how much each key has grown since the last body, also by 0.

        In a body that is not `complete`, a series that is missing is not gone: its last value stays.
        """
        if family.series is not self._series:
            self._follow(family.series)
        first, last, values = self._last is None, self._last or {}, family.values
        values_after: dict[object, float] = {} if complete else dict(last)
        grown: dict[K, float] = {}
        totals: dict[K, float] = {}
        for position, identity, key in self._followed:
            value = values[position]
            before = value if first else last.get(identity, 0.0)
            if not isfinite(value) or value < 0:
                values_after[identity] = before
                if identity in last:
                    totals[key] = totals.get(key, 0.0) + before
                continue
            values_after[identity] = value
            totals[key] = totals.get(key, 0.0) + value
            grown[key] = grown.get(key, 0.0) + (value - before if value >= before else value)
        for key in self._resumed.keys() & totals.keys():
            value, before = totals[key], self._resumed.pop(key)
            grown[key] = value - before if value >= before else value
        if complete:
            self._resumed.clear()
        self._last, self.totals = values_after, totals if complete else self.totals | totals
        return grown

    def _follow(self, series: Sequence[Series]) -> None:
        self._series = series
        keys = [self._key(each) for each in series]
        self._followed = [
            (position, each.identity, key)
            for position, (each, key) in enumerate(zip(series, keys, strict=True))
            if key is not None
        ]


@dataclass(slots=True)
class Gain:
    """Gain of one model version's counters: requests, executions, and seconds by signal."""

    requests: float = 0.0
    executions: float = 0.0
    seconds: dict[Signal, float] = field(default_factory=lambda: dict.fromkeys(SIGNALS, 0.0))

    @property
    def is_torn(self) -> bool:
        """Triton adds to its counters one after the other: the reading came in between."""
        return (self.requests > 0) != (self.seconds["request"] > 0)

    def add(self, other: Gain) -> None:
        self.requests += other.requests
        self.executions += other.executions
        for signal in SIGNALS:
            self.seconds[signal] += other.seconds[signal]


class Counters:
    """Triton's counters of requests, executions and time, by model version."""

    def __init__(self) -> None:
        self._requests = Increases(version_of)
        self._executions = Increases(version_of)
        self._micros = {signal: Increases(version_of) for signal in SIGNALS}

    @property
    def began(self) -> bool:
        """True if there is a first reading, from which increases are counted."""
        return self._requests.began

    @property
    def requests(self) -> Mapping[ModelVersion, float]:
        """The counters of requests in the last body."""
        return self._requests.totals

    def totals(self, version: ModelVersion) -> tuple[float, float, dict[Signal, float]]:
        """Return requests, executions and microseconds by signal, as in the last body."""
        micros = {signal: self._micros[signal].totals.get(version, 0.0) for signal in SIGNALS}
        return self.requests.get(version, 0.0), self._executions.totals.get(version, 0.0), micros

    def resume(self, models: Mapping[ModelVersion, StoredModel]) -> None:
        """Continue from the values of the counters in the last body before a restart of the exporter."""
        self._requests.resume({version: stored.requests for version, stored in models.items()})
        self._executions.resume({version: stored.executions for version, stored in models.items()})
        for signal, increases in self._micros.items():
            increases.resume({version: stored.micros.get(signal, 0.0) for version, stored in models.items()})

    def update(self, body: Exposition) -> Iterable[tuple[ModelVersion, Gain]]:
        """Return the gain of each model version since the last body."""
        requests = _grown(self._requests, body, _COUNT)
        executions = _grown(self._executions, body, _EXECUTIONS)
        micros = {signal: _grown(self._micros[signal], body, _MICROS[signal].name) for signal in SIGNALS}
        for version, count in requests.items():
            seconds = {signal: micros[signal].get(version, 0.0) * 1e-6 for signal in SIGNALS}
            yield version, Gain(count, executions.get(version, 0.0), seconds)


def _grown(increases: Increases[ModelVersion], body: Exposition, name: str) -> Mapping[ModelVersion, float]:
    family = body.families.get(name)
    return increases.update(family, complete=not body.bad) if family else {}


def filled(body: Exposition, names: Iterable[str]) -> Exposition:
    """Add families without series for those that a complete body lacks: Triton leaves out a family without any."""
    if body.bad or not any(name.startswith("nv_") for name in body.declared):
        return body
    return Exposition(dict.fromkeys(names, _NOTHING) | dict(body.families))


_NOTHING = ParsedFamily("", "untyped", "", (), (), "", b"")


def version_of(series: Series) -> ModelVersion | None:
    """Return the model version of a series; its series on several GPUs (`gpu_uuid`) or with tags are added up."""
    model = series.labels.get("model", "")
    return ModelVersion(model, series.labels.get("version", "")) if model else None


def counted_as(
    version: ModelVersion, ensembles: Set[ModelVersion], totals: Mapping[ModelVersion, float]
) -> ModelVersion:
    """Return under which version Triton counts a request: 1 for an ensemble, whatever its folder is called.

    `totals` are its counters: a Triton that counts an ensemble under its own version is believed.
    https://github.com/triton-inference-server/core/blob/main/src/ensemble_scheduler/ensemble_scheduler.cc
    """
    first = ModelVersion(version.model, "1")
    return first if version in ensembles and first in totals and not totals.get(version) else version
