"""The distributions of one Triton: observed at every sampling interval, shown on every scrape."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from triton_exporter.catalogue import Metric, own, state, triton
from triton_exporter.catalogue.state import DistributionSource
from triton_exporter.distribution.buckets import SIGNALS, Buckets, Signal, le
from triton_exporter.distribution.counters import (
    COUNTERS,
    Counters,
    Gain,
    NativeHistograms,
    Summaries,
    filled,
)
from triton_exporter.distribution.histogram import (
    Binned,
    Guarantee,
    Histogram,
    Interval,
    JoinedSamples,
    QuantilePool,
)
from triton_exporter.distribution.observations import (
    TRACE_GRACE_SECONDS,
    Carried,
    Observations,
    Trace,
    TracedIntervals,
)
from triton_exporter.distribution.state_file import StoredModel
from triton_exporter.exposition.parse import Exposition
from triton_exporter.exposition.write import CachedSamples
from triton_exporter.family import Family, Sample, series_once
from triton_exporter.snapshot import ModelConfig, ModelVersion, Snapshot
from triton_exporter.tracing.trace import LOSSES, OUTCOMES, RESULTS, Mailbox, TracedRequest

if TYPE_CHECKING:
    from triton_exporter.distribution.estimate.estimator import Estimator

_DURATIONS: Mapping[Signal, Metric] = {"request": state.REQUEST_DURATION, "queue": state.QUEUE_DURATION}
_QUANTILES: Mapping[Signal, Metric] = {"request": state.REQUEST_QUANTILE, "queue": state.QUEUE_QUANTILE}
_SUMMARIES: Mapping[Signal, Metric] = {"request": triton.REQUEST_SUMMARY_US, "queue": triton.QUEUE_SUMMARY_US}
_WITHOUT_CURVES = COUNTERS | {triton.FIRST_RESPONSE_MS.name}
_WANTED = _WITHOUT_CURVES | {metric.name for metric in _SUMMARIES.values()}

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
"""Quantile curves of the last minute are read at every fifth `observe`: they hardly move in between."""

TRACED_MODEL_SECONDS = 600.0
"""A model with a traced request this recent has its intervals wait for traces."""

FIRST_TRACE_SECONDS = 60.0
"""Time for which the intervals of a new model wait for its first trace, where traces are received at all."""

MAX_AHEAD_SECONDS = 2.0
"""Seconds by which the clock of a Triton on another machine may be ahead; a trace beyond that is lost."""

TRACE_DOUBT_SECONDS = 300.0
"""Time after a batch that came behind a newer trace for which no trace proves that all older ones have come."""

_MICRO, _MILLI = 1e-6, 1e-3

Configs = Mapping[ModelVersion, ModelConfig]


@dataclass(slots=True)
class ObservedModel:
    """State of one model version; `seen` is when Triton last showed it (Unix seconds), if it does not any more.

    `since` is when it was first seen. `outcomes` are those of its traced requests, `queue_full` how many requests a full queue refused.
    """

    observations: dict[Signal, Observations]
    since: float
    seen: float = 0.0
    torn: Gain | None = None
    outcomes: Counter[str] = field(default_factory=Counter)
    queue_full: float = 0.0
    step_seconds: dict[tuple[str, str], float] = field(
        default_factory=lambda: defaultdict(float)
    )  # by the model called, and the part

    @property
    def is_open(self) -> bool:
        """True if requests wait for the next gain, or for an estimate."""
        waiting = (each.carried.requests or each.has_pending for each in self.observations.values())
        return self.torn is not None or any(waiting)


class TraceIntake:
    """Takes traced requests from the mailbox, and knows until when all of them have come."""

    def __init__(self, mailbox: Mailbox) -> None:
        self.lose = mailbox.count_lost
        self._mailbox = mailbox
        self._newest = self._doubted = float("-inf")

    def take(
        self,
        models: Mapping[ModelVersion, ObservedModel],
        configs: Configs,
        totals: Mapping[ModelVersion, float],
        now: float,
    ) -> None:
        """Enter what has come since the last call; `totals` are Triton's counters of requests."""
        requests = self._mailbox.drain()
        if not requests:
            return
        with self._mailbox.budget.charged():
            known = {version.model for version in models}
            for request in requests:
                # Believed, a date ahead would close every interval until then, and lose the traces of them all.
                if request.ended > now + MAX_AHEAD_SECONDS:
                    self.lose("ahead")
                    continue
                if request.ended < self._newest - TRACE_GRACE_SECONDS:
                    # Triton sends in order: another sender exists, or the trace was delayed.
                    self._doubted = now
                self._newest = max(self._newest, request.ended)
                config = configs.get(request.model)
                model = models.get(_counted_as(request.model, config, totals))
                if model is not None:
                    self._enter(request, model, config)
                    if request.steps and request.outcome == "completed":
                        _enter_steps(request, model, known)

    def _enter(self, request: TracedRequest, model: ObservedModel, config: ModelConfig | None) -> None:
        outcome = request.outcome
        if outcome == "queue_full" and config is not None:
            queues = (config.queue, *config.priority_queues.values())
            if all(queue.max_queue_size <= 0 for queue in queues):
                outcome = "refused"  # a queue without a limit is never full
        model.outcomes[outcome] += 1
        rate = self._mailbox.rate
        if outcome == "queue_full" and model.observations["request"].traced.believes_traces:
            model.queue_full += rate
        is_cached = config is not None and config.response_cache
        if outcome == "completed" or (outcome == "not_executed" and is_cached):
            times = {"request": request.request_seconds, "queue": request.queue_seconds}
            for signal, observations in model.observations.items():
                seconds = times[signal]
                if seconds is not None:
                    observations.traced.add_trace(Trace(request.ended, seconds, request.trace_id, rate))

    def watermark(self, now: float) -> float:
        """Return until when all requests have been traced, as far as the order of the traces proves it."""
        return self._newest if now - self._doubted >= TRACE_DOUBT_SECONDS else float("-inf")

    def families(self, models: Mapping[ModelVersion, ObservedModel]) -> Iterable[Family]:
        """Yield traced requests by outcome, those that a full queue refused, and traces that were lost."""
        yield Family.of(
            state.TRACED_REQUESTS,
            [
                ((*version, outcome), model.outcomes[outcome])
                for version, model in models.items()
                for outcome in OUTCOMES
            ],
        )
        yield Family.of(
            state.QUEUE_FULL_ESTIMATE, [(version, model.queue_full) for version, model in models.items()]
        )
        yield Family.of(
            state.TRACED_STEP_SECONDS,
            [
                ((*version, *part), seconds)
                for version, model in models.items()
                for part, seconds in model.step_seconds.items()
            ],
        )
        lost, batches = self._mailbox.lost(), self._mailbox.batches()
        yield Family.of(own.TRACES_LOST, [((loss,), lost.get(loss, 0)) for loss in LOSSES])
        yield Family.of(own.TRACE_BATCHES, [((result,), batches.get(result, 0)) for result in RESULTS])


def _enter_steps(request: TracedRequest, model: ObservedModel, known: Collection[str]) -> None:
    """Add up where the time of a request went that called other models."""
    called = sum(step.request_seconds for step in request.steps)
    own = max(0.0, request.request_seconds - (request.queue_seconds or 0.0) - called)
    model.step_seconds["", "request"] += request.request_seconds
    model.step_seconds[request.model.model, "compute"] += own
    for step in request.steps:
        if step.model in known:
            model.step_seconds[step.model, "queue"] += step.queue_seconds
            model.step_seconds[step.model, "compute"] += step.request_seconds - step.queue_seconds


def _counted_as(
    version: ModelVersion, config: ModelConfig | None, totals: Mapping[ModelVersion, float]
) -> ModelVersion:
    """Return under which version Triton counts a request: 1 for an ensemble, whatever its folder is called.

    `totals` are its counters: a Triton that counts an ensemble under its own version is believed.
    https://github.com/triton-inference-server/core/blob/main/src/ensemble_scheduler/ensemble_scheduler.cc
    """
    first = ModelVersion(version.model, "1")
    is_ensemble = config is not None and config.is_ensemble
    return first if is_ensemble and first in totals and not totals.get(version) else version


class Distributions:
    """Collector, MetricsObserver and SnapshotObserver (see `app.exporter`): one pair of histograms per model version.

    Triton's counters show how many requests each sampling interval brought and how long they took in all, so
    count and sum are exact. How they spread comes from the best source there is for the model: Triton's own
    histogram, traces, summaries, an estimate from many intervals where there is an `estimator`, or else the mean of
    the interval, observed once per request.
    """

    sampled = COUNTERS

    def __init__(
        self,
        buckets: Buckets | None = None,
        mailbox: Mailbox | None = None,
        estimator: Estimator | None = None,
    ) -> None:
        self._buckets = buckets or Buckets()
        self._trace_intake = TraceIntake(mailbox) if mailbox is not None else None
        self._estimator = estimator
        self._counters = Counters()
        self._native = NativeHistograms(triton.FIRST_RESPONSE_MS, _MILLI)
        self._summaries = {signal: Summaries(_SUMMARIES[signal], _MICRO) for signal in SIGNALS}
        self._quantile_pool = QuantilePool()
        self._models: dict[ModelVersion, ObservedModel] = {}
        self._configs: Configs = {}
        self._has_polled = False
        self._is_ensemble: dict[str, bool] = {}
        self._open: set[ModelVersion] = set()
        """Model versions that gained lately, or of which requests wait: the others have nothing to enter."""
        self._gone: Set[ModelVersion] = frozenset()
        """Those that Triton does not show any more."""
        self._torn = 0
        self._turn = 0
        self.is_told = False
        self._read_at = self._pending_entered_at = float("-inf")
        self._shown_sources: list[tuple[ModelVersion, Signal, DistributionSource]] | None = None
        self._source_samples = CachedSamples([])

    def observe_snapshot(self, snapshot: Snapshot) -> None:
        """Learn which models stream, batch or cache, are ensembles, or have a queue without a limit."""
        self._has_polled = True
        if snapshot.configs is self._configs:
            return
        self._configs = snapshot.configs
        # By name: Triton counts an ensemble under version 1, whatever its folder is called.
        self._is_ensemble |= {key.model: config.is_ensemble for key, config in snapshot.configs.items()}

    def stored(self, now: float) -> Sequence[StoredModel] | None:
        """Return the models that `restore` continues from; None before Triton's counters were read."""
        counters = self._counters
        if not counters.requests.began:
            return None
        models = []
        for version, model in self._models.items():
            histograms = {}
            for signal, observations in model.observations.items():
                torn = Carried()
                if model.torn is not None:
                    torn = Carried(model.torn.requests, model.torn.seconds[signal], model.torn.requests)
                histograms[signal] = observations.stored(torn, now)
            models.append(
                StoredModel(
                    *version,
                    counters.requests.totals.get(version, 0.0),
                    counters.executions.totals.get(version, 0.0),
                    {signal: counters.micros[signal].totals.get(version, 0.0) for signal in SIGNALS},
                    histograms,
                )
            )
        return models

    def restore(self, models: Iterable[StoredModel], now: float) -> None:
        """Continue from stored models: the first reading then enters what Triton has counted since."""
        known = {ModelVersion(each.model, each.version): each for each in models}
        self._counters.resume(known)
        for version, known_model in known.items():
            model = self._add(version, now)
            model.seen = now
            self._open.add(version)
            for signal, histogram in known_model.histograms.items():
                model.observations[signal].restore(histogram)

    @property
    def observed(self) -> Set[str]:
        """The names of the families that the next `observe` reads."""
        return _WITHOUT_CURVES if self._turn else _WANTED

    def observe(self, exposition: Exposition, now: float) -> None:
        """Enter the gain of one body of Triton's /metrics with the families `observed`."""
        self._take_traces(now)
        read = self.observed
        body = filled(exposition.only(read), read)
        native = self._native.update(body)
        summed = {signal: self._summaries[signal].update(body, now) for signal in SIGNALS}
        self._turn = (self._turn + 1) % SUMMARY_TURNS
        also = self._open.union(*summed.values())
        for version, gain in self._counters.update(body, also):
            if not gain.requests and not gain.seconds["request"]:
                for signal in SIGNALS:
                    if self._counts_only_in_summaries(version, signal):
                        gain.requests, gain.seconds[signal] = summed[signal].get(version, (0.0, 0.0))
            self._enter_gain(version, gain, native.get(version), now, read)
        if read is _WANTED:
            versions = self._counters.requests.present
            others = ((version, of) for of in SIGNALS for version in versions - self._summaries[of].models)
            self.is_told = bool(versions) and all(self._waits(*each, COUNTERS) for each in others)
        self._close_intervals(now)

    def sample(self, exposition: Exposition, now: float) -> None:
        """Enter the gain of the counters of one body, between two bodies that are observed."""
        self._take_traces(now)
        body = filled(exposition.only(COUNTERS), COUNTERS)
        for version, gain in self._counters.update(body, self._open.copy()):
            model = self._models.get(version)
            if model is None or model.torn is not None or gain.requests or any(gain.seconds.values()):
                self._enter_gain(version, gain, None, now, COUNTERS)
        self._close_intervals(now)

    def families(self, now: float) -> Iterable[Family]:
        """Return both histograms, their quantiles, what is known about their errors, and their sources."""
        every: list[tuple[ModelVersion, Signal, Observations]] = []
        for version, model in self._models.items():
            # An ensemble has no queue, its steps have. Triton's counters come before the configuration that tells
            # what a model is, which may also be unreadable.
            is_ensemble = self._is_ensemble.get(version.model)
            if is_ensemble is None:
                is_ensemble = self._has_polled and now - model.since <= UNKNOWN_SECONDS
            shown: Sequence[Signal] = ("request",) if is_ensemble else SIGNALS
            every += [(version, signal, model.observations[signal]) for signal in shown]
        for signal in SIGNALS:
            histograms = [each.histogram for _, of, each in every if of == signal]
            yield Family(_DURATIONS[signal], JoinedSamples(histograms))
        for signal in SIGNALS:
            rows: list[tuple[tuple[str, ...], float]] = []
            for version, of, each in every:
                if of == signal and each.quantiles is not None:
                    if not each.quantiles.forget(now):
                        each.quantiles = None
                    elif each.source != "sampled_mean":
                        values = each.quantiles.values()
                        rows += [((*version, f"{level:g}"), seconds) for level, seconds in values]
            yield Family.of(_QUANTILES[signal], rows)
        yield Family(state.REQUESTS_WITHIN, JoinedSamples([each.guarantee for _, _, each in every]))
        errors = [
            ((*version, signal, le(bound)), error)
            for version, signal, each in every
            if each.decomposition is not None and each.source == "decomposed"
            for bound, error in zip(
                self._buckets.with_stated_error(version.model, signal),
                each.decomposition.errors,
                strict=False,
            )
        ]
        yield Family.of(state.DISTRIBUTION_ERROR, errors)
        yield Family.single(own.TORN_READINGS, self._torn)
        sources = [(version, signal, each.source) for version, signal, each in every]
        if sources != self._shown_sources:
            self._shown_sources = sources
            self._source_samples = CachedSamples(
                Sample(series_once(state.DISTRIBUTION_SOURCE, *version, *of), 1) for version, *of in sources
            )
        yield Family(state.DISTRIBUTION_SOURCE, self._source_samples)
        if self._trace_intake is not None:
            yield from self._trace_intake.families(self._models)

    def _take_traces(self, now: float) -> None:
        if self._trace_intake is not None:
            self._trace_intake.take(self._models, self._configs, self._counters.requests.totals, now)

    def _waits(self, version: ModelVersion, signal: Signal, read: Collection[str]) -> bool:
        """Return whether the best that Triton tells about how these times spread was not `read`."""
        config = self._configs.get(version)
        has_summary = version in self._summaries[signal].models
        # Its histogram times the first response: it shows no waits, and no streams.
        if signal == "request" and not (config is not None and config.decoupled):
            needed = self._buckets.thresholds.get(signal, ()) if has_summary else ()
            if self._native.has(version, needed):
                return triton.FIRST_RESPONSE_MS.name not in read
        return has_summary and _SUMMARIES[signal].name not in read

    def _counts_only_in_summaries(self, version: ModelVersion, signal: Signal) -> bool:
        """Return whether Triton counts only in its summaries (counter_latencies=false)."""
        summed = self._summaries[signal].counts.totals.get(version, 0.0)
        return summed > 0 and self._counters.requests.totals.get(version) == 0

    def _enter_gain(
        self,
        version: ModelVersion,
        gain: Gain,
        native: tuple[Binned, float] | None,
        now: float,
        read: Collection[str],
    ) -> None:
        model = self._models.get(version) or self._add(version, now)
        self._open.add(version)
        if model.torn is not None:
            torn, model.torn = model.torn, None
            gain.requests += torn.requests
            gain.executions += torn.executions
            for signal in SIGNALS:
                gain.seconds[signal] += torn.seconds[signal]
        elif (gain.requests > 0) != (gain.seconds["request"] > 0) and not self._counts_only_in_summaries(
            version, "request"
        ):
            # Triton adds to its counters one after the other, and the reading came in between: this gain waits.
            self._torn += 1
            model.torn = gain
            return
        config = self._configs.get(version)
        batches = config is not None and (
            config.dynamic_batching and not config.decoupled and not config.response_cache
        )
        units = gain.executions if batches and gain.executions else gain.requests
        queued = gain.seconds["queue"]
        lasted = min(60.0, now - self._read_at)
        for signal, observations in model.observations.items():
            seconds = gain.seconds[signal]
            if self._waits(version, signal, read):
                observations.carry(gain.requests, seconds, units)
            elif gain.requests or seconds or observations.carried.requests:
                interval = Interval(now, gain.requests, seconds, units, lasted)
                # Waits of a batch differ by when its requests arrived, those of others by the work before them.
                if signal == "request" or batches:
                    interval = interval._replace(waited=queued)
                else:
                    interval = interval._replace(worked=max(0.0, gain.seconds["request"] - queued))
                native_now = native if signal == "request" else None
                self._enter_interval(version, signal, model, interval, native_now)

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
        shape = None
        if native is not None:
            # Triton's own histogram times the first response: it serves only if that is also the last. Where the
            # configuration is unknown, both times must agree, to the millisecond that the histogram cuts off.
            config, seconds = self._configs.get(version), native[1]
            tolerance = interval.requests * _MILLI + 0.02 * interval.seconds
            streams = config.decoupled if config else abs(interval.seconds - seconds) > tolerance
            shape = None if streams else native[0]
        if shape is not None and set(self._buckets.thresholds.get(signal, ())).issubset(shape.bounds):
            observations.count(interval._replace(source="histogram", shape=shape), wait=False)
            return
        traced = interval.end - observations.traced.newest_at < TRACED_MODEL_SECONDS
        curve = self._summaries[signal].curve(version)
        source: DistributionSource = "summary" if curve else "histogram" if shape else "sampled_mean"
        if self._estimator is not None:
            needed = source == "sampled_mean" and interval.units > 1 and interval.lasted <= ESTIMATED_SECONDS
            observations.decomposition = self._estimator.get(version, signal, interval.end, needed)
        observations.count(interval._replace(source=source, shape=curve or shape), wait=traced)

    def _close_intervals(self, now: float) -> None:
        watermark = self._trace_intake.watermark(now) if self._trace_intake else float("-inf")
        # All at once: entering one by one costs more, on every reading.
        enter_pending = not 0 <= now - self._pending_entered_at < PENDING_SECONDS
        if enter_pending:
            self._pending_entered_at = now
        if enter_pending or self._trace_intake is not None:
            for version, model in self._models.items():
                if self._trace_intake is not None or version in self._open:
                    for observations in model.observations.values():
                        observations.close(now, watermark, enter_pending)
        if enter_pending:
            self._open = {version for version in self._open if self._models[version].is_open}
        self._drop_gone(now)
        self._read_at = now

    def _drop_gone(self, now: float) -> None:
        """Drop model versions that Triton no longer shows: waiting requests at once, series in time."""
        gone_before, self._gone = self._gone, self._models.keys() - self._counters.requests.present
        gone = [version for version in self._models if version in self._gone] if self._gone else []
        for version in gone:
            model = self._models[version]
            if version not in gone_before:
                model.seen = max(model.seen, self._read_at)
            torn, model.torn = model.torn, None
            for signal, observations in model.observations.items():
                requests, seconds = (torn.requests, torn.seconds[signal]) if torn else (0.0, 0.0)
                if requests or observations.carried.requests:
                    observations.count(Interval(now, requests, seconds, units=0.0), wait=False)
        gone.sort(key=lambda version: self._models[version].seen, reverse=True)
        for position, version in enumerate(gone):
            if position >= MAX_GONE or now - self._models[version].seen > MEMORY_SECONDS:
                del self._models[version]
                self._open.discard(version)
                if self._estimator is not None:
                    self._estimator.forget(version)

    def _add(self, version: ModelVersion, now: float) -> ObservedModel:
        lose: Callable[[str, int], None] = self._trace_intake.lose if self._trace_intake else lambda *_: None
        observations = {}
        for signal in SIGNALS:
            bounds = self._buckets.bounds(version.model, signal)
            observations[signal] = Observations(
                Histogram(_DURATIONS[signal], version, bounds),
                Guarantee(version, signal, self._buckets.thresholds.get(signal, ())),
                TracedIntervals(lose, closed=now),
                self._quantile_pool,
            )
            if self._trace_intake is not None:
                # It may wait for its first trace.
                observations[signal].traced.newest_at = now - TRACED_MODEL_SECONDS + FIRST_TRACE_SECONDS
        model = ObservedModel(observations, since=now)
        self._models[version] = model
        return model
