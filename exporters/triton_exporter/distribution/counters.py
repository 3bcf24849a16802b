"""What one body of Triton's /metrics adds to the one before: counters, Triton's own histograms, its summaries."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain, compress
from math import inf, isfinite
from operator import ne
from typing import Generic, TypeVar

from triton_exporter.catalogue import Metric, triton
from triton_exporter.distribution.buckets import SIGNALS, Signal
from triton_exporter.distribution.histogram import Binned, Curve
from triton_exporter.distribution.state_file import StoredModel
from triton_exporter.exposition.parse import Exposition, ParsedFamily, Series
from triton_exporter.snapshot import ModelVersion

K = TypeVar("K", bound=Hashable)

_COUNT, _EXECUTIONS = triton.REQUEST_SUCCESS.name, triton.EXEC_COUNT.name
_MICROS: Mapping[Signal, str] = {
    "request": triton.REQUEST_DURATION_US.name,
    "queue": triton.QUEUE_DURATION_US.name,
}
COUNTERS = frozenset({_COUNT, _EXECUTIONS, *_MICROS.values()})
"""The families that are read at every sample."""

SUMMARY_WINDOW_SECONDS = 60.0
"""Time before a reading that Triton's quantiles are of (core/src/metric_model_reporter.cc)."""

_NO_SERIES = ParsedFamily("", "untyped", "", (), (), "", b"")


def filled(body: Exposition, names: Iterable[str]) -> Exposition:
    """Add families without series for those that a complete body lacks: Triton leaves out a family without any."""
    if body.bad or not any(name.startswith("nv_") for name in body.declared):
        return body
    return Exposition(dict.fromkeys(names, _NO_SERIES) | dict(body.families))


def version_of(series: Series) -> ModelVersion | None:
    """Return the model version of a series; its series on several GPUs (`gpu_uuid`) or with tags are added up."""
    model = series.labels.get("model", "")
    return ModelVersion(model, series.labels.get("version", "")) if model else None


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
        self._family: ParsedFamily | None = None
        """That of the last body, if that was complete and all its values are good."""
        self._keys: list[K | None] = []  # of the series
        self._followed: dict[
            K, list[tuple[int, object]]
        ] = {}  # position and identity of the series of each key
        self._resumed: dict[K, float] = {}  # not seen since the restart
        self.present: Set[K] = frozenset()
        """The keys that the last body has."""
        self.totals: dict[K, float] = {}
        """The counters' values in the last body."""

    def resume(self, totals: Mapping[K, float]) -> None:
        """Continue from the values of the counters in the last body before a restart of the exporter."""
        self._last, self._resumed, self.totals = {}, dict(totals), dict(totals)

    @property
    def began(self) -> bool:
        """True if there is a first reading, from which increases are counted."""
        return self._last is not None

    def update(self, family: ParsedFamily | None, complete: bool) -> Mapping[K, float]:
        """Return by how much keys have grown since the last body; those `present` that are left out have not.

        Without a `family`, which the body lacks, nothing has. In a body that is not `complete`, a series that is
        missing is not gone: its last value stays.
        """
        if family is None:
            self._family, self.present = None, frozenset()
            return {}
        moved = self._moved(family) if complete else None
        first, last = self._last is None, self._last or {}
        values_after, totals = last, self.totals
        numbers: Sequence[str | bytes | float] = family.numbers
        if moved is not None:
            totals.update(dict.fromkeys(moved, 0.0))
        else:
            self._follow(family.series)
            values_after, totals, numbers = {} if complete else dict(last), {}, family.values
        grown: dict[K, float] = {}
        is_good = True
        for key in self._followed if moved is None else moved:
            for position, identity in self._followed[key]:
                value = float(numbers[position])
                before = value if first else last.get(identity, 0.0)
                if not _is_counted(value):
                    is_good = False
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
        self._family = family if complete and is_good else None
        if moved is None:
            self.present = grown.keys()
        return grown

    def _moved(self, family: ParsedFamily) -> Iterable[K] | None:
        """Return the keys whose numbers are not those of the last body; None where each series must be read."""
        before = self._family
        if before is None or family.series is not before.series:
            return None
        if family is before:
            return ()
        moved: dict[K, None] = {}
        for place in compress(range(len(family.numbers)), map(ne, family.numbers, before.numbers)):
            key = self._keys[place]
            if key is not None:
                if not _is_counted(float(family.numbers[place])):
                    return None
                moved[key] = None
        return moved

    def _follow(self, series: Sequence[Series]) -> None:
        """Note which series belong to which key."""
        if series is self._series:
            return
        self._series, self._keys, self._followed = series, [self._key(each) for each in series], {}
        for position, (each, key) in enumerate(zip(series, self._keys, strict=True)):
            if key is not None:
                self._followed.setdefault(key, []).append((position, each.identity))


def _is_counted(value: float) -> bool:
    return isfinite(value) and value >= 0


@dataclass(slots=True)
class Gain:
    """Gain of one model version's counters: requests, executions, and seconds by signal."""

    requests: float = 0.0
    executions: float = 0.0
    seconds: dict[Signal, float] = field(default_factory=lambda: dict.fromkeys(SIGNALS, 0.0))


class Counters:
    """Triton's counters of requests, executions and time (microseconds), by model version."""

    def __init__(self) -> None:
        self.requests = Increases(version_of)
        self.executions = Increases(version_of)
        self.micros = {signal: Increases(version_of) for signal in SIGNALS}

    def resume(self, models: Mapping[ModelVersion, StoredModel]) -> None:
        """Continue from the values of the counters in the last body before a restart of the exporter."""
        self.requests.resume({version: stored.requests for version, stored in models.items()})
        self.executions.resume({version: stored.executions for version, stored in models.items()})
        for signal, increases in self.micros.items():
            increases.resume({version: stored.micros.get(signal, 0.0) for version, stored in models.items()})

    def update(self, body: Exposition, also: Iterable[ModelVersion]) -> Iterable[tuple[ModelVersion, Gain]]:
        """Return the gain since the last body of the model versions that have one, are new, or are among `also`."""
        families, complete = body.families, not body.bad
        requests = self.requests.update(families.get(_COUNT), complete)
        executions = self.executions.update(families.get(_EXECUTIONS), complete)
        micros = {
            signal: increases.update(families.get(_MICROS[signal]), complete)
            for signal, increases in self.micros.items()
        }
        moved = {*requests, *executions, *chain.from_iterable(micros.values()), *also}
        for version in self.requests.present:
            if version in moved:
                seconds = {signal: micros[signal].get(version, 0.0) * 1e-6 for signal in SIGNALS}
                yield version, Gain(requests.get(version, 0.0), executions.get(version, 0.0), seconds)


class NativeHistograms:
    """Gain of Triton's own histogram between two bodies, by model version; `unit` in seconds."""

    def __init__(self, metric: Metric, unit: float) -> None:
        self._metric = metric
        self._unit = unit
        self._grown = Increases(self._bucket_key)

    def update(self, body: Exposition) -> Mapping[ModelVersion, tuple[Binned, float]]:
        """Return shape and seconds of the requests that each model version gained; none where it gained none."""
        bins: dict[ModelVersion, dict[float, float]] = {}
        sums: dict[ModelVersion, float] = {}
        moved = self._grown.update(body.families.get(self._metric.name), complete=not body.bad)
        # All buckets of a model make a shape, also those that have not grown.
        grown = dict.fromkeys(self._grown.present, 0.0) | dict(moved) if moved else {}
        for (model, end), requests in grown.items():
            if end is None:
                sums[model] = requests * self._unit
            else:
                bins.setdefault(model, {})[end] = requests
        return {
            model: (Binned(sorted(ends), [ends[end] for end in sorted(ends)]), sums.get(model, 0.0))
            for model, ends in bins.items()
            if ends.get(inf, 0.0) > 0
        }

    def has(self, model: ModelVersion, ends: Iterable[float]) -> bool:
        """Return whether Triton keeps a histogram of this model version, with buckets that end there (seconds)."""
        return all((model, end) in self._grown.totals for end in (*ends, inf))

    def _bucket_key(self, series: Series) -> tuple[ModelVersion, float | None] | None:
        """Return the model version of a bucket and its end in seconds, which is None for the sum."""
        model = version_of(series)
        if model is None:
            return None
        if series.name == self._metric.sum:
            return model, None
        end = _float_or_none(series.labels.get("le")) if series.name == self._metric.bucket else None
        return None if end is None else (model, end * self._unit)


class Summaries:
    """Triton's quantiles over its last minute, by model version; `unit` in seconds."""

    def __init__(self, metric: Metric, unit: float) -> None:
        self._metric = metric
        self._unit = unit
        self.counts = Increases(lambda series: version_of(series) if series.name == metric.count else None)
        self._sums = Increases(lambda series: version_of(series) if series.name == metric.sum else None)
        # Time, requests and seconds of each body, flat: 1,000 models make 60,000 of them.
        self._recent: dict[ModelVersion, array[float]] = {}
        self._series: Sequence[Series] = ()
        self._numbers: Sequence[str | bytes] = ()
        self._present: Set[ModelVersion] = frozenset()
        self._now = 0.0
        self._quantiles: dict[ModelVersion, list[tuple[float, int]]] = {}

    def update(self, body: Exposition, now: float) -> Mapping[ModelVersion, tuple[float, float]]:
        """Return the requests and seconds that model versions gained; then `curve` answers for this body."""
        family = body.families.get(self._metric.name)
        if family is None:
            return {}
        if family.series is not self._series:
            self._series, self._quantiles = family.series, {}
            for position, series in enumerate(family.series):
                model, quantile = version_of(series), _float_or_none(series.labels.get("quantile"))
                if model and quantile is not None and 0.0 <= quantile <= 1.0:
                    self._quantiles.setdefault(model, []).append((quantile, position))
            for points in self._quantiles.values():
                points.sort()
        self._numbers, self._now = family.numbers, now
        counts = self.counts.update(family, complete=not body.bad)
        sums = self._sums.update(family, complete=not body.bad)
        if self._present is not self.counts.present:
            self._present = self.counts.present
            self._recent = {model: known for model, known in self._recent.items() if model in self._present}
        gained = {
            model: (counts.get(model, 0.0), sums.get(model, 0.0) * self._unit)
            for model in counts.keys() | (sums.keys() & self._present)
        }
        for model, (count, seconds) in gained.items():
            if count:
                self._recent.setdefault(model, array("d")).extend((now, count, seconds))
                self._forget_old(model)
        return gained

    def _forget_old(self, model: ModelVersion) -> None:
        recent = self._recent.get(model, array("d"))
        while recent and recent[0] <= self._now - SUMMARY_WINDOW_SECONDS:
            del recent[:3]

    @property
    def models(self) -> Set[ModelVersion]:
        """The model versions of which Triton keeps a summary."""
        return self._quantiles.keys()

    def curve(self, model: ModelVersion) -> Curve | None:
        """Return the quantile curve of a model version, or None where it has no valid quantile."""
        self._forget_old(model)
        recent = self._recent.get(model)
        if not recent:
            return None
        points: list[tuple[float, float]] = []
        for quantile, position in self._quantiles.get(model, ()):
            seconds = float(self._numbers[position]) * self._unit
            if isfinite(seconds):
                # Triton estimates each quantile for itself: a higher one can come out a little lower.
                points.append((quantile, max(seconds, points[-1][1] if points else 0.0)))
        return Curve(points, mean=sum(recent[2::3]) / sum(recent[1::3])) if points else None


def _float_or_none(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
