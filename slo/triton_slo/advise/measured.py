"""What Prometheus has of the models: their work step by step, their configurations, and how far objectives were met."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import groupby
from typing import Any, Literal

import numpy as np

from triton_exporter.catalogue import models, triton
from triton_exporter.catalogue.metric import Metric
from triton_slo.advise.simulate import Setting
from triton_slo.artifact import Options
from triton_slo.backtest.history import NoSeriesError, fetch
from triton_slo.indicators import Latency, Queue
from triton_slo.objective.model import Objective
from triton_slo.plan import Plan
from triton_slo.prometheus import Prometheus
from triton_slo.promql import Matchers, by, regex_of

NEAR = 1.5
"""An estimated share of bad requests within so many times the allowed one proves nothing."""


@dataclass(frozen=True, slots=True)
class Step:
    """What one server did for a model from one reading to the next, which ended at Unix time `at`.

    `requests` succeeded, and their times are known; by `waiting` the queue grew. In `compute_seconds` a batch of 8 adds its
    time 8 times, in `busy_seconds` once. `squares` adds the square of the inferences of each execution. `others_busy` is how many
    instances of each other model of that server were executing, on average.
    """

    server: str = ""
    at: float = 0.0
    seconds: float = 0.0
    executions: float = 0.0
    inferences: float = 0.0
    requests: float = 0.0
    failures: float = 0.0
    waiting: float = 0.0
    queue_seconds: float = 0.0
    request_seconds: float = 0.0
    compute_seconds: float = 0.0
    busy_seconds: float = 0.0
    squares: float = 0.0
    others_busy: Mapping[str, float] = field(default_factory=dict)

    @property
    def came(self) -> float:
        """Requests that came: what was answered, or joined the queue."""
        return self.requests + self.failures + self.waiting

    @property
    def rate(self) -> float:
        """Requests that were answered in a second."""
        return self.requests / self.seconds


_COUNTERS: Mapping[str, tuple[object, float]] = {
    "executions": (triton.EXEC_COUNT, 1),
    "inferences": (triton.INFERENCE_COUNT, 1),
    "requests": (triton.REQUEST_SUCCESS, 1),
    "failures": (triton.REQUEST_FAILURE, 1),
    "waiting": (triton.PENDING_REQUESTS, 1),
    "queue_seconds": (triton.QUEUE_DURATION_US, 1e-6),
    "request_seconds": (triton.REQUEST_DURATION_US, 1e-6),
    "compute_seconds": ("nv_inference_compute_(input|infer|output)_duration_us", 1e-6),
    "busy_seconds": (models.BUSY_SECONDS, 1),
    "squares": (models.BATCH_SIZE_SQUARES, 1),
}
"""Field of a step -> regular expression of its counters, and their unit."""


def total(steps: Iterable[Step]) -> Step:
    """Return the sums over steps, as of the last one."""
    every = tuple(steps)
    sums: dict[str, Any] = {
        name: math.fsum(getattr(step, name) for step in every) for name in ("seconds", *_COUNTERS)
    }
    return Step(at=max((step.at for step in every), default=0.0), **sums)


def totals(steps: Iterable[Step], key: Callable[[Step], Any]) -> list[Step]:
    """Return the sums over the steps of each key, by key."""
    return [total(own) for _, own in groupby(sorted(steps, key=key), key)]


@dataclass(frozen=True, slots=True)
class Configuration:
    """The configuration of a model, as far as advice depends on it.

    `instances` are those on all `gpus`, each of which has as many. `unsupported` is what it has that the simulation does not know; `steps` are the models of an ensemble.
    """

    instances: int = 1
    kind: str = "cpu"
    gpus: int = 1
    max_batch_size: int = 0
    dynamic_batching: bool = False
    delay: float = 0.0
    limit: int = 0
    unsupported: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()

    def setting(self, rows: int = 1) -> Setting:
        """Return what requests of so many rows meet."""
        if not self.dynamic_batching or not (self.max_batch_size or self.limit):
            return Setting(self.instances)
        return Setting(self.instances, max(1, self.max_batch_size // rows), self.delay, self.limit)


@dataclass(frozen=True, slots=True)
class Promise:
    """An objective on one model version: a share `target` of requests waits, or takes, at most `threshold` seconds.

    `good` is the share that did in the `seconds` that were measured, as estimated; None if it is not known.
    """

    slo: str
    signal: Literal["queue", "latency"]
    target: float
    threshold: float
    good: float | None = None
    seconds: float = 0.0

    @property
    def verb(self) -> str:
        return "wait" if self.signal == "queue" else "take"

    @property
    def holds(self) -> bool | None:
        """Whether it was met in the time that was measured; None where the estimate is too near the target to say so."""
        bad, allowed = math.inf if self.good is None else 1 - self.good, 1 - self.target
        return None if self.good is None or allowed / NEAR < bad < NEAR * allowed else bad < allowed


_Model = tuple[str, str]
"""Name and version."""
_Fact = tuple[tuple[tuple[str, str], ...], float]
"""Series of a configuration at one moment: labels, with the name, and value."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What is known of one model version; without a configuration, its exporter does not export it.

    `fewer` are the sums of what it did before with fewer instances, all else being configured as now.
    """

    model: str
    version: str
    configuration: Configuration | None
    steps: tuple[Step, ...]
    promises: tuple[Promise, ...] = ()
    fewer: Step = field(default_factory=Step)


_ANY_SERVER = Matchers()


def read_models(
    prometheus: Prometheus,
    start: float,
    end: float,
    step: float,
    model: str | None = None,
    objectives: Iterable[Objective] = (),
    within: Matchers = _ANY_SERVER,
) -> tuple[Measured, ...]:
    """Return what every model, or one of them, did from `start` to `end` (Unix time) on the servers `within`, and what of
    these objectives concerns its waits and latency. Raises PrometheusError.

    What it did, and how far objectives were met, under another configuration than the last one is left out, but for `fewer`.
    """
    own = within.equal("model", model) if model else within
    grown: dict[tuple[str, str, str], dict[str, dict[float, float]]] = defaultdict(dict)
    for name, (metric, unit) in _COUNTERS.items():
        # The work of all other models tells whether they share a device with this one.
        of = (within if name == "busy_seconds" else own).also(f'__name__=~"{metric}"')
        for series in prometheus.range(f"sum by (instance, model, version) ({of})", start, end, step):
            labels = series.labels
            key = labels["instance"], labels.get("model", ""), labels.get("version", "")
            values = dict(zip(series.times, series.values, strict=True))
            # A step in which a server began again at 0 is left out; but a queue may get shorter.
            grown[key][name] = {
                at: unit * (value - values[at - step])
                for at, value in values.items()
                if value >= values.get(at - step, math.inf) or (name == "waiting" and at - step in values)
            }
    facts = _facts(prometheus, start, end, step, own)
    found: dict[_Model, list[Step]] = defaultdict(list)
    for (server, name, version), counters in sorted(grown.items()):
        if (model not in (None, name)) or "executions" not in counters:
            continue
        others = [key for key in grown if key[0] == server and key[1] != name]
        steps = found[name, version]  # also of a model that Prometheus has just begun to scrape
        for moment in counters["executions"]:
            if all(moment in values for values in counters.values()):
                busy = {key[1]: grown[key].get("busy_seconds", {}).get(moment, 0.0) / step for key in others}
                sums: dict[str, Any] = {counter: values[moment] for counter, values in counters.items()}
                steps.append(Step(server, moment, step, **sums, others_busy=busy))
    read = [_as_configured_now(*key, steps, facts.get(key, {})) for key, steps in found.items()]
    promises = _promises(prometheus, objectives, read, start, end, step)
    return tuple(replace(each, promises=tuple(promises[each.model, each.version])) for each in read)


def _as_configured_now(
    model: str, version: str, steps: Sequence[Step], facts: Mapping[float, tuple[_Fact, ...]]
) -> Measured:
    """Return a model version, of whose steps only those count in which its facts were those of the last of these moments.

    They tell another backend or GPU, too, on which nothing that was measured before holds.
    """
    newest = facts[max(facts)] if facts else ()
    now = _configuration(newest)
    if now is None:
        return Measured(model, version, None, tuple(steps))
    since = max((at for at, of_then in facts.items() if of_then != newest), default=0.0)

    def had_fewer(at: float) -> bool:
        one = _configuration(facts.get(at, newest)) or now
        return one.instances < now.instances and replace(one, instances=now.instances) == now

    own = tuple(each for each in steps if each.at - each.seconds >= since)
    fewer = total(each for each in steps if had_fewer(each.at - each.seconds) and had_fewer(each.at))
    return Measured(model, version, now, own, fewer=fewer)


def _facts(
    prometheus: Prometheus, start: float, end: float, step: float, own: Matchers
) -> dict[_Model, dict[float, tuple[_Fact, ...]]]:
    """Return the facts of the configuration of each model version at each moment."""
    known = models.CONFIGURATION
    named = own.also(f'__name__=~"{regex_of([metric.name for metric in known])}"')
    labels = dict.fromkeys(("__name__", *(label for metric in known for label in metric.labels)))
    seen: dict[_Model, dict[float, tuple[_Fact, ...]]] = defaultdict(lambda: defaultdict(tuple))
    for series in prometheus.range(f"max {by(labels)} ({named})", start, end, step):
        key = series.labels.get("model", ""), series.labels.get("version", "")
        for at, value in zip(series.times, series.values, strict=True):
            seen[key][at] += ((tuple(series.labels.items()), value),)
    return seen


@lru_cache  # most moments are as the one before
def _configuration(facts: tuple[_Fact, ...]) -> Configuration | None:
    def of(metric: Metric) -> list[tuple[dict[str, str], float]]:
        name = "__name__", metric.name
        return [(defaultdict(str, labels), value) for labels, value in facts if name in labels]

    def value_of(metric: Metric) -> float:
        return max((value for _, value in of(metric)), default=0.0)

    scheduler = next((labels for labels, _ in of(models.SCHEDULER_INFO)), None)
    if scheduler is None:
        return None
    backend = next((labels["backend"] for labels, _ in of(models.INFO)), "")
    instances = of(models.INSTANCES)
    max_batch = int(value_of(models.MAX_BATCH_SIZE))
    preferred = scheduler["preferred_batch_sizes"]
    unsupported = {
        "sequence batching": scheduler["scheduler"] == "sequence",
        "decoupled responses": value_of(models.DECOUPLED) > 0,
        "priority levels": bool(scheduler["priority_levels"]),
        "a rate limiter": bool(scheduler["rate_limiter"]),
        "a response cache": value_of(models.RESPONSE_CACHE) > 0,
        f"the backend {backend}, which batches by itself": backend in ("vllm", "tensorrtllm"),
        # Triton itself prefers full batches where there is a delay.
        f"preferred batch sizes {preferred}": preferred not in ("", str(max_batch)),
        "a queue timeout": value_of(models.QUEUE_TIMEOUT) > 0,
        "instances of several kinds": len({labels["kind"] for labels, _ in instances}) > 1,
    }
    steps = sorted((int(labels["position"]), labels["step_model"]) for labels, _ in of(models.ENSEMBLE_STEP))
    return Configuration(
        instances=int(sum(value for _, value in instances)) or 1,
        kind=instances[0][0]["kind"] if instances else "",
        gpus=max(1, len(instances)),
        max_batch_size=max_batch,
        dynamic_batching=scheduler["scheduler"] == "dynamic",
        delay=value_of(models.MAX_QUEUE_DELAY),
        limit=int(value_of(models.QUEUE_SIZE_LIMIT)),
        unsupported=tuple(what for what, there in unsupported.items() if there),
        steps=tuple(name for _, name in steps),
    )


def _promises(
    prometheus: Prometheus,
    objectives: Iterable[Objective],
    models: Sequence[Measured],
    start: float,
    end: float,
    step: float,
) -> dict[_Model, list[Promise]]:
    since = {
        (each.model, each.version): min((one.at for one in each.steps), default=math.inf) for each in models
    }
    promises: dict[_Model, list[Promise]] = defaultdict(list)
    for objective in objectives if models else ():
        indicator = objective.indicator
        if not isinstance(indicator, Latency | Queue) or getattr(indicator, "gateway", False):
            continue
        good: dict[tuple[str, ...], tuple[float, float]] = {}
        with suppress(NoSeriesError):
            plan = Plan(objective, Options(scrape_interval_seconds=step))
            history = fetch(prometheus, [plan], start, end, step, recorded=False)
            for (_, *key), bad, events in zip(history.keys, history.bad, history.total, strict=True):
                counted = (history.times >= since.get((key[0], key[1]), math.inf)) & (events > 0)
                if counted.any():
                    share = 1 - float(np.sum(bad[counted]) / np.sum(events[counted]))
                    good[tuple(key)] = share, step * float(np.sum(counted))
        for own in since:
            target, threshold = objective.resolve(*own) or (0.0, None)
            if threshold is not None:
                promise = Promise(objective.name, indicator.kind, target, threshold, *good.get(own, ()))
                promises[own].append(promise)
    return promises
