"""The distributions of one Triton: observed at every sampling interval, shown on every scrape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from triton_exporter.catalogue import Metric, own, state, triton
from triton_exporter.distribution.buckets import SIGNALS, Buckets, Signal
from triton_exporter.distribution.histogram import Histogram
from triton_exporter.distribution.increase import Increases
from triton_exporter.family import Family, Sample, series
from triton_exporter.parse import Exposition, Parser
from triton_exporter.snapshot import ModelVersion

LONGEST_REQUEST_SECONDS = 1e6
"""A longer mean (11 days) is Triton's arithmetic, not a request: an unsigned time that fell below zero.

https://github.com/triton-inference-server/server/issues/1985
"""

_METRICS: Mapping[Signal, Metric] = {"request": state.REQUEST_DURATION, "queue": state.QUEUE_DURATION}
_COUNTERS: Mapping[Signal, Metric] = {
    "request": triton.REQUEST_DURATION_US,
    "queue": triton.QUEUE_DURATION_US,
}
_COUNT = triton.REQUEST_SUCCESS.name
_WANTED = frozenset({_COUNT, *(metric.name for metric in _COUNTERS.values())})


@dataclass(slots=True)
class _Account:
    """One histogram with what was counted and could not be observed yet."""

    histogram: Histogram
    source_series: Sample
    discarded_series: str
    requests: float = 0.0
    seconds: float = 0.0
    discarded: float = 0.0


@dataclass(slots=True)
class _Model:
    """The accounts of one model version and when Triton last showed its counters (Unix seconds)."""

    accounts: dict[Signal, _Account]
    seen: float = field(default=0.0)


class Distributions:
    """Collector and Observer (see `family`): for each sampling interval with n new requests of mean m
    seconds, m is observed n times. Sum and count are exact; the spread inside one interval is lost.

    A model version that Triton no longer shows is forgotten after `memory_seconds`.
    """

    def __init__(self, buckets: Buckets | None = None, memory_seconds: float = 900.0) -> None:
        self._buckets = buckets or Buckets()
        self._memory = memory_seconds
        self._parser = Parser()
        self._requests = Increases()
        self._micros = {signal: Increases() for signal in SIGNALS}
        self._models: dict[ModelVersion, _Model] = {}

    def observe(self, exposition: bytes, now: float) -> None:
        """Take in one body of Triton's /metrics."""
        body = self._parser.parse(exposition, _WANTED)
        requests = _grown(self._requests, body, _COUNT)
        micros = {signal: _grown(self._micros[signal], body, _COUNTERS[signal].name) for signal in SIGNALS}
        for owner, count in requests.items():
            model = self._models.get(owner) or self._add(owner)
            model.seen = now
            for signal, account in model.accounts.items():
                _settle(account, count, micros[signal].get(owner, 0.0) / 1e6)
        for owner in [owner for owner, model in self._models.items() if now - model.seen > self._memory]:
            del self._models[owner]

    def families(self, now: float) -> Iterable[Family]:
        """Both histograms, where they come from, and what was too odd to count."""
        models = self._models.values()
        for signal in SIGNALS:
            accounts = [model.accounts[signal] for model in models]
            shown = [sample for account in accounts for sample in account.histogram.samples()]
            yield Family(_METRICS[signal], shown)
        every = [account for model in models for account in model.accounts.values()]
        yield Family(state.DISTRIBUTION_SOURCE, [account.source_series for account in every])
        yield Family(
            own.DISCARDED_REQUESTS, [Sample(account.discarded_series, account.discarded) for account in every]
        )

    def _add(self, owner: ModelVersion) -> _Model:
        model = _Model({signal: self._account(owner, signal) for signal in SIGNALS})
        self._models[owner] = model
        return model

    def _account(self, owner: ModelVersion, signal: Signal) -> _Account:
        histogram = Histogram(_METRICS[signal], owner, self._buckets.bounds(owner.model, signal))
        source = Sample(series(state.DISTRIBUTION_SOURCE, *owner, signal, "sampled_mean"), 1)
        return _Account(histogram, source, series(own.DISCARDED_REQUESTS, *owner, signal))


def _grown(increases: Increases, body: Exposition, name: str) -> Mapping[ModelVersion, float]:
    family = body.families.get(name)
    return increases.take(family, complete=not body.faults) if family else {}


def _settle(account: _Account, requests: float, seconds: float) -> None:
    """Observe what one interval brought.

    Triton adds to its counters one after the other, so a body can hold a request's time without the request;
    that waits for the next interval, and the sum stays exact.
    """
    account.requests += requests
    account.seconds += seconds
    if account.requests <= 0:
        return
    mean = account.seconds / account.requests
    if mean > LONGEST_REQUEST_SECONDS:
        account.discarded += account.requests
    else:
        account.histogram.observe(mean, account.requests)
    account.requests = account.seconds = 0.0
