"""Counters of a model whose truth is known: requests played one by one on a clock, and added up in steps."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapreplace
from itertools import accumulate

from triton_exporter.catalogue import EXPORTER_JOB, models, state, triton
from triton_slo.advise.measured import Configuration, Step

STEP = 15.0
HOUR = 3600.0
BATCHING = Configuration(max_batch_size=8, dynamic_batching=True)


def poisson(rate: float, seconds: float = HOUR, burst: int = 1, seed: int = 1) -> list[float]:
    """Moments at which requests come independently, `burst` at a time."""
    chance, at, times = random.Random(seed), 0.0, []
    while (at := at + chance.expovariate(rate / burst)) < seconds:
        times += [at] * burst
    return times


@dataclass
class Made:
    """Instances that take up to `batch` requests, for `seconds(requests, moment)`."""

    seconds: Callable[[int, float], float]
    batch: int = 1
    before_queue: float = 0.0
    """Seconds that the first request of a batch waits although the instance is free."""
    instances: int = 1

    def steps(
        self, times: Iterable[float], server: str = "a", others: Callable[[float], float] | None = None
    ) -> list[Step]:
        """What the counters grow by, when requests come at these times."""
        sums: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        free, waiting = [0.0] * self.instances, list(times)
        i = 0
        while i < len(waiting):
            due = waiting[i] + self.before_queue
            if 1 < self.batch <= len(waiting) - i:  # a full batch waits no longer
                due = min(due, waiting[i + self.batch - 1])
            start = max(free[0], due)
            taken = [at for at in waiting[i : i + self.batch] if at <= start]
            count, took = len(taken), self.seconds(len(taken), start)
            heapreplace(free, start + took)
            of, queued = sums[int((start + took) // STEP)], sum(start - at for at in taken)
            of["executions"] += 1
            of["inferences"] += count
            of["requests"] += count
            of["queue_seconds"] += queued
            of["request_seconds"] += queued + (took + 0.001) * count
            of["compute_seconds"] += took * count
            of["busy_seconds"] += took
            of["squares"] += count**2
            for at in taken:
                sums[int(start // STEP)]["waiting"] -= 1
                sums[int(at // STEP)]["waiting"] += 1
            i += count
        return [
            Step(
                server,
                (k + 1) * STEP,
                STEP,
                **sums[k],
                others_busy={"other": others(k * STEP)} if others else {},
            )
            for k in range(max(sums))
        ]


def closed_loop(clients: int, think: float, took: float = 0.02) -> Iterator[float]:
    """Moments at which clients send that wait for an answer, which one instance works for, and then think."""
    chance, free = random.Random(1), 0.0
    ready = sorted(chance.expovariate(1 / think) for _ in range(clients))
    while (at := ready[0]) < HOUR:
        yield at
        free = max(free, at) + took
        heapreplace(ready, free + chance.expovariate(1 / think))


def varying(
    fixed: float, each: float = 0.0, cv2: float = 0.0, seed: int = 7
) -> Callable[[int, float], float]:
    """Seconds of an execution as the simulation has them, from another generator."""
    chance = random.Random(seed)

    def seconds(requests: int, _: float) -> float:
        factor = chance.gammavariate(1 / cv2, cv2) if cv2 else 1.0
        return (fixed + each * requests) * factor

    return seconds


def paced(every: float, seconds: float = HOUR) -> Iterator[float]:
    """Moments at even distances."""
    return (i * every for i in range(int(seconds / every)))


def series(
    steps: Sequence[Step], configuration: Configuration, end: float, late: float, model: str = "m"
) -> Iterator[tuple[str, dict[str, str], list[tuple[float, float]]]]:
    """The exporter's series of these steps, the last of which ends at Unix time `end`.

    A share `late` of the requests waited for more than 100 ms.
    """
    start = end - steps[-1].at
    labels = {"instance": "a:8000", "job": EXPORTER_JOB, "model": model, "version": "1"}
    totals = {
        triton.EXEC_COUNT: [step.executions for step in steps],
        triton.INFERENCE_COUNT: [step.inferences for step in steps],
        triton.REQUEST_SUCCESS: [step.requests for step in steps],
        triton.PENDING_REQUESTS: [step.waiting for step in steps],
        triton.QUEUE_DURATION_US: [1e6 * step.queue_seconds for step in steps],
        triton.REQUEST_DURATION_US: [1e6 * step.request_seconds for step in steps],
        triton.COMPUTE_INFER_DURATION_US: [1e6 * step.compute_seconds for step in steps],
        triton.COMPUTE_INPUT_DURATION_US: [0.0 for _ in steps],
        triton.COMPUTE_OUTPUT_DURATION_US: [0.0 for _ in steps],
        models.BUSY_SECONDS: [step.busy_seconds for step in steps],
        models.BATCH_SIZE_SQUARES: [step.squares for step in steps],
    }
    times = [start, *(start + step.at for step in steps)]
    for metric, grown in totals.items():
        yield str(metric), labels, list(zip(times, accumulate(grown, initial=0.0), strict=True))
    waited = [0.0, *accumulate(step.requests for step in steps)]
    yield state.QUEUE_DURATION.count, labels, list(zip(times, waited, strict=True))
    for le, share in (("0.1", 1 - late), ("+Inf", 1.0)):
        points = [(at, share * count) for at, count in zip(times, waited, strict=True)]
        yield state.QUEUE_DURATION.bucket, {**labels, "le": le}, points
    scheduler = {"scheduler": "dynamic" if configuration.dynamic_batching else "none"}
    scheduler |= {"preferred_batch_sizes": "", "priority_levels": "", "rate_limiter": ""}
    facts = [
        (models.SCHEDULER_INFO, scheduler, 1),
        (models.INFO, {"backend": "python", "platform": ""}, 1),
        (models.MAX_BATCH_SIZE, {}, configuration.max_batch_size),
        (models.INSTANCES, {"kind": configuration.kind, "gpu": ""}, configuration.instances),
    ]
    for metric, more, value in facts:
        yield str(metric), {**labels, **more}, [(at, float(value)) for at in times]
