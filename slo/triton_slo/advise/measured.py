"""What Prometheus has of the models' work and configurations: the exporter's series, step by step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from triton_exporter.catalogue import models, triton
from triton_slo.advise.simulate import Setting
from triton_slo.prometheus import Prometheus
from triton_slo.promql import Matchers

ModelKey = tuple[str, str]
"""Model and version."""


@dataclass(frozen=True, slots=True)
class Step:
    """What one server did for a model from one reading to the next, which ended at Unix time `at`."""

    server: str
    at: float
    seconds: float
    executions: float
    inferences: float
    requests: float
    """Requests that succeeded, of which the times are known."""
    failures: float
    queue_seconds: float
    request_seconds: float
    compute_seconds: float
    """As Triton counts it: a batch of 8 adds its time 8 times."""
    busy_seconds: float
    """Time of executions: a batch of 8 adds its time once."""
    squares: float
    """Sum over executions of the square of their inferences."""
    others_busy: Mapping[str, float] = field(default_factory=dict)
    """Executing instances of each other model of that server, on average."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """The configuration of a model, as far as advice depends on it."""

    instances: int = 1
    kind: str = "cpu"
    max_batch_size: int = 0
    dynamic_batching: bool = False
    delay: float = 0.0
    limit: int = 0
    unsupported: tuple[str, ...] = ()
    """What it has that the simulation does not know."""
    steps: tuple[str, ...] = ()
    """Models of an ensemble, in order."""

    def setting(self, rows: int = 1) -> Setting:
        """Return what requests of so many rows meet."""
        batches = self.dynamic_batching and self.max_batch_size > 0
        most = max(1, self.max_batch_size // rows) if batches else 1
        return Setting(self.instances, most, self.delay if batches else 0.0, self.limit if batches else 0)


@dataclass(frozen=True, slots=True)
class Measured:
    """What is known of one model version; `unreadable` is why its configuration is not."""

    model: str
    version: str
    configuration: Configuration
    steps: tuple[Step, ...]
    unreadable: str = ""


_COUNTERS: Mapping[str, str] = {
    "executions": f"{triton.EXEC_COUNT}",
    "inferences": f"{triton.INFERENCE_COUNT}",
    "requests": f"{triton.REQUEST_SUCCESS}",
    "failures": f"{triton.REQUEST_FAILURE}",
    "queue_us": f"{triton.QUEUE_DURATION_US}",
    "request_us": f"{triton.REQUEST_DURATION_US}",
    "input_us": f"{triton.COMPUTE_INPUT_DURATION_US}",
    "infer_us": f"{triton.COMPUTE_INFER_DURATION_US}",
    "output_us": f"{triton.COMPUTE_OUTPUT_DURATION_US}",
    "busy": f"{models.BUSY_SECONDS}",
    "squares": f"{models.BATCH_SIZE_SQUARES}",
}
_OPTIONAL = frozenset({"failures"})
_BY = "by (instance, model, version)"


def read_models(
    prometheus: Prometheus, start: float, end: float, step: float, model: str | None = None
) -> tuple[Measured, ...]:
    """Return what every model, or one of them, did from `start` to `end` (Unix time). Raises PrometheusError.

    What it did under another configuration than the last one is left out.
    """
    own = Matchers().equal("model", model) if model else Matchers()
    readings: dict[tuple[str, str, str], dict[str, dict[float, float]]] = defaultdict(dict)
    for name, metric in _COUNTERS.items():
        # The work of other models tells whether they share a device with this one.
        query = f"sum {_BY} ({metric}{'' if name == 'busy' else own})"
        for series in prometheus.range(query, start, end, step):
            key = tuple(series.labels.get(label, "") for label in ("instance", "model", "version"))
            readings[key][name] = dict(zip(series.times, series.values, strict=True))  # type: ignore[index]
    configurations, changed = _configurations(prometheus, start, end, step, own)
    busy = {key: _growth(counters.get("busy", {}), step) for key, counters in readings.items()}
    found = []
    for own_model, version in sorted({key[1:] for key in readings if model in (None, key[1])}):
        servers = [key for key in readings if key[1:] == (own_model, version)]
        steps = [
            each
            for key in servers
            for each in _steps(key, readings[key], busy, step)
            if each.at - step >= changed.get((own_model, version), 0.0)
        ]
        if (configuration := configurations.get((own_model, version))) is not None:
            found.append(Measured(own_model, version, configuration, tuple(steps)))
        elif any(each.executions for each in steps):
            why = (
                f"no series {models.SCHEDULER_INFO} of it: it is not ready, or its exporter is too old "
                "or reads metrics only"
            )
            found.append(Measured(own_model, version, Configuration(), tuple(steps), why))
    return tuple(found)


def _steps(
    key: tuple[str, str, str],
    counters: Mapping[str, Mapping[float, float]],
    busy: Mapping[tuple[str, str, str], Mapping[float, float]],
    step: float,
) -> list[Step]:
    """Return the steps in which all counters grew or stood still."""
    if _COUNTERS.keys() - _OPTIONAL - counters.keys():
        return []
    grown = {name: _growth(values, step) for name, values in counters.items()}
    others = {other: shares for other, shares in busy.items() if other[0] == key[0] and other[1] != key[1]}
    steps = []
    for at in sorted(set.intersection(*(set(grown[name]) for name in _COUNTERS.keys() - _OPTIONAL))):
        of = {name: values.get(at, 0.0) for name, values in grown.items()}
        steps.append(
            Step(
                server=key[0],
                at=at,
                seconds=step,
                executions=of["executions"],
                inferences=of["inferences"],
                requests=of["requests"],
                failures=of.get("failures", 0.0),
                queue_seconds=of["queue_us"] / 1e6,
                request_seconds=of["request_us"] / 1e6,
                compute_seconds=(of["input_us"] + of["infer_us"] + of["output_us"]) / 1e6,
                busy_seconds=of["busy"],
                squares=of["squares"],
                others_busy={
                    name: shares[at] / step for (_, name, _), shares in others.items() if shares.get(at)
                },
            )
        )
    return steps


def _growth(values: Mapping[float, float], step: float) -> dict[float, float]:
    """Return what a counter grew by in the step that ends at each time; a step with a restart is left out."""
    return {
        at: value - values[at - step]
        for at, value in values.items()
        if at - step in values and value >= values[at - step]
    }


def _configurations(
    prometheus: Prometheus, start: float, end: float, step: float, own: Matchers
) -> tuple[dict[ModelKey, Configuration], dict[ModelKey, float]]:
    """Return the last configuration of each model version, and since when it has had it."""
    seen: dict[ModelKey, dict[float, dict[tuple[str, tuple[tuple[str, str], ...]], float]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for metric in (
        models.INFO,
        models.SCHEDULER_INFO,
        models.MAX_BATCH_SIZE,
        models.INSTANCES,
        models.MAX_QUEUE_DELAY,
        models.QUEUE_SIZE_LIMIT,
        models.QUEUE_TIMEOUT,
        models.RESPONSE_CACHE,
        models.DECOUPLED,
        models.ENSEMBLE_STEP,
    ):
        labels = metric.labels[2:]
        query = f"max by ({', '.join(metric.labels)}) ({metric}{own})"
        for series in prometheus.range(query, start, end, step):
            key = series.labels.get("model", ""), series.labels.get("version", "")
            values = tuple((label, series.labels.get(label, "")) for label in labels)
            for at, value in zip(series.times, series.values, strict=True):
                seen[key][at][metric.name, values] = value
    last, since = {}, {}
    for key, moments in seen.items():
        *_, newest = sorted(moments)
        if not any(name == models.SCHEDULER_INFO.name for name, _ in moments[newest]):
            continue
        other = [at for at, facts in moments.items() if facts != moments[newest]]
        last[key], since[key] = _configuration(moments[newest]), max(other, default=0.0)
    return last, since


def _configuration(facts: Mapping[tuple[str, tuple[tuple[str, str], ...]], float]) -> Configuration:
    by_name: dict[str, list[tuple[dict[str, str], float]]] = defaultdict(list)
    for (name, labels), value in facts.items():
        by_name[name].append((dict(labels), value))

    def value_of(metric: object) -> float:
        return max((value for _, value in by_name[str(metric)]), default=0.0)

    [(scheduler, _), *_] = by_name[models.SCHEDULER_INFO.name]
    instances = by_name[models.INSTANCES.name]
    backend = next((labels["backend"] for labels, _ in by_name[models.INFO.name]), "")
    max_batch = int(value_of(models.MAX_BATCH_SIZE))
    preferred = scheduler["preferred_batch_sizes"]
    unsupported = {
        "sequence batching": scheduler["scheduler"] == "sequence",
        "decoupled responses": value_of(models.DECOUPLED) > 0,
        "priority levels": bool(scheduler["priority_levels"]),
        "a rate limiter": bool(scheduler["rate_limiter"]),
        "a response cache": value_of(models.RESPONSE_CACHE) > 0,
        f"the backend {backend}, which batches by itself": backend in ("vllm", "tensorrtllm"),
        f"preferred batch sizes {preferred}": preferred not in ("", str(max_batch)),
        "a queue timeout": value_of(models.QUEUE_TIMEOUT) > 0,
        "instances of several kinds": len({labels["kind"] for labels, _ in instances}) > 1,
    }
    steps = sorted(
        (int(labels["position"]), labels["step_model"]) for labels, _ in by_name[models.ENSEMBLE_STEP.name]
    )
    return Configuration(
        instances=int(sum(value for _, value in instances)) or 1,
        kind=instances[0][0]["kind"] if instances else "",
        max_batch_size=max_batch,
        dynamic_batching=scheduler["scheduler"] == "dynamic",
        delay=value_of(models.MAX_QUEUE_DELAY),
        limit=int(value_of(models.QUEUE_SIZE_LIMIT)),
        unsupported=tuple(what for what, there in unsupported.items() if there),
        steps=tuple(name for _, name in steps),
    )
