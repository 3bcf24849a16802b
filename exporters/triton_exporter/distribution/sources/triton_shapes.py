"""Shapes that Triton itself exposes where it is configured to: its histogram and its summaries."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from math import inf, isfinite

from triton_exporter.catalogue import Metric
from triton_exporter.distribution.increase import Increases, version_of
from triton_exporter.distribution.shape import Binned, Curve
from triton_exporter.exposition.exposition_values import Exposition, ParsedFamily
from triton_exporter.exposition.series_text import Series
from triton_exporter.snapshot import ModelVersion

SUMMARY_WINDOW_SECONDS = 60.0
"""Time before a reading that Triton's quantiles are of (core/src/metric_model_reporter.cc)."""


class NativeHistograms:
    """Gain of Triton's own histogram between two bodies, by model version; `unit` in seconds."""

    def __init__(self, metric: Metric, unit: float) -> None:
        self._metric = metric
        self._unit = unit
        self._grown = Increases(self._bucket_key)

    def update(self, exposition: Exposition) -> Mapping[ModelVersion, tuple[Binned, float]]:
        """Return shape and seconds of the requests that each model version gained; none where it gained none."""
        family = exposition.families.get(self._metric.name)
        if family is None:
            return {}
        bins: dict[ModelVersion, dict[float, float]] = {}
        sums: dict[ModelVersion, float] = {}
        for (model, end), grown in self._grown.update(family, complete=not exposition.bad).items():
            if end is None:
                sums[model] = grown * self._unit
            else:
                bins.setdefault(model, {})[end] = grown
        return {
            model: (Binned(sorted(ends), [ends[end] for end in sorted(ends)]), sums.get(model, 0.0))
            for model, ends in bins.items()
            if ends.get(inf, 0.0) > 0
        }

    def has(self, model: ModelVersion) -> bool:
        """Return whether Triton keeps a histogram of this model version."""
        return (model, inf) in self._grown.totals

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
        self._counts = Increases(_version_of_sample(metric.count))
        self._sums = Increases(_version_of_sample(metric.sum))
        # Time, requests and seconds of each body, flat: 1,000 models make 60,000 of them.
        self._recent: dict[ModelVersion, array[float]] = {}
        self._series: Sequence[Series] = ()
        self._values: Sequence[float] = ()
        self._quantiles: dict[ModelVersion, list[tuple[float, int]]] = {}

    def update(self, exposition: Exposition, now: float) -> Mapping[ModelVersion, tuple[float, float]]:
        """Return the requests and seconds that each model version gained; then `curve` answers for this body."""
        family = exposition.families.get(self._metric.name)
        if family is None:
            return {}
        if family.series is not self._series:
            self._learn(family)
        self._values = family.values
        complete = not exposition.bad
        counts, sums = self._counts.update(family, complete), self._sums.update(family, complete)
        gained = {model: (count, sums.get(model, 0.0) * self._unit) for model, count in counts.items()}
        self._recent = {model: self._recent.get(model, array("d")) for model in gained}
        for model, (count, seconds) in gained.items():
            recent = self._recent[model]
            if count:
                recent.extend((now, count, seconds))
            while recent and recent[0] <= now - SUMMARY_WINDOW_SECONDS:
                del recent[:3]
        return gained

    @property
    def totals(self) -> Mapping[ModelVersion, float]:
        """All requests that each model version's summary has counted."""
        return self._counts.totals

    def has(self, model: ModelVersion) -> bool:
        """Return whether Triton keeps a summary of this model version."""
        return model in self._quantiles

    def curve(self, model: ModelVersion) -> Curve | None:
        """Return the quantile curve of a model version, or None where it has no valid quantile."""
        recent = self._recent.get(model)
        if not recent:
            return None
        read = [(q, self._values[at] * self._unit) for q, at in self._quantiles.get(model, ())]
        points: list[tuple[float, float]] = []
        for quantile, seconds in read:
            if isfinite(seconds):
                # Triton estimates each quantile for itself: a higher one can come out a little lower.
                points.append((quantile, max(seconds, points[-1][1] if points else 0.0)))
        if not points:
            return None
        mean = sum(recent[2::3]) / sum(recent[1::3])
        return Curve(points, mean)

    def _learn(self, family: ParsedFamily) -> None:
        self._series = family.series
        self._quantiles = {}
        for position, series in enumerate(family.series):
            model, quantile = version_of(series), _float_or_none(series.labels.get("quantile"))
            if model and quantile is not None and 0.0 <= quantile <= 1.0:
                self._quantiles.setdefault(model, []).append((quantile, position))
        for points in self._quantiles.values():
            points.sort()


def _float_or_none(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _version_of_sample(name: str) -> Callable[[Series], ModelVersion | None]:
    return lambda series: version_of(series) if series.name == name else None
