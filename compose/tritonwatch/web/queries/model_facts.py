"""Facts about a model beside its objectives: traffic, phases, GPUs and limits, one query each."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from triton_dashboards.traffic import PHASES
from triton_exporter.catalogue import Metric, gpu, models, state, triton
from triton_exporter.common.duration import time_text
from triton_slo import names
from triton_slo.prometheus import Prometheus, Sample
from triton_slo.promql import Matchers, quote, regex_of

_WHAT = "what"
"""Label that keeps the parts of one query apart."""
_LIMITS: tuple[Metric, ...] = (
    models.INFO,
    models.INSTANCES,
    models.MAX_BATCH_SIZE,
    models.MAX_QUEUE_DELAY,
    models.QUEUE_SIZE_LIMIT,
    models.QUEUE_TIMEOUT,
    models.RESPONSE_CACHE,
    models.DECOUPLED,
    models.ENSEMBLE_STEP,
)
_OF_GPU: tuple[tuple[str, Metric], ...] = (
    ("utilization", gpu.UTILIZATION),
    ("sm_active", gpu.SM_ACTIVE),
    ("memory_used", gpu.MEMORY_USED),
    ("memory_total", gpu.MEMORY_TOTAL),
    ("power", gpu.POWER),
    ("temperature", gpu.TEMPERATURE),
)
_OF_MODEL_ON_GPU: tuple[tuple[str, Metric], ...] = (
    ("caused", gpu.MODEL_UTILIZATION),
    ("memory", gpu.MODEL_MEMORY),
)
_DEVICE = ("cluster", "instance", "gpu_uuid", "gpu_instance_id")


@dataclass(frozen=True, slots=True)
class TrafficFacts:
    """Traffic of two minutes over all servers and versions; None is not known or, of shares, no traffic."""

    requests: float | None = None
    failures: float | None = None
    pending: float | None = None
    mean_seconds: float | None = None
    queue_share: float | None = None
    batch: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None

    @property
    def failed_share(self) -> float | None:
        """Failed requests of all requests."""
        return _share_of(self.failures, self.requests)


@dataclass(frozen=True, slots=True)
class Phase:
    """The mean time (seconds) of a request in one phase over ten minutes, and its share of the whole."""

    name: str
    seconds: float
    share: float


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU, or MIG instance, that the model runs on, as the exporter knows it; None was not exported."""

    instance: str
    uuid: str
    mig: str
    known_by: str
    confidence: str
    values: Mapping[str, float]

    def __getitem__(self, name: str) -> float | None:
        return self.values.get(name)


@dataclass(frozen=True, slots=True)
class ModelLimit:
    """A limit of the model's configuration in words, and the versions that have it."""

    name: str
    words: str
    versions: tuple[str, ...]


def read_traffic(prometheus: Prometheus, model: str, at: float | None = None) -> TrafficFacts:
    """Ask what is recorded of the model's traffic, and its quantiles. Raises PrometheusError."""
    own = Matchers().equal("model", model)
    # The recorded names alone: `sum by (__name__)` keeps them, and reads one series a name.
    recorded = regex_of(names.model_traffic(what) for what in names.TRAFFIC)
    every = f"sum by (__name__) ({{__name__=~{quote(recorded)}, {own.parts[0]}}})"
    quantiles = f"max by (quantile) ({state.REQUEST_QUANTILE}{own})"
    figures: dict[str, float] = {}
    for sample in prometheus.instant(f"{every} or {quantiles}", at):
        key = sample.labels.get("__name__") or f"p{100 * float(sample.labels.get('quantile', 'nan')):g}"
        figures[key] = sample.value
    value = {what: figures.get(names.model_traffic(what)) for what in names.TRAFFIC}
    succeeded = None
    if value["requests"] is not None:
        succeeded = value["requests"] - (value["failures"] or 0.0)
    return TrafficFacts(
        requests=value["requests"],
        failures=value["failures"],
        pending=value["pending"],
        mean_seconds=_share_of(value["request_seconds"], succeeded),
        queue_share=_share_of(value["queue_seconds"], value["request_seconds"]),
        batch=_share_of(value["inferences"], value["executions"]),
        p50=figures.get("p50"),
        p95=figures.get("p95"),
        p99=figures.get("p99"),
    )


def read_phases(prometheus: Prometheus, model: str, at: float | None = None) -> tuple[Phase, ...]:
    """Ask where the time of a request goes; empty without requests. Raises PrometheusError."""
    own = Matchers().equal("model", model)
    parts = [("whole", triton.REQUEST_DURATION_US), ("requests", triton.REQUEST_SUCCESS), *PHASES]
    rates = {what: f"rate({metric}{own}[10m])" for what, metric in parts}
    # An ensemble has no queue: its requests wait in those of its steps.
    rates["queue"] += f" or 1e6 * avg_over_time({names.step_traffic('queue_seconds')}{own}[10m])"
    query = _joined((what, f"sum({expr})") for what, expr in rates.items())
    phases = _by_what(prometheus.instant(query, at))
    requests, whole = phases.get("requests", 0.0), phases.get("whole", 0.0)
    if requests <= 0 or whole <= 0:
        return ()
    # Microseconds of all requests in a second, over the requests in a second.
    times = {name: phases.get(name, 0.0) for name, _ in PHASES}
    times["other"] = max(0.0, whole - sum(times.values()))
    every = sum(times.values())
    return tuple(Phase(name, micros / requests / 1e6, micros / every) for name, micros in times.items())


def read_devices(prometheus: Prometheus, model: str, at: float | None = None) -> tuple[Device, ...]:
    """Ask which GPUs the model runs on, and how they are. Raises PrometheusError."""
    own = Matchers().equal("model", model)
    device = ", ".join(_DEVICE)
    runs = f"group by ({device}, source, confidence) ({gpu.MODEL_GPU_INFO}{own})"
    boards = ((what, f"max by ({device}) ({metric})") for what, metric in _OF_GPU)
    on_gpu = f"and on (instance, gpu_uuid) {gpu.MODEL_GPU_INFO}{own}"
    caused = ((what, f"sum by ({device}) ({metric}{own})") for what, metric in _OF_MODEL_ON_GPU)
    parts = [("runs", runs), *((what, f"({expr}) {on_gpu}") for what, expr in boards), *caused]
    about: dict[tuple[str, ...], Mapping[str, str]] = {}
    values: dict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
    for sample in prometheus.instant(_joined(parts), at):
        key = tuple(sample.labels.get(label, "") for label in _DEVICE)
        if sample.labels.get(_WHAT) == "runs":
            about[key] = sample.labels
        elif math.isfinite(sample.value):
            values[key][sample.labels.get(_WHAT, "")] = sample.value
    return tuple(
        Device(
            " ".join(part for part in key[:2] if part),
            key[2],
            key[3],
            labels.get("source", ""),
            labels.get("confidence", ""),
            # What belongs to the board is exported without a MIG instance.
            {**values.get((*key[:3], ""), {}), **values.get(key, {})},
        )
        for key, labels in sorted(about.items())
    )


def read_limits(prometheus: Prometheus, model: str, at: float | None = None) -> tuple[ModelLimit, ...]:
    """Ask for the limits of the model's configuration, the same on all servers once. Raises PrometheusError."""
    wanted = quote(regex_of(metric.name for metric in _LIMITS))
    samples = prometheus.instant(f"{{__name__=~{wanted}, model={quote(model)}}}", at)
    order = {metric.name: index for index, metric in enumerate(_LIMITS)}
    versions: dict[tuple[int, str, str], set[str]] = defaultdict(set)
    for sample in samples:
        metric = sample.labels.get("__name__", "")
        if metric in order:
            name, words = _WORDS[metric](sample.labels, sample.value)
            versions[order[metric], name, words].add(sample.labels.get("version", ""))
    return tuple(
        ModelLimit(name, words, tuple(sorted(filter(None, numbers))))
        for (_, name, words), numbers in sorted(versions.items())
    )


def _priority(labels: Mapping[str, str]) -> str:
    return f" at priority {labels['priority']}" if labels.get("priority") else ""


_WORDS: Mapping[str, Callable[[Mapping[str, str], float], tuple[str, str]]] = {
    models.INFO.name: lambda labels, value: (
        "backend",
        " ".join(part for part in (labels.get("backend", ""), labels.get("platform", "")) if part),
    ),
    models.INSTANCES.name: lambda labels, value: (
        "instances",
        f"{value:g} of {labels.get('kind', '')}" + (f" on GPU {labels['gpu']}" if labels.get("gpu") else ""),
    ),
    models.MAX_BATCH_SIZE.name: lambda labels, value: (
        "largest batch",
        f"{value:g}" if value else "does not batch",
    ),
    models.MAX_QUEUE_DELAY.name: lambda labels, value: ("longest wait for a batch", time_text(value)),
    models.QUEUE_SIZE_LIMIT.name: lambda labels, value: (
        "queue holds",
        f"{value:g} requests{_priority(labels)}",
    ),
    models.QUEUE_TIMEOUT.name: lambda labels, value: (
        "queue timeout",
        f"{time_text(value)}{_priority(labels)}"
        + (f", then {labels['action']}" if labels.get("action") else ""),
    ),
    models.RESPONSE_CACHE.name: lambda labels, value: ("response cache", "on" if value else "off"),
    models.DECOUPLED.name: lambda labels, value: (
        "responses",
        "any number for each request (decoupled)" if value else "one for each request",
    ),
    models.ENSEMBLE_STEP.name: lambda labels, value: (
        "ensemble",
        f"step {labels.get('position', '')}: {labels.get('step_model', '')}",
    ),
}


def _joined(parts: Iterable[tuple[str, str]]) -> str:
    return "\nor\n".join(f'label_replace({expr}, "{_WHAT}", "{what}", "", "")' for what, expr in parts)


def _by_what(samples: Sequence[Sample]) -> dict[str, float]:
    return {sample.labels.get(_WHAT, ""): sample.value for sample in samples if math.isfinite(sample.value)}


def _share_of(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None
