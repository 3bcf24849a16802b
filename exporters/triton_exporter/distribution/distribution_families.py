"""Show the distributions of all model versions as families: histograms, quantiles, bounds of errors, sources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from triton_exporter.catalogue import Metric, state
from triton_exporter.distribution.buckets import SIGNALS, Buckets, Signal, le
from triton_exporter.distribution.histogram import JoinedSamples
from triton_exporter.distribution.increase import Gain
from triton_exporter.distribution.observations import Observations
from triton_exporter.distribution.stored import StoredHistogram
from triton_exporter.distribution.waiting.carried_over import CarriedOver
from triton_exporter.exposition.write import CachedSamples
from triton_exporter.family import Family, Sample, series
from triton_exporter.snapshot import ModelVersion

METRICS: Mapping[Signal, Metric] = {"request": state.REQUEST_DURATION, "queue": state.QUEUE_DURATION}
_QUANTILES: Mapping[Signal, Metric] = {
    "request": state.REQUEST_QUANTILE,
    "queue": state.QUEUE_QUANTILE,
}


@dataclass(slots=True)
class ObservedModel:
    """State of one model version; `seen` is when Triton last showed it (Unix seconds).

    `sources` are the written names of its series, `turn` is when its summary is read, `since` is when it was first
    seen.
    """

    observations: dict[Signal, Observations]
    turn: int
    since: float
    seen: float = 0.0
    has_queue: bool = True
    torn: Gain | None = None
    sources: dict[Signal, dict[str, str]] = field(default_factory=lambda: {signal: {} for signal in SIGNALS})

    @property
    def shown(self) -> dict[Signal, Observations]:
        """What it is shown of: an ensemble has no queue."""
        return self.observations if self.has_queue else {"request": self.observations["request"]}

    def _torn_part(self, signal: Signal) -> CarriedOver:
        torn = self.torn
        return CarriedOver(torn.requests, torn.seconds[signal], torn.requests) if torn else CarriedOver()

    def stored(self, now: float) -> dict[Signal, StoredHistogram]:
        """Return the state of both histograms."""
        return {
            signal: observations.stored(self._torn_part(signal), now)
            for signal, observations in self.observations.items()
        }


Models = Mapping[ModelVersion, ObservedModel]
"""Everything that is observed of one Triton."""


class DistributionFamilies:
    """The families of all models."""

    def __init__(self, buckets: Buckets) -> None:
        self._buckets = buckets
        self._noted: list[tuple[ModelVersion, Signal, state.DistributionSource]] | None = None
        self._families: tuple[Family, ...] = ()

    def histograms(self, models: Models, now: float) -> Iterable[Family]:
        """Yield both histograms, their quantiles, and what is known about their errors."""
        for signal in SIGNALS:
            histograms = [model.shown[signal].histogram for model in models.values() if signal in model.shown]
            yield Family(METRICS[signal], JoinedSamples(histograms))
        for signal in SIGNALS:
            yield Family(_QUANTILES[signal], list(_quantiles(models, signal, now)))
        guarantees = [each.guarantee for model in models.values() for each in model.shown.values()]
        yield Family(state.REQUESTS_WITHIN, JoinedSamples(guarantees))
        yield Family(state.DISTRIBUTION_ERROR, list(self._errors(models)))

    def sources(self, models: Models) -> Sequence[Family]:
        """Return the sources, written again only when one has changed."""
        now = [
            (version, signal, observations.source)
            for version, model in models.items()
            for signal, observations in model.shown.items()
        ]
        if now != self._noted:
            self._noted = now
            self._families = (
                Family(state.DISTRIBUTION_SOURCE, CachedSamples(list(_source_samples(models)))),
            )
        return self._families

    def _errors(self, models: Models) -> Iterable[Sample]:
        for version, model in models.items():
            for signal, observations in model.shown.items():
                if observations.decomposition is not None and observations.source == "decomposed":
                    bounds = self._buckets.with_stated_error(version.model, signal)
                    for bound, error in zip(bounds, observations.decomposition.errors, strict=False):
                        yield Sample(series(state.DISTRIBUTION_ERROR, *version, signal, le(bound)), error)


def _quantiles(models: Models, signal: Signal, now: float) -> Iterable[Sample]:
    for version, model in models.items():
        observations = model.shown.get(signal)
        if observations is None:
            continue
        if observations.quantiles is not None and not observations.quantiles.forget(now):
            observations.quantiles = None
        if observations.quantiles is not None and observations.source != "sampled_mean":
            for level, seconds in observations.quantiles.values():
                yield Sample(series(_QUANTILES[signal], *version, f"{level:g}"), seconds)


def _source_samples(models: Models) -> Iterable[Sample]:
    for version, model in models.items():
        for signal, observations in model.shown.items():
            used = model.sources[signal]
            if observations.source not in used:
                used[observations.source] = series(
                    state.DISTRIBUTION_SOURCE, *version, signal, observations.source
                )
            for source, name in used.items():
                yield Sample(name, source == observations.source)
