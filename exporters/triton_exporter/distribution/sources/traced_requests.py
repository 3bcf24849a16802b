"""Traced requests on their way from the mailbox into the observations of their models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from triton_exporter.catalogue import own, state
from triton_exporter.distribution.buckets import Signal
from triton_exporter.distribution.increase import counted_as
from triton_exporter.distribution.observations import Observations
from triton_exporter.distribution.shape import Trace
from triton_exporter.distribution.waiting.traced_intervals import TRACE_GRACE_SECONDS
from triton_exporter.family import Family, Sample, series
from triton_exporter.snapshot import ModelVersion, Snapshot
from triton_exporter.tracing.trace import LOSSES, OUTCOMES, RESULTS, Mailbox, TracedRequest

TRACED_MODEL_SECONDS = 600.0
"""A model with a traced request this recent has its intervals wait for traces."""

FIRST_TRACE_SECONDS = 60.0
"""Time for which the intervals of a new model wait for its first trace, where traces are received at all."""

MAX_AHEAD_SECONDS = 2.0
"""Seconds by which the clock of a Triton on another machine may be ahead; a trace beyond that is lost."""

TRACE_DOUBT_SECONDS = 300.0
"""Time after a batch that came behind a newer trace for which no trace proves that all older ones have come."""


@dataclass(slots=True)
class _Traced:
    """The traced requests of one model version by outcome, and how many requests a full queue refused."""

    observations: Mapping[Signal, Observations]
    outcomes: Counter[str] = field(default_factory=Counter)
    queue_full: float = 0.0


class TraceIntake:
    """Takes traced requests from the mailbox, and knows until when all of them have come."""

    def __init__(self, mailbox: Mailbox) -> None:
        self.lose = mailbox.count_lost
        self._mailbox = mailbox
        self._models: dict[ModelVersion, _Traced] = {}
        self._cached: frozenset[ModelVersion] = frozenset()
        self._ensembles: frozenset[ModelVersion] = frozenset()
        self._unlimited: frozenset[ModelVersion] = frozenset()
        self._newest = self._doubted = float("-inf")

    def observe_snapshot(self, snapshot: Snapshot) -> None:
        """Learn which models have a response cache or a queue without a limit, or are ensembles."""
        configs = snapshot.configs.items()
        self._cached = frozenset(model for model, config in configs if config.response_cache)
        self._ensembles = frozenset(model for model, config in configs if config.is_ensemble)
        self._unlimited = frozenset(
            model
            for model, config in configs
            if all(queue.max_queue_size <= 0 for queue in (config.queue, *config.priority_queues.values()))
        )

    def add(self, version: ModelVersion, of_signals: Mapping[Signal, Observations], now: float) -> None:
        """Enter the traced requests of a model version there, and let it wait for the first of them."""
        self._models[version] = _Traced(of_signals)
        for observations in of_signals.values():
            observations.traced.newest_at = now - TRACED_MODEL_SECONDS + FIRST_TRACE_SECONDS

    def forget(self, version: ModelVersion) -> None:
        """Drop a model version that has gone."""
        del self._models[version]

    def take(self, now: float, totals: Mapping[ModelVersion, float]) -> None:
        """Enter what has come since the last call; `totals` are Triton's counters of requests."""
        if requests := self._mailbox.drain():
            with self._mailbox.budget.charged():
                for request in requests:
                    self._accept(request, now, totals)

    def _accept(self, request: TracedRequest, now: float, totals: Mapping[ModelVersion, float]) -> None:
        # Believed, a date ahead would close every interval until then, and lose the traces of them all.
        if request.ended > now + MAX_AHEAD_SECONDS:
            self.lose("ahead")
            return
        if request.ended < self._newest - TRACE_GRACE_SECONDS:
            # Triton sends in order: another sender exists, or the trace was delayed.
            self._doubted = now
        self._newest = max(self._newest, request.ended)
        model = self._models.get(counted_as(request.model, self._ensembles, totals))
        if model:
            self._enter(model, request, self._mailbox.rate)

    def _enter(self, model: _Traced, request: TracedRequest, rate: float) -> None:
        outcome = request.outcome
        if outcome == "queue_full" and request.model in self._unlimited:
            outcome = "refused"
        model.outcomes[outcome] += 1
        if outcome == "queue_full" and model.observations["request"].traced.believes_traces:
            model.queue_full += rate
        if outcome == "completed" or (outcome == "not_executed" and request.model in self._cached):
            times = {"request": request.request_seconds, "queue": request.queue_seconds}
            for signal, observations in model.observations.items():
                seconds = times[signal]
                if seconds is not None:
                    observations.traced.add_trace(Trace(request.ended, seconds, request.trace_id, rate))

    def watermark(self, now: float) -> float:
        """Return until when all requests have been traced, as far as the order of the traces proves it."""
        return self._newest if now - self._doubted >= TRACE_DOUBT_SECONDS else float("-inf")

    def families(self) -> Iterable[Family]:
        """Yield traced requests by outcome, those that a full queue refused, and traces that were lost."""
        traced, full = state.TRACED_REQUESTS, state.QUEUE_FULL_ESTIMATE
        models = self._models.items()
        yield Family(
            traced,
            [
                Sample(series(traced, *version, outcome), model.outcomes[outcome])
                for version, model in models
                for outcome in OUTCOMES
            ],
        )
        yield Family(full, [Sample(series(full, *version), model.queue_full) for version, model in models])
        lost, batches = self._mailbox.lost(), self._mailbox.batches()
        yield Family(
            own.TRACES_LOST, [Sample(series(own.TRACES_LOST, loss), lost.get(loss, 0)) for loss in LOSSES]
        )
        yield Family(
            own.TRACE_BATCHES,
            [Sample(series(own.TRACE_BATCHES, result), batches.get(result, 0)) for result in RESULTS],
        )
