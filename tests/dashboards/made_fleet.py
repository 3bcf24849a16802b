"""Make a fleet with a history of hours and faults whose right values are known.

Two servers serve eight model versions. The facts that tests assert on are constants here; everything else
varies a little, so that graphs are realistic, but ratios are exact at every moment.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import yaml

from support.history import END, Series, backfilled, openmetrics, record
from support.recorded_group import group_labels, recorded_group
from triton_exporter.catalogue import EXPORTER_JOB, Metric, gpu, llm, models, own, processes, state, triton
from triton_exporter.catalogue.external import headroom
from triton_slo import bridge_series, names

STEP = 15
HOURS = 3
START = END - HOURS * 3600
FAULT = END - 40 * 60
"""Since then version 2 of the classifier fails, and the broken model is not ready."""
RESTART = END - 50 * 60
"""The second server restarted then: its counters began again at 0."""

FAILED_SHARE = 0.08
QUEUE_SHARE = 0.9
QUEUE_LIMIT = 0.1
"""Seconds that the queue objective lets a request wait."""
ESTIMATE_ERROR = 0.004
"""How far the shares of that objective may be off."""
SERVERS = ("triton-0:9400", "triton-1:9400")
GPUS = {
    "triton-0:9400": ("GPU-5f1c0d6e-0a41", "GPU-9b7e2c11-44d2"),
    "triton-1:9400": ("GPU-1d02aa93-7c0f", "GPU-e8c41b70-2b6a"),
}
BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, math.inf)

Points = Sequence[tuple[float, float]]
TIMES = range(START, END + 1, STEP)


@dataclass(frozen=True)
class Model:
    """Traffic of a model version on each server: requests a second and microseconds by phase."""

    name: str
    version: str
    per_second: float
    queue: float
    compute: float
    batch: float = 1.0
    instances: int = 1
    max_batch: int = 8
    backend: str = "python"

    @property
    def micros(self) -> float:
        """Mean request time: the phases, input and output with 5 % of compute each, and 20 us of the rest."""
        return self.queue + self.compute * 1.1 + 20


MODELS = (
    Model("embedder", "1", 180, 900, 3_200, 5.5, 2, 16, "onnxruntime"),
    Model("classifier", "1", 42, 300, 8_000, 2.5, 1, 8, "tensorrt"),
    Model("classifier", "2", 18, 500, 21_000, 1.8, 1, 8, "tensorrt"),
    Model("pipeline", "1", 12, 40, 24_000, 1, 0, 0, "ensemble"),
    Model("saturated", "1", 6, 9 * (150_000 * 1.1 + 20), 150_000, 1, 1, 4),
    Model("llama-trt", "1", 4, 2_000, 900_000, 1, 1, 64, "tensorrtllm"),
    Model("mistral-vllm", "1", 3, 100, 700_000, 1, 1, 0, "vllm"),
)
BROKEN = Model("broken", "1", 0, 0, 0)


def _wave(at: float, phase: float) -> float:
    """Return a daily swing squeezed into hours, with some unrest on top; about 1."""
    slow = 0.16 * math.sin(at / 2400 + phase)
    quick = 0.05 * math.sin(at / 97 + phase * 3) + 0.03 * math.sin(at / 41 + phase * 7)
    return 1 + slow + quick


def _gauge(value: Callable[..., float] | float) -> Points:
    return [(at, value(at) if callable(value) else value) for at in TIMES]


def _counter(per_second: Callable[..., float], server: str = "", reset: bool = True) -> Points:
    """Sum of a rate; starts again when the second server restarts."""
    total = 0.0
    points: list[tuple[float, float]] = []
    for at in TIMES:
        if reset and server == SERVERS[1] and RESTART <= at < RESTART + STEP:
            total = 0.0
        points.append((at, total))
        total += per_second(at) * STEP
    return points


def _of(server: str, **labels: str) -> dict[str, str]:
    return {"job": EXPORTER_JOB, "instance": server, **labels}


def _histogram(
    metric: Metric,
    labels: Mapping[str, str],
    per_second: Callable[..., float],
    server: str,
    mean: float,
    bounds: Sequence[float],
) -> Iterator[Series]:
    """24 of 25 observations at nine tenths of the mean, one at 3.4 times the mean.

    No quantile that is shown is on the border between the two, where it would flicker.
    """
    for bound in bounds:
        share = 0.96 * (mean * 0.9 <= bound) + 0.04 * (mean * 3.4 <= bound)
        le = "+Inf" if math.isinf(bound) else f"{bound:g}"
        yield metric.bucket, {**labels, "le": le}, _counter(lambda at, s=share: per_second(at) * s, server)
    yield metric.count, labels, _counter(per_second, server)
    yield metric.sum, labels, _counter(lambda at: per_second(at) * mean, server)


def _model(model: Model, server: str, phase: float) -> Iterator[Series]:
    labels = _of(server, model=model.name, version=model.version)
    faulty = model.name == "classifier" and model.version == "2"

    def requested(at: float) -> float:
        return model.per_second * _wave(at, phase)

    def failing(at: float) -> float:
        return requested(at) * FAILED_SHARE if faulty and at >= FAULT else 0.0

    def good(at: float) -> float:
        return requested(at) - failing(at)

    yield triton.REQUEST_SUCCESS.name, labels, _counter(good, server)
    for reason in ("REJECTED", "CANCELED", "BACKEND", "OTHER"):
        failed = (
            failing
            if reason == "BACKEND"
            else (lambda at: 0.002 * requested(at))
            if reason == "CANCELED"
            else (lambda _at: 0.0)
        )
        yield triton.REQUEST_FAILURE.name, {**labels, "reason": reason}, _counter(failed, server)
    yield triton.INFERENCE_COUNT.name, labels, _counter(lambda at: good(at) * 1.0, server)
    yield triton.EXEC_COUNT.name, labels, _counter(lambda at: good(at) / model.batch, server)
    pending = 5.0 if model.name == "saturated" else 0.0
    yield triton.PENDING_REQUESTS.name, labels, _gauge(lambda at: round(pending * _wave(at, phase)))
    phases = (
        (triton.REQUEST_DURATION_US, model.micros),
        (triton.QUEUE_DURATION_US, model.queue),
        (triton.COMPUTE_INPUT_DURATION_US, model.compute * 0.05),
        (triton.COMPUTE_INFER_DURATION_US, model.compute),
        (triton.COMPUTE_OUTPUT_DURATION_US, model.compute * 0.05),
    )
    for metric, micros in phases:
        yield (
            metric.name,
            labels,
            _counter(lambda at, m=micros: good(at) * m * (0.9 + 0.1 * _wave(at, 1)), server),
        )
    yield from _histogram(state.REQUEST_DURATION, labels, good, server, model.micros / 1e6, BUCKETS)
    yield from _histogram(state.QUEUE_DURATION, labels, good, server, model.queue / 1e6, BUCKETS)
    yield (
        state.DISTRIBUTION_SOURCE.name,
        {**labels, "signal": "request", "source": "trace" if phase < 1 else "sampled_mean"},
        _gauge(1),
    )
    yield triton.MODEL_LOAD_DURATION_SECS.name, labels, _gauge(2.5 + phase)
    yield from _configuration(model, labels, requested, server)


def _configuration(
    model: Model, labels: Mapping[str, str], requested: Callable[..., float], server: str
) -> Iterator[Series]:
    kind = "platform" if model.backend == "ensemble" else "backend"
    yield models.INFO.name, {**labels, kind: model.backend}, _gauge(1)
    yield models.MAX_BATCH_SIZE.name, labels, _gauge(model.max_batch)
    if model.name == "pipeline":
        for position, step in enumerate(("embedder", "classifier"), 1):
            yield (
                models.ENSEMBLE_STEP.name,
                {**labels, "position": str(position), "step_model": step, "step_version": "-1"},
                _gauge(1),
            )
        for step, part, pace in (
            ("", "request", 1.0),
            ("embedder", "queue", 0.1),
            ("embedder", "compute", 0.3),
            ("classifier", "queue", 0.4),
            ("classifier", "compute", 0.15),
        ):
            traced = {**labels, "step_model": step, "part": part}
            yield state.TRACED_STEP_SECONDS.name, traced, _counter(lambda at, p=pace: p, server)
        return
    yield models.INSTANCES.name, {**labels, "kind": "KIND_GPU", "gpu": "0"}, _gauge(model.instances)
    yield processes.MODEL_PSS.name, labels, _gauge(900e6)
    of_model = {name: value for name, value in labels.items() if name != "version"}
    for part in processes.RELOAD_PARTS if model.version == "1" else ():  # once a model, not once a version
        yield processes.RELOAD_GROWTH.name, {**of_model, "part": part}, _gauge(3e6)
    yield (
        models.BUSY_SECONDS.name,
        labels,
        _counter(
            lambda at: min(model.instances, requested(at) * model.compute * 1.1 / model.batch / 1e6), server
        ),
    )


def _retries(at: float) -> float:
    """Return the failed loads: one at the fault, one every ten minutes since."""
    return (at - FAULT) // 600 + 1.0 if at >= FAULT else 0.0


def _answers(server: str, at: float) -> float:
    """0 while the second server restarts, else 1."""
    return 0.0 if server == SERVERS[1] and RESTART - 120 <= at < RESTART + 60 else 1.0


def _states(server: str) -> Iterator[Series]:
    for model in (*MODELS, BROKEN):
        labels = _of(server, model=model.name, version=model.version)

        def ready(at: float, model: Model = model) -> float:
            return _answers(server, at) * float(model is not BROKEN or at < FAULT)

        yield state.MODEL_READY.name, labels, _gauge(ready)
        yield state.MODEL_STATE.name, {**labels, "state": "ready"}, _gauge(ready)
        yield (
            state.MODEL_STATE.name,
            {**labels, "state": "unavailable"},
            _gauge(lambda at, r=ready: 1 - r(at)),
        )
    for name in sorted({model.name for model in (*MODELS, BROKEN)}):
        for reason in ("python_error", "out_of_memory"):
            failing = name == BROKEN.name and reason == "python_error"
            labels = {**_of(server, model=name), "reason": reason}
            yield (
                state.MODEL_LOAD_FAILURES.name,
                labels,
                _gauge(lambda at, f=failing: _retries(at) if f else 0.0),
            )
    since = [(at, float(FAULT)) for at in TIMES if at >= FAULT]
    yield state.MODEL_NOT_READY_SINCE.name, _of(server, model="broken", version="1"), since


def _server(server: str, phase: float) -> Iterator[Series]:
    labels = _of(server)

    def away(at: float) -> float:
        return _answers(server, at)

    yield "up", labels, _gauge(1)
    yield "scrape_duration_seconds", labels, _gauge(lambda at: 0.012 * _wave(at, phase))
    yield "scrape_samples_scraped", labels, _gauge(1_240 + 30 * phase)
    yield state.UP.name, labels, _gauge(away)
    yield state.SERVER_LIVE.name, labels, _gauge(away)
    yield state.SERVER_READY.name, labels, _gauge(lambda at: away(at) * (at < FAULT))
    yield own.LAST_SUCCESS.name, labels, [(at, at - 1.5) for at in TIMES]
    yield own.SCRAPE_DURATION.name, labels, _gauge(lambda at: 0.006 * _wave(at, phase))
    refused = [(at, 8.0 if server == SERVERS[1] and at >= RESTART else 0.0) for at in TIMES]
    yield own.SCRAPE_FAILURES.name, {**labels, "endpoint": "metrics", "reason": "refused"}, refused
    yield own.BUILD_INFO.name, {**labels, "version": "0.1.0"}, _gauge(1)
    yield triton.PINNED_POOL_TOTAL_BYTES.name, labels, _gauge(268_435_456)
    yield triton.PINNED_POOL_USED_BYTES.name, labels, _gauge(lambda at: 60e6 * _wave(at, phase))
    yield processes.SERVER_PSS.name, labels, _gauge(2e9)
    for metric, size in ((processes.SHM_SIZE, 8e9), (processes.SHM_USED, 1e9), (processes.SHM_ORPHANED, 0.0)):
        yield metric.name, labels, _gauge(size)
    yield triton.CACHE_UTIL.name, labels, _gauge(lambda at: 0.4 * _wave(at, phase))
    cached = {**labels, "model": "embedder", "version": "1"}
    yield triton.CACHE_HITS_PER_MODEL.name, cached, _counter(lambda at: 30 * _wave(at, phase), server)
    yield triton.CACHE_MISSES_PER_MODEL.name, cached, _counter(lambda at: 10 * _wave(at, phase), server)
    first = {**labels, "model": "llama-trt", "version": "1"}
    yield from _histogram(
        triton.FIRST_RESPONSE_MS,
        first,
        lambda at: 4 * _wave(at, phase),
        server,
        180,
        (100, 500, 2000, 5000, math.inf),
    )
    yield from _llm(labels, server, phase)


def _llm(labels: Mapping[str, str], server: str, phase: float) -> Iterator[Series]:
    trt = {**labels, "model": "llama-trt", "version": "1"}
    for kind, value in (("active", 18.0), ("max", 64.0), ("scheduled", 17), ("context", 2), ("waiting", 3)):
        moving = _gauge(value) if kind == "max" else _gauge(lambda at, v=value: round(v * _wave(at, phase)))
        yield llm.TRTLLM_REQUESTS.name, {**trt, "request_type": kind}, moving
    for state_of, value in (("running", 18.0), ("waiting", 3.0), ("paused", 0.0)):
        yield llm.REQUESTS.name, {**trt, "state": state_of}, _gauge(value)
    yield llm.KV_CACHE.name, trt, _gauge(lambda at: 0.68 * (0.95 + 0.05 * _wave(at, phase)))
    yield (
        llm.TRTLLM_GENERAL.name,
        {**trt, "general_type": "iteration_counter"},
        _counter(lambda at: 40 * _wave(at, phase), server),
    )
    vllm = {**labels, "model": "mistral-vllm", "version": "1"}
    yield llm.PROMPT_TOKENS.name, vllm, _counter(lambda at: 900 * _wave(at, phase), server)
    yield llm.GENERATION_TOKENS.name, vllm, _counter(lambda at: 420 * _wave(at, phase), server)
    rate: Callable[..., float] = lambda at: 3 * _wave(at, phase)  # noqa: E731
    bounds = (0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, math.inf)
    for which in (trt, vllm):
        yield from _histogram(llm.FIRST_TOKEN, which, rate, server, 0.18, bounds)
    yield from _histogram(llm.INTER_TOKEN, vllm, rate, server, 0.03, bounds)
    yield from _histogram(llm.E2E, vllm, rate, server, 3.4, bounds)
    yield llm.KV_CACHE.name, vllm, _gauge(0.4)
    yield llm.REQUESTS.name, {**vllm, "state": "running"}, _gauge(6)
    yield llm.PREEMPTIONS.name, vllm, _counter(lambda at: 0.1, server)


def _gpu(server: str, uuid: str, phase: float) -> Iterator[Series]:
    labels = _of(server, gpu_uuid=uuid)
    steady = {
        gpu.UTILIZATION: 0.62,
        gpu.SM_ACTIVE: 0.48,
        gpu.TENSOR_ACTIVE: 0.31,
        gpu.DRAM_ACTIVE: 0.52,
        gpu.MEMORY_USED: 58e9,
        gpu.POWER: 310.0,
        gpu.TEMPERATURE: 61.0,
        gpu.SM_CLOCK: 1.7e9,
        gpu.NVLINK_THROUGHPUT: 2.4e9,
        gpu.DATA_AGE: 4.0,
        gpu.MEMORY_TEMPERATURE: 70.0,
    }
    for metric, value in steady.items():
        yield metric.name, labels, _gauge(lambda at, v=value: v * (0.8 + 0.2 * _wave(at, phase)))
    for metric, value in ((gpu.MEMORY_TOTAL, 85e9), (gpu.POWER_LIMIT, 400.0), (gpu.ROW_REMAP_FAILED, 0.0)):
        yield metric.name, labels, _gauge(value)
    yield (
        gpu.INFO.name,
        {**labels, "index": "0", "name": "NVIDIA H100", "driver_version": "570", "pci_bus_id": uuid[-4:]},
        _gauge(1),
    )
    yield gpu.ENERGY.name, labels, _counter(lambda at: 310 * _wave(at, phase), reset=False)
    yield gpu.UTILIZATION_UNATTRIBUTED.name, labels, _gauge(0.04)
    for direction in ("transmit", "receive"):
        yield (
            gpu.PCIE_THROUGHPUT.name,
            {**labels, "direction": direction},
            _gauge(lambda at: 1.1e9 * _wave(at, phase)),
        )
    hot = uuid == GPUS[SERVERS[1]][1]
    for reason in ("idle", "sw_power_cap", "hw_thermal"):
        yield (
            gpu.THROTTLE_REASON.name,
            {**labels, "reason": reason},
            _gauge(lambda at, r=reason: float(hot and r == "hw_thermal" and at >= FAULT)),
        )
    yield (
        gpu.THROTTLED_SECONDS.name,
        {**labels, "cause": "thermal"},
        _counter(lambda at: 0.3 * (hot and at >= FAULT), reset=False),
    )
    for code, kind in (("79", "hardware"), ("94", "contained"), ("31", "application")):
        count = [(at, float(hot and code == "94" and at >= FAULT)) for at in TIMES]
        yield gpu.XID_ERRORS.name, {**labels, "xid": code, "class": kind}, count
    for kind in ("corrected", "uncorrected"):
        yield gpu.ECC_ERRORS.name, {**labels, "type": kind}, _gauge(3.0 if kind == "corrected" else 0.0)
        yield gpu.REMAPPED_ROWS.name, {**labels, "type": kind}, _gauge(1.0 if kind == "corrected" else 0.0)


def _gpus(server: str, phase: float) -> Iterator[Series]:
    for index, uuid in enumerate(GPUS[server]):
        yield from _gpu(server, uuid, phase + index)
    first, second = GPUS[server]
    yield gpu.SOURCE.name, {**_of(server), "source": "dcgm"}, _gauge(1)
    yield gpu.SOURCE.name, {**_of(server), "source": "none"}, _gauge(0)
    yield (
        gpu.SOURCE_FAILURES_TOTAL.name,
        {**_of(server), "source": "dcgm", "reason": "timeout"},
        [(at, float(at >= RESTART)) for at in TIMES],
    )
    for model in MODELS:
        uuid = second if model.name in ("llama-trt", "mistral-vllm") else first
        labels = _of(server, model=model.name, version=model.version, gpu_uuid=uuid)
        busy = min(0.55, model.per_second * model.compute / model.batch / 1e6)
        yield gpu.MODEL_GPU_INFO.name, {**labels, "source": "config", "confidence": "certain"}, _gauge(1)
        yield gpu.MODEL_BUSY.name, labels, _counter(lambda at, b=busy: b * _wave(at, phase), server)
        yield gpu.MODEL_UTILIZATION.name, labels, _gauge(lambda at, b=busy: 0.3 * b * _wave(at, phase))
        yield gpu.MODEL_MEMORY.name, labels, _gauge(6e9)


@dataclass(frozen=True)
class Budget:
    """An objective's group: target, and the error ratio before and since the fault."""

    slo: str
    indicator: str
    model: str
    version: str
    target: float
    before: float
    since: float
    left: float


def _budgets() -> Iterator[Budget]:
    for model in MODELS:
        faulty = (model.name, model.version) == ("classifier", "2")
        queued = model.name == "saturated"
        yield Budget(
            "errors",
            "errors",
            model.name,
            model.version,
            0.999,
            0.0001,
            FAILED_SHARE if faulty else 0.0001,
            -0.35 if faulty else 0.9,
        )
        yield Budget(
            "queue",
            "queue",
            model.name,
            model.version,
            0.99,
            0.03 if queued else 0.001,
            0.15 if queued else 0.001,
            0.12 if queued else 0.88,
        )
    for model in (*MODELS, BROKEN):
        yield Budget(
            "readiness",
            "readiness",
            model.name,
            model.version,
            0.999,
            0,
            1 if model is BROKEN else 0,
            0.07 if model is BROKEN else 1,
        )


_SOURCES = {
    "errors": "backend_counters",
    "queue": "sampled_mean",
    "latency": "sampled_mean",
    "readiness": "state",
}
"""What each indicator of a stock Triton with Python models is computed from."""


_WINDOWS = {"5m": 1 / 12, "1h": 1, "6h": 6, "1d": 24, "3d": 72, "30d": 720}
"""Hours of each window."""


def _objective(budget: Budget) -> Iterator[Series]:
    labels = group_labels(budget.slo, budget.model, budget.version, budget.indicator)
    allowed = 1 - budget.target

    def error(hours: float, at: float) -> float:
        """Return a ratio that moves from one value to the other as a window fills."""
        share = min(1.0, max(0.0, (at - FAULT) / (hours * 3600)))
        return budget.before + (budget.since - budget.before) * share

    left = max(1.0, budget.left)
    estimated = budget.indicator == "queue"
    if estimated:
        labels[names.THRESHOLD] = "100ms"
    for name, of_group, points in recorded_group(
        labels,
        TIMES,
        target=budget.target,
        budget=allowed,
        threshold=QUEUE_LIMIT if estimated else None,
        estimate_error=ESTIMATE_ERROR if estimated else None,
        spent=1 - budget.left,
        left=lambda at: left - (left - budget.left) * min(1.0, max(0.0, (at - START) / (END - START))),
        errors={window: partial(error, hours) for window, hours in _WINDOWS.items()},
        events=(lambda at: 20 * error(1 / 12, at), 20.0),
        source=_SOURCES[budget.indicator],
    ):
        yield name, of_group, [*_BEFORE, *points] if name == names.ERROR_BUDGET_RATIO else points


_BEFORE = [
    (END - age + 900 * step, 1.0)
    for age in (3 * 86_400 + 7_500, 9.5 * 3600)
    for step in range(round(9_000 / 900))
]
"""Samples of budgets from before the history: boards show a window of which a tenth has data."""


def _promises() -> Iterator[Series]:
    for name, target, threshold in (
        ("errors", "99.9%", ""),
        ("queue", "99%", "100ms"),
        ("readiness", "99.9%", ""),
    ):
        labels = {
            names.SLO: name,
            names.INDICATOR: name,
            "owner": "ml-platform",
            "target": target,
            "window": "30d",
            "threshold": threshold,
            "description": f"What {name} promises.",
        }
        yield names.INFO, labels, _gauge(1)
        yield names.PERIOD_DAYS, {names.SLO: name, names.INDICATOR: name}, _gauge(30)
    late = [at for at in TIMES if at >= FAULT + 600]
    yield from recorded_group(group_labels("latency", "broken"), late, unknown="vanished")
    for model in MODELS:
        labels = group_labels("latency", model.name, model.version) | {names.THRESHOLD: "1s"}
        yield from recorded_group(labels, TIMES, threshold=1)
    for cause, share in (("queue", QUEUE_SHARE), ("failure:QUEUE_FULL", 0.09)):
        yield (
            names.CAUSE_SHARE,
            {names.INDICATOR: "queue", "model": "saturated", "version": "1", names.CAUSE: cause},
            _gauge(lambda at, s=share: s * (0.95 + 0.05 * _wave(at, 2))),
        )
    yield (
        names.CAUSE_SHARE,
        {names.INDICATOR: "errors", "model": "classifier", "version": "2", names.CAUSE: "failure:BACKEND"},
        _gauge(lambda at: float(at >= FAULT)),
    )
    yield (
        names.CAUSE_SHARE,
        {names.INDICATOR: "readiness", "model": "broken", "version": "1", names.CAUSE: "state:unavailable"},
        _gauge(lambda at: float(at >= FAULT)),
    )


FIRING = (
    (
        "TritonErrorsBudgetBurn",
        {
            "severity": "warning",
            "component": "slo",
            "tier": "ticket_fast",
            "model": "classifier",
            "version": "2",
            "slo": "errors",
            "indicator": "errors",
        },
        FAULT + 180,
    ),
    (
        "TritonErrorsBudgetBurn",
        {
            "severity": "critical",
            "component": "slo",
            "tier": "page_fast",
            "model": "classifier",
            "version": "2",
            "slo": "errors",
            "indicator": "errors",
        },
        FAULT + 180,
    ),
    (
        "TritonQueueBudgetBurn",
        {
            "severity": "critical",
            "component": "slo",
            "tier": "page_slow",
            "model": "saturated",
            "version": "1",
            "slo": "queue",
            "indicator": "queue",
        },
        FAULT + 600,
    ),
    (
        "TritonModelLoadFailed",
        {"severity": "warning", "component": "lifecycle", "model": "broken", "instance": SERVERS[0]},
        FAULT + 30,
    ),
    (
        "TritonModelNotReadyProlonged",
        {
            "severity": "warning",
            "component": "lifecycle",
            "model": "broken",
            "version": "1",
            "instance": SERVERS[1],
        },
        FAULT + 600,
    ),
    (
        "TritonSLOUnknown",
        {
            "severity": "critical",
            "component": "slo",
            "model": "broken",
            "version": "1",
            "slo": "latency",
            "indicator": "latency",
        },
        FAULT + 900,
    ),
    (
        "GpuThermalThrottling",
        {"severity": "warning", "component": "gpu", "gpu_uuid": GPUS[SERVERS[1]][1], "instance": SERVERS[1]},
        FAULT + 300,
    ),
    ("Watchdog", {"severity": "none", "component": "meta"}, START),
)
"""Alerts that fire until the end: name, labels, since when."""


def _alerts() -> Iterator[Series]:
    for name, labels, since in FIRING:
        own_labels = {"alertname": name, "owner": "ml-platform", **labels}
        times = [at for at in TIMES if at >= since]
        yield "ALERTS", {**own_labels, "alertstate": "firing"}, [(at, 1.0) for at in times]
        yield "ALERTS_FOR_STATE", own_labels, [(at, float(since)) for at in times]


def _headroom() -> Iterator[Series]:
    """What `tritonwatch advise --watch` says of the models whose queues it knows."""
    for model in MODELS:
        if model.backend in ("ensemble", "vllm", "tensorrtllm"):
            continue
        room = 1.05 if model.name == "saturated" else 2.4
        for slo in ("queue", "latency"):
            for bound, factor in (("estimate", 1.0), ("least", 0.88)):
                labels = {"job": "tritonwatch-advise", "instance": "advise:9098", "slo": slo, "bound": bound}
                labels |= {"model": model.name, "version": model.version}
                points = _gauge(
                    lambda at, r=room * factor * (0.9 if slo == "latency" else 1): r / _wave(at, 0)
                )
                yield headroom.RATIO.name, labels, points


def _bridge() -> Iterator[Series]:
    labels = {"job": bridge_series.BRIDGE_JOB, "instance": "bridge:9096"}

    def steps(count: int) -> Points:
        return [(at, float(count) if at >= FAULT + 300 else 0.0) for at in TIMES]

    yield bridge_series.RECEIVED.name, {**labels, "outcome": "opened"}, steps(4)
    yield bridge_series.RECEIVED.name, {**labels, "outcome": "repeated"}, steps(2)
    yield bridge_series.REJECTED.name, {**labels, "code": "400"}, steps(1)
    yield bridge_series.STORE_FAILURES.name, labels, steps(1)
    yield bridge_series.DELIVERED.name, {**labels, "kind": "root"}, steps(4)
    yield bridge_series.DELIVERED.name, {**labels, "kind": "reply"}, steps(3)
    yield bridge_series.SEND_FAILURES.name, {**labels, "error": "rate_limited"}, steps(1)
    yield (
        bridge_series.OLDEST_UNDELIVERED_AGE.name,
        labels,
        _gauge(lambda at: 4.0 if FAULT + 300 <= at < FAULT + 420 else 0.0),
    )
    yield bridge_series.UNDELIVERED.name, labels, _gauge(0)
    yield bridge_series.OPEN_INCIDENTS.name, {**labels, "severity": "critical"}, steps(4)
    yield bridge_series.HEARTBEAT.name, labels, [(at, at - 40.0) for at in TIMES]
    yield bridge_series.ACTIONS.name, {**labels, "action": "acknowledge", "outcome": "done"}, steps(1)
    yield bridge_series.ENRICHMENT_FAILURES.name, {**labels, "source": "prometheus"}, steps(1)
    for integration in ("webhook", "email"):
        yield (
            "alertmanager_notifications_failed_total",
            {"job": "alertmanager", "instance": "alertmanager:9093", "integration": integration},
            steps(integration == "email"),
        )


def series() -> Iterator[Series]:
    """Everything that a Prometheus of this fleet would store, but for what the dashboards' rules record."""
    for number, server in enumerate(SERVERS):
        yield from _server(server, number)
        yield from _states(server)
        yield from _gpus(server, number)
        for index, model in enumerate(MODELS):
            yield from _model(model, server, number + index / 5)
    for budget in _budgets():
        yield from _objective(budget)
    yield from _promises()
    yield from _alerts()
    yield from _headroom()
    yield from _bridge()


def backfill(directory: Path, rules: str) -> Path:
    """Write the history and what `rules` make of it as blocks; returns the data folder."""
    data = backfilled(openmetrics(series()), directory / "data")
    for stage in _stages(rules):
        record(stage, directory, (START + 300, END, STEP))
    return data


def _stages(rules: str) -> Iterator[str]:
    """Yield the rules in files, each with those that read only what the files before it record."""
    left = [rule for group in yaml.safe_load(rules)["groups"] for rule in group["rules"]]
    while left:
        waiting = {rule["record"] for rule in left}
        ready = [rule for rule in left if not any(name in rule["expr"] for name in waiting)]
        yield yaml.safe_dump({"groups": [{"name": "stage", "rules": ready}]})
        left = [rule for rule in left if rule not in ready]
