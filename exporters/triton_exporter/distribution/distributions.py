"""The distributions of one Triton: observed at every sampling interval, shown on every scrape."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from triton_exporter.catalogue import Metric, own, triton
from triton_exporter.catalogue.state import DISTRIBUTION_SOURCES, DistributionSource
from triton_exporter.distribution.buckets import SIGNALS, Buckets, Signal
from triton_exporter.distribution.distribution_families import METRICS, DistributionFamilies, ObservedModel
from triton_exporter.distribution.guarantee import Guarantee
from triton_exporter.distribution.histogram import Histogram
from triton_exporter.distribution.increase import COUNTERS, Counters, Gain, filled
from triton_exporter.distribution.observations import Observations
from triton_exporter.distribution.quantiles import QuantilePool
from triton_exporter.distribution.shape import Binned, Interval
from triton_exporter.distribution.sources.traced_requests import TRACED_MODEL_SECONDS, TraceIntake
from triton_exporter.distribution.sources.triton_shapes import NativeHistograms, Summaries
from triton_exporter.distribution.stored import StoredModel
from triton_exporter.distribution.waiting.traced_intervals import TracedIntervals
from triton_exporter.exposition.exposition_values import Exposition
from triton_exporter.family import Family, Sample
from triton_exporter.snapshot import ModelVersion, Snapshot
from triton_exporter.tracing.trace import Mailbox

if TYPE_CHECKING:
    from triton_exporter.distribution.estimate.estimator import Estimator

_SUMMARIES: Mapping[Signal, Metric] = {"request": triton.REQUEST_SUMMARY_US, "queue": triton.QUEUE_SUMMARY_US}
_WANTED = COUNTERS | {triton.FIRST_RESPONSE_MS.name} | {metric.name for metric in _SUMMARIES.values()}

MAX_GONE = 100
"""Most model versions that stay after Triton stopped showing them; beyond this number the oldest are dropped."""

MEMORY_SECONDS = 300.0
"""Time for which series stay after Triton stopped showing their model version: its last requests are scraped."""

UNKNOWN_SECONDS = 60.0
"""Time for which the queue of a model is not shown while its configuration is unknown: it may be an ensemble."""

PENDING_SECONDS = 2.0
"""Time between two rounds in which the intervals that waited for an estimate are entered."""

ESTIMATED_SECONDS = 0.5
"""Longest interval that is estimated: more requests share one sum in a longer one, which keeps its mean."""

SUMMARY_TURNS = 5
"""A quantile curve of the last minute is read at every fifth reading with all families (`observe`): it hardly moves
in between."""

_MICRO, _MILLI = 1e-6, 1e-3


class Distributions:
    """Collector, MetricsObserver and SnapshotObserver (see `app.parts`): one pair of histograms per model version.

    Triton's counters show how many requests each sampling interval brought and how long they took in all, so
    count and sum are exact. How they spread comes from the best source there is for the model: Triton's own
    histogram, traces, summaries, an estimate from many intervals where there is an `estimator`, or else the mean of
    the interval, observed once per request. `sources` leaves only some of DISTRIBUTION_SOURCES.
    """

    observed = _WANTED
    sampled = COUNTERS

    def __init__(
        self,
        buckets: Buckets | None = None,
        mailbox: Mailbox | None = None,
        sources: Collection[DistributionSource] = DISTRIBUTION_SOURCES,
        estimator: Estimator | None = None,
    ) -> None:
        self._buckets = buckets or Buckets()
        self._trace_intake = TraceIntake(mailbox) if mailbox is not None else None
        self._allowed = frozenset(sources)
        self._estimator = estimator if "decomposed" in self._allowed else None
        self._counters = Counters()
        self._torn = 0
        self._pending_entered_at = float("-inf")
        self._read_at = float("-inf")
        self._batching: frozenset[ModelVersion] = frozenset()
        self._native = NativeHistograms(triton.FIRST_RESPONSE_MS, _MILLI)
        self._summaries = {signal: Summaries(_SUMMARIES[signal], _MICRO) for signal in SIGNALS}
        self._models: dict[ModelVersion, ObservedModel] = {}
        self._quantile_pool = QuantilePool()
        self._streaming: Mapping[ModelVersion, bool] = {}
        self._has_polled = False
        self._is_ensemble: dict[str, bool] = {}
        self._turn = 0
        self._families = DistributionFamilies(self._buckets)

    def observe_snapshot(self, snapshot: Snapshot) -> None:
        """Learn which models stream, which of them batch, and which are ensembles."""
        if self._trace_intake is not None:
            self._trace_intake.observe_snapshot(snapshot)
        self._streaming = {model: config.decoupled for model, config in snapshot.configs.items()}
        self._batching = frozenset(
            model
            for model, config in snapshot.configs.items()
            if config.dynamic_batching and not config.decoupled and not config.response_cache
        )
        self._has_polled = True
        # By name: Triton counts an ensemble under version 1, whatever its folder is called.
        self._is_ensemble |= {key.model: config.is_ensemble for key, config in snapshot.configs.items()}

    def stored(self, now: float) -> Sequence[StoredModel] | None:
        """Return the models that `restore` continues from; None before Triton's counters were read."""
        if not self._counters.began:
            return None
        models = []
        for version, model in self._models.items():
            requests, executions, micros = self._counters.totals(version)
            models.append(StoredModel(*version, requests, executions, micros, model.stored(now)))
        return models

    def restore(self, models: Iterable[StoredModel], now: float) -> None:
        """Continue from stored models: the first reading then enters what Triton has counted since."""
        known = {ModelVersion(each.model, each.version): each for each in models}
        self._counters.resume(known)
        for version, known_model in known.items():
            model = self._add(version, now)
            model.seen = now
            for signal, histogram in known_model.histograms.items():
                model.observations[signal].restore(histogram)

    def observe(self, exposition: Exposition, now: float) -> None:
        """Enter the gain of one body of Triton's /metrics with all families."""
        self._take_traces(now)
        body = filled(exposition.only(_WANTED), _WANTED)
        native = self._native.update(body)
        summed = {signal: self._summaries[signal].update(body, now) for signal in SIGNALS}
        self._turn = (self._turn + 1) % SUMMARY_TURNS
        for version, gain in self._counters.update(body):
            if not gain.requests and not gain.seconds["request"]:
                for signal in SIGNALS:
                    if self._counts_only_in_summaries(version, signal):
                        gain.requests, gain.seconds[signal] = summed[signal].get(version, (0.0, 0.0))
            self._enter_gain(version, gain, native.get(version), now, has_all_families=True)
        self._close_intervals(now)

    def sample(self, exposition: Exposition, now: float) -> None:
        """Enter the gain of the counters of one body, between two bodies that are observed."""
        self._take_traces(now)
        for version, gain in self._counters.update(filled(exposition.only(COUNTERS), COUNTERS)):
            model = self._models.get(version)
            # Most models are idle between two readings.
            if model is None or model.torn is not None or gain.requests or any(gain.seconds.values()):
                self._enter_gain(version, gain, None, now, has_all_families=False)
            else:
                model.seen = now
        self._close_intervals(now)

    def _enter_gain(
        self,
        version: ModelVersion,
        gain: Gain,
        native: tuple[Binned, float] | None,
        now: float,
        *,
        has_all_families: bool,
    ) -> None:
        model = self._models.get(version) or self._add(version, now)
        model.seen = now
        if self._must_wait(version, model, gain):
            return
        units = gain.executions if version in self._batching and gain.executions else gain.requests
        for signal, observations in model.observations.items():
            seconds = gain.seconds[signal]
            if not has_all_families and (self._summaries[signal].has(version) or self._native.has(version)):
                observations.carried.add(gain.requests, seconds, units)
            elif gain.requests or seconds or observations.carried.requests:
                interval = self._interval(version, signal, gain, units, now)
                if self._estimator is not None:
                    observations.decomposition = self._estimator.get(
                        version, signal, now, units > 1 and interval.lasted <= ESTIMATED_SECONDS
                    )
                self._enter_interval(
                    version, signal, model, interval, native if signal == "request" else None
                )

    def _must_wait(self, version: ModelVersion, model: ObservedModel, gain: Gain) -> bool:
        """Return whether a gain is torn and waits for the next one, to which it is added."""
        if model.torn is not None:
            gain.add(model.torn)
            model.torn = None
        elif gain.is_torn and not self._counts_only_in_summaries(version, "request"):
            self._torn += 1
            model.torn = gain
        return model.torn is not None

    def _interval(
        self, version: ModelVersion, signal: Signal, gain: Gain, units: float, now: float
    ) -> Interval:
        seconds, queued = gain.seconds[signal], gain.seconds["queue"]
        interval = Interval(now, gain.requests, seconds, units, lasted=min(60.0, now - self._read_at))
        # Waits of a batch differ by when its requests arrived, those of others by the work before them.
        if signal == "request" or version in self._batching:
            return interval._replace(waited=queued)
        return interval._replace(worked=max(0.0, gain.seconds["request"] - queued))

    def _close_intervals(self, now: float) -> None:
        watermark = self._trace_intake.watermark(now) if self._trace_intake else float("-inf")
        # All at once: entering one by one costs more, on every reading.
        enter_pending = not 0 <= now - self._pending_entered_at < PENDING_SECONDS
        if enter_pending:
            self._pending_entered_at = now
        if enter_pending or self._trace_intake is not None:
            for model in self._models.values():
                for observations in model.observations.values():
                    observations.close(now, watermark, enter_pending)
        self._drop_gone(now)
        self._read_at = now

    def families(self, now: float) -> Iterable[Family]:
        """Return both histograms, their quantiles and sources."""
        for version, model in self._models.items():
            model.has_queue = self._has_queue(version, model, now)
        yield from self._families.histograms(self._models, now)
        yield Family(own.TORN_READINGS, [Sample(str(own.TORN_READINGS), self._torn)])
        yield from self._families.sources(self._models)
        if self._trace_intake is not None:
            yield from self._trace_intake.families()

    def _has_queue(self, version: ModelVersion, model: ObservedModel, now: float) -> bool:
        """Return whether to show a queue: an ensemble has none, its steps have. Triton's counters come before the
        configuration that tells what a model is, which may also be unreadable.
        """
        is_ensemble = self._is_ensemble.get(version.model)
        if is_ensemble is None:
            return not self._has_polled or now - model.since > UNKNOWN_SECONDS
        return not is_ensemble

    def _enter_interval(
        self,
        version: ModelVersion,
        signal: Signal,
        model: ObservedModel,
        interval: Interval,
        native: tuple[Binned, float] | None,
    ) -> None:
        """Enter one interval with the best shape that is known now, and wait for a better one or not."""
        observations = model.observations[signal]
        shape = self._native_shape(version, interval, native) if native else None
        if shape is not None and set(self._buckets.thresholds.get(signal, ())).issubset(shape.bounds):
            observations.count(interval._replace(source="histogram", shape=shape), wait=False)
            return
        since_trace = interval.end - observations.traced.newest_at
        traced = "trace" in self._allowed and since_trace < TRACED_MODEL_SECONDS
        curve = None
        if "summary" in self._allowed and self._summaries[signal].has(version):
            if model.turn != self._turn and not traced:
                observations.carried.add(interval.requests, interval.seconds)
                return
            curve = self._summaries[signal].curve(version)
        source: DistributionSource = "summary" if curve else "histogram" if shape else "sampled_mean"
        observations.count(interval._replace(source=source, shape=curve or shape), wait=traced)

    def _drop_gone(self, now: float) -> None:
        """Drop model versions that Triton no longer shows: waiting requests at once, series in time."""
        gone = [version for version, model in self._models.items() if model.seen < now]
        for version in gone:
            model = self._models[version]
            torn, model.torn = model.torn, None
            for signal, observations in model.observations.items():
                requests, seconds = (torn.requests, torn.seconds[signal]) if torn else (0.0, 0.0)
                if requests or observations.carried.requests:
                    observations.count(Interval(now, requests, seconds, units=0.0), wait=False)
        gone.sort(key=lambda version: self._models[version].seen, reverse=True)
        for position, version in enumerate(gone):
            if position >= MAX_GONE or now - self._models[version].seen > MEMORY_SECONDS:
                del self._models[version]
                if self._estimator is not None:
                    self._estimator.forget(version)
                if self._trace_intake is not None:
                    self._trace_intake.forget(version)

    def _native_shape(
        self, version: ModelVersion, interval: Interval, native: tuple[Binned, float]
    ) -> Binned | None:
        """Return Triton's own histogram if the first response, which it times, is also the last.

        Where the configuration is unknown, both times must agree, to the millisecond that the histogram cuts off.
        """
        if "histogram" not in self._allowed:
            return None
        shape, seconds = native
        streams = self._streaming.get(version)
        if streams is None:
            streams = abs(interval.seconds - seconds) > interval.requests * _MILLI + 0.02 * interval.seconds
        return None if streams else shape

    def _counts_only_in_summaries(self, version: ModelVersion, signal: Signal) -> bool:
        """Return whether Triton counts only in its summaries (counter_latencies=false)."""
        summed = self._summaries[signal].totals.get(version, 0.0)
        return summed > 0 and self._counters.requests.get(version) == 0

    def _take_traces(self, now: float) -> None:
        if self._trace_intake is not None:
            self._trace_intake.take(now, self._counters.requests)

    def _add(self, version: ModelVersion, now: float) -> ObservedModel:
        model = ObservedModel(
            {signal: self._observations(version, signal, now) for signal in SIGNALS},
            turn=len(self._models) % SUMMARY_TURNS,
            since=now,
        )
        self._models[version] = model
        if self._trace_intake is not None:
            self._trace_intake.add(version, model.observations, now)
        return model

    def _observations(self, version: ModelVersion, signal: Signal, now: float) -> Observations:
        histogram = Histogram(METRICS[signal], version, self._buckets.bounds(version.model, signal))
        guarantee = Guarantee(version, signal, self._buckets.thresholds.get(signal, ()))
        lose: Callable[[str, int], None] = self._trace_intake.lose if self._trace_intake else lambda *_: None
        return Observations(histogram, guarantee, TracedIntervals(lose, now), self._quantile_pool)
