"""Make the series of a healthy fleet for a day: random traffic of many shapes and noisy readings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from alerts.proofs.proof_series import SERVER, series
from triton_exporter.catalogue import EXPORTER_JOB, gpu, llm, models, own, probe, processes, state, triton
from triton_exporter.catalogue.external import headroom, stack
from triton_slo import bridge_series

Floats = npt.NDArray[np.float64]

STEP = 60
"""Seconds between two samples."""
DAY = 86400
MINUTES = DAY // STEP
CLOCK = np.arange(DAY)
"""Every second of the day."""


@dataclass(frozen=True)
class Shape:
    """Traffic of one model: requests per second in each second of the day, and how it is served."""

    name: str
    rate: Floats
    capacity: float
    """Requests per second with all instances busy."""
    instances: int = 2
    replicas: int = 1


def steady(rate: float) -> Floats:
    return np.full(DAY, rate)


def bursty(rng: np.random.Generator, rate: float, times: float, every: float, last: float) -> Floats:
    """Bursts of `last` seconds at random moments, on average `every` seconds apart."""
    starts = rng.uniform(0, DAY, rng.poisson(DAY / every))
    inside = np.zeros(DAY, dtype=bool)
    for start in starts.astype(int):
        inside[start : start + int(last)] = True
    return np.where(inside, rate * times, rate)


def diurnal(rate: float, depth: float) -> Floats:
    return rate * (1 + depth * np.sin(2 * np.pi * CLOCK / DAY))


def during(rate: float, *hours: tuple[float, float]) -> Floats:
    """Jobs that run between these hours, and nothing else."""
    runs = np.zeros(DAY, dtype=bool)
    for begin, end in hours:
        runs |= (CLOCK >= begin * 3600) & (CLOCK < end * 3600)
    return np.where(runs, rate, 0.0)


def nightly_jobs(seed: int, days: int, step: int) -> Floats:
    """Return a counter of a nightly job's requests: about two hours, from another minute each night."""
    rng = np.random.default_rng(seed)
    nights = [during(12, tuple(rng.normal((2, 4), 0.2))) for _ in range(days)]
    return np.concatenate(([0.0], np.concatenate(nights).cumsum()[step - 1 :: step]))


def shapes(rng: np.random.Generator) -> list[Shape]:
    """Every shape of traffic that is healthy."""
    begin = rng.uniform(0, 1, 30)
    hourly = [(hour + begin[hour] / 4, hour + begin[hour] / 4 + 0.2) for hour in range(24)]
    return [
        Shape("steady", steady(10), 25, replicas=2),
        Shape("bursty", bursty(rng, 4, 4, every=1200, last=45), 20),
        Shape("long-bursts", bursty(rng, 2, 4, every=5400, last=600), 20),
        Shape("diurnal", diurnal(8, 0.9), 20),
        Shape("nightly", during(15, (2 + begin[24], 4 + begin[25])), 20),
        Shape("hourly", during(12, *hourly), 15),
        Shape("few-an-hour", steady(6 / 3600), 5, 1),
        Shape("one-an-hour", steady(1 / 3600), 5, 1),
        Shape("near-saturation", steady(9.5), 10),
        Shape("near-saturation-slow", steady(0.93), 1, 1),
        Shape("saturated", steady(9.05), 10),
        Shape("wavering", diurnal(9.0, 0.02) + rng.normal(0, 0.5, MINUTES).repeat(STEP), 10),
    ]


def counted(per_second: Floats) -> Floats:
    """Return a counter, as it stands at each minute."""
    return np.concatenate(([0.0], per_second.cumsum()[STEP - 1 :: STEP]))


def sampled(per_second: Floats) -> Floats:
    return np.concatenate(([per_second[0]], per_second[STEP - 1 :: STEP]))


def noise(
    rng: np.random.Generator, mean: float, deviation: float, minutes: float = 1.0, least: float = 0.0
) -> Floats:
    """Return a level that varies around its mean, correlated over `minutes`."""
    memory = np.exp(-1 / minutes)
    drawn = rng.normal(0, deviation * np.sqrt(1 - memory**2), MINUTES + 1)
    level = 0.0
    for minute, value in enumerate(drawn):
        level = memory * level + value
        drawn[minute] = level
    return np.maximum(mean + drawn, least)


class Fleet:
    """The series of a fleet, and the restarts of one server."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._values: dict[str, Floats] = {}
        every = shapes(self._rng)
        for shape in every:
            for replica in range(shape.replicas):
                self._model(shape, replica)
        for instance in sorted(self._instances):
            self._server({"instance": instance, "job": EXPORTER_JOB})
        for shape in every:
            self._headroom(shape)
        self._language_models()
        self._meta()

    def series(self, seconds: int) -> Mapping[str, str]:
        """Return the first seconds of the series in the notation of promtool."""
        end = seconds // STEP + 1
        return {name: " ".join(map(_number, values[:end])) for name, values in self._values.items()}

    @property
    def _instances(self) -> set[str]:
        return {name.split('instance="')[1].split('"')[0] for name in self._values}

    def _add(self, metric: object, labels: Mapping[str, str], values: Floats | float, **more: str) -> None:
        self._values[series(metric, labels, **more)] = np.zeros(MINUTES + 1) + values

    def _model(self, shape: Shape, replica: int) -> None:
        rng = self._rng
        labels = {**SERVER, "instance": f"{shape.name}-{replica}:9095", "model": shape.name, "version": "1"}
        arrived = rng.poisson(np.maximum(shape.rate, 0) / shape.replicas)
        # What an idle second could have served is lost: Lindley's recursion, as a running minimum.
        excess = (arrived - rng.poisson(shape.capacity / shape.replicas, DAY)).cumsum()
        waiting = excess - np.minimum(np.minimum.accumulate(excess), 0)
        served = arrived - np.diff(waiting, prepend=0)
        took = shape.instances * shape.replicas / shape.capacity
        failed = rng.binomial(served, 0.0002)
        rejected = np.minimum(rng.binomial(served, 0.0001), served - failed)
        cancelled = np.minimum(rng.binomial(served, 0.05), served - failed - rejected)
        good = served - failed - rejected - cancelled
        restart = rng.integers(0, DAY - 600) if replica == 0 else None
        for metric, values in (
            (triton.REQUEST_SUCCESS, good),
            (triton.EXEC_COUNT, good),
            (triton.QUEUE_DURATION_US, 1e6 * waiting),
            (triton.REQUEST_DURATION_US, 1e6 * (waiting + served * took)),
            (models.BUSY_SECONDS, np.minimum(served * took, shape.instances)),
            (state.REQUEST_DURATION.count, good),
        ):
            self._add(metric, labels, counted(values))
        for reason, values in (("BACKEND", failed), ("REJECTED", rejected), ("CANCELED", cancelled)):
            self._add(triton.REQUEST_FAILURE, labels, counted(values), reason=reason)
        self._add(triton.PENDING_REQUESTS, labels, sampled(waiting))
        self._add(state.QUEUE_FULL_ESTIMATE, labels, counted(rejected))
        self._add(models.INSTANCES, labels, shape.instances, kind="KIND_GPU", gpu="0")
        self._add(processes.MODEL_PROCESSES, labels, shape.instances)
        self._add(processes.MODEL_PROCESS_DEATHS, labels, 0)
        of_model = {name: value for name, value in labels.items() if name != "version"}
        for part in processes.RELOAD_PARTS:  # reloaded every hour
            self._add(
                processes.RELOAD_GROWTH,
                of_model,
                self._rng.normal(0, 2e7, MINUTES // 60 + 1).repeat(60)[: MINUTES + 1],
                part=part,
            )
        self._add(models.QUEUE_SIZE_LIMIT, labels, 60 if shape.capacity >= 10 else 200)
        self._add(probe.SUCCESS, labels, (rng.random(MINUTES + 1) > 0.001).astype(float))
        for metric in (state.MODEL_READY, state.MODEL_EXPECTED):
            self._add(metric, labels, 1)
        for name in ("ready", "loading", "unavailable", "missing", "unloaded"):
            self._add(state.MODEL_STATE, labels, float(name == "ready"), state=name)
        if shape.name == "steady":
            self._canary(labels, good, took)
        if restart is not None:
            self._restart(labels["instance"], int(restart) // STEP)

    def _headroom(self, shape: Shape) -> None:
        """Add four fifths of the capacity over the mean rate of the last hour, which is new when it moved by 5 %."""
        sums = np.concatenate((np.zeros(3600), counted(shape.rate).repeat(STEP)))
        least, shown = [], 0.0
        for minute in range(MINUTES + 1):
            rate = (sums[minute * STEP + 3600] - sums[minute * STEP]) / 3600
            shown = rate if abs(rate - shown) > 0.05 * shown else shown
            least.append(0.8 * shape.capacity / max(shown, 1e-3))
        labels = {"instance": "advise:9098", "job": "tritonwatch-advise", "model": shape.name, "version": "1"}
        self._add(headroom.RATIO, labels, np.array(least), slo="queue", bound="least")

    def _canary(self, labels: Mapping[str, str], good: Floats, took: float) -> None:
        """Add a second version with a twentieth of the requests, a fifth slower, and times of a heavy tail."""
        some = self._rng.binomial(good.astype(int), 0.05)
        slow = some * took * 1.2 * self._rng.lognormal(0, 1, DAY) / np.exp(0.5)
        other = {**labels, "version": "2"}
        self._add(triton.REQUEST_SUCCESS, other, counted(some))
        self._add(triton.REQUEST_DURATION_US, other, counted(1e6 * slow))
        self._add(triton.REQUEST_FAILURE, other, counted(self._rng.binomial(some, 0.004)), reason="BACKEND")
        self._add(state.MODEL_READY, other, 1)
        self._add(state.MODEL_EXPECTED, other, 1)

    def _restart(self, instance: str, minute: int) -> None:
        """Four minutes without the server: its counters begin again."""
        for name, values in self._values.items():
            if f'instance="{instance}"' in name and "triton_model_expected" not in name:
                counts = "_total" in name or "_count" in name or "duration" in name or "success" in name
                if counts or "request_failure" in name:
                    values[minute + 4 :] -= values[minute + 4]
                elif "ready" in name or 'state="ready"' in name:
                    values[minute : minute + 4] = 0
                    continue
                values[minute : minute + 4] = np.nan

    def _server(self, labels: Mapping[str, str]) -> None:
        rng = self._rng
        (ready,) = (v for n, v in self._values.items() if _is(n, state.MODEL_READY, labels, 'version="1"'))
        for metric in (state.UP, state.SERVER_LIVE, state.SERVER_READY):
            self._add(metric, labels, ready.copy())
        self._add(stack.UP, labels, (rng.random(MINUTES + 1) > 0.002).astype(float))
        polled = np.arange(0, DAY + 1, STEP) - rng.uniform(5, 30, MINUTES + 1)
        self._add(own.LAST_SUCCESS, labels, polled)
        if "steady" in labels["instance"]:
            self._add(stack.SAMPLES_SCRAPED, labels, noise(rng, 49800, 400, 5))
            self._add(triton.PINNED_POOL_USED_BYTES, labels, noise(rng, 94.5, 1, 3))
            self._add(triton.PINNED_POOL_TOTAL_BYTES, labels, 100)
            self._add(processes.SHM_SIZE, labels, 100)
            self._add(processes.SHM_USED, labels, noise(rng, 75, 8, 20))
            self._cache(labels)
            self._gpu({**labels, "gpu_uuid": f"GPU-{labels['instance']}"})

    def _cache(self, labels: Mapping[str, str]) -> None:
        hits = self._rng.binomial(600, np.clip(noise(self._rng, 0.05, 0.01, 2), 0, 1))
        cached = {**labels, "model": "cached", "version": "1"}
        self._add(triton.CACHE_HITS_PER_MODEL, cached, hits.cumsum())
        self._add(triton.CACHE_MISSES_PER_MODEL, cached, (600 - hits).cumsum())
        self._add(triton.CACHE_UTIL, labels, np.minimum(noise(self._rng, 0.955, 0.01), 1))
        self._add(triton.CACHE_EVICTIONS, labels, self._rng.poisson(50, MINUTES + 1).cumsum())

    def _gpu(self, labels: Mapping[str, str]) -> None:
        rng = self._rng
        server = {name: labels[name] for name in ("instance", "job")}
        self._add(gpu.INFO, labels, 1, index="0", name="NVIDIA L4")
        self._add(gpu.SOURCE, server, 1, source="dcgm")
        self._add(gpu.SOURCE, server, 0, source="none")
        used = np.minimum(noise(rng, 96.5, 1, 5), 100)
        self._add(gpu.MEMORY_USED, labels, used)
        self._add(gpu.MEMORY_FREE, labels, 100 - used)
        self._add(gpu.MEMORY_TOTAL, labels, 100)
        self._add(
            gpu.UTILIZATION, labels, np.where(rng.random(MINUTES + 1) < 0.6, 0, rng.random(MINUTES + 1))
        )
        for cause, share in (("thermal", 0.05), ("power", 0.2)):
            self._add(
                gpu.THROTTLED_SECONDS, labels, (STEP * noise(rng, share, share / 3, 3)).cumsum(), cause=cause
            )
        self._add(gpu.PCIE_REPLAYS, labels, rng.poisson(7.5, MINUTES + 1).cumsum())
        self._add(gpu.NVLINK_ERRORS, labels, rng.poisson(0.002, MINUTES + 1).cumsum(), type="replay")
        self._add(gpu.DATA_AGE, labels, rng.uniform(0, 60, MINUTES + 1))
        for kind in ("hardware", "contained", "application"):
            self._add(gpu.XID_ERRORS, labels, 0, xid="31", **{"class": kind})

    def _language_models(self) -> None:
        rng = self._rng
        labels = {**SERVER, "instance": "llm:9095", "model": "llm", "version": "1"}
        waiting = rng.poisson(1, MINUTES + 1)
        for kind, values in (("active", np.minimum(rng.poisson(7.5, MINUTES + 1), 8)), ("max", 8)):
            self._add(llm.TRTLLM_REQUESTS, labels, values, request_type=kind)
        self._add(llm.TRTLLM_REQUESTS, labels, waiting, request_type="waiting")
        self._add(llm.REQUESTS, labels, waiting, state="waiting")
        self._add(llm.KV_CACHE, labels, noise(rng, 95, 3, 5) / 100)
        paused = rng.poisson(0.7, MINUTES + 1)
        self._add(llm.REQUESTS, labels, paused, state="paused")
        turns = rng.poisson(600, MINUTES + 1).cumsum()
        self._add(llm.TRTLLM_GENERAL, labels, turns, general_type="iteration_counter")
        for metric, limit in ((llm.FIRST_TOKEN, 2.0), (llm.INTER_TOKEN, 0.2)):
            total = rng.poisson(60, MINUTES + 1)
            under = rng.binomial(total, 0.95)
            for bound, count in ((limit / 2, rng.binomial(under, 0.7)), (limit, under), (4 * limit, total)):
                self._add(metric.bucket, labels, count.cumsum(), le=f"{bound:g}")
            self._add(metric.bucket, labels, total.cumsum(), le="+Inf")

    def _meta(self) -> None:
        rng = self._rng
        prometheus = {"instance": "prometheus:9090", "job": "prometheus"}
        self._add(stack.CONFIG_RELOADED, prometheus, 1)
        self._add(stack.ALERTMANAGERS, prometheus, 1)
        alertmanager = {"instance": "alertmanager:9093", "job": "alertmanager"}
        self._add(stack.AM_INFO, alertmanager, 1)
        slack = {"instance": "bridge:9096", "job": bridge_series.BRIDGE_JOB}
        for labels in (prometheus, alertmanager, slack):
            self._add(stack.UP, labels, 1)
        # One mishap every few hours.
        for metric, labels in (
            (stack.RULE_MISSED, {**prometheus, "rule_group": "slo"}),
            (stack.RULE_FAILURES, {**prometheus, "rule_group": "slo"}),
            (stack.DROPPED, prometheus),
            (stack.SEND_ERRORS, {**prometheus, "alertmanager": "http://alertmanager:9093/api/v2/alerts"}),
            (stack.AM_FAILED, {**alertmanager, "integration": "webhook"}),
        ):
            self._add(metric, labels, rng.poisson(0.004, MINUTES + 1).cumsum())
        self._add(bridge_series.OLDEST_UNDELIVERED_AGE, slack, np.where(rng.random(MINUTES + 1) < 0.1, 20, 0))


def _is(name: str, metric: object, labels: Mapping[str, str], *parts: str) -> bool:
    return name.startswith(f"{metric}{{") and all(
        part in name for part in (f'instance="{labels["instance"]}"', *parts)
    )


def _number(value: float) -> str:
    return "_" if np.isnan(value) else f"{value:.6g}" if value < 1e5 else f"{value:.0f}"
