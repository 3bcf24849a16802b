"""Counters of a model whose truth is known: requests played one by one on a clock, and added up in steps."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

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
    """One instance that takes up to `batch` requests, for `seconds(requests, moment)`."""

    seconds: Callable[[int, float], float]
    batch: int = 1
    before_queue: float = 0.0
    """Seconds that each request waits although the instance is free."""

    def steps(
        self, times: Iterable[float], server: str = "a", others: Callable[[float], float] | None = None
    ) -> list[Step]:
        """What the counters grow by, when requests come at these times."""
        sums: dict[int, list[float]] = defaultdict(lambda: [0.0] * 6)
        free, waiting = 0.0, list(times)
        i = 0
        while i < len(waiting):
            start = max(free, waiting[i] + self.before_queue)
            taken = [at for at in waiting[i : i + self.batch] if at + self.before_queue <= start]
            took = self.seconds(len(taken), start)
            free = start + took
            of = sums[int(free // STEP)]
            of[0] += 1
            of[1] += len(taken)
            of[2] += sum(start - at for at in taken)
            of[3] += took
            of[4] += took * len(taken)
            of[5] += len(taken) ** 2
            i += len(taken)
        return [_step(server, k, sums[k], others(k * STEP) if others else 0.0) for k in range(max(sums))]

    def closed_loop(self, clients: int, think: float, seconds: float = HOUR) -> list[Step]:
        """What they grow by, when each client waits for its answer and then `think` seconds on average."""
        chance = random.Random(1)
        ready = sorted(chance.expovariate(1 / think) for _ in range(clients))
        sums: dict[int, list[float]] = defaultdict(lambda: [0.0] * 6)
        free = 0.0
        while ready[0] < seconds:
            at = ready.pop(0)
            start = max(free, at)
            free = start + (took := self.seconds(1, start))
            for i, value in enumerate((1, 1, start - at, took, took, 1)):
                sums[int(free // STEP)][i] += value
            ready.append(free + chance.expovariate(1 / think))
            ready.sort()
        return [_step("a", k, sums[k], 0.0) for k in range(max(sums))]


def _step(server: str, k: int, sums: Sequence[float], other: float) -> Step:
    executions, requests, queued, busy, computed, squares = sums
    return Step(
        server=server,
        at=(k + 1) * STEP,
        seconds=STEP,
        executions=executions,
        inferences=requests,
        requests=requests,
        failures=0.0,
        queue_seconds=queued,
        request_seconds=queued + computed + 0.001 * requests,
        compute_seconds=computed,
        busy_seconds=busy,
        squares=squares,
        others_busy={"other": other} if other else {},
    )


def varying(fixed: float, each: float = 0.0, cv2: float = 0.0) -> Callable[[int, float], float]:
    """Seconds of an execution as the simulation has them, from another generator."""
    chance = random.Random(7)

    def seconds(requests: int, _: float) -> float:
        factor = chance.gammavariate(1 / cv2, cv2) if cv2 else 1.0
        return (fixed + each * requests) * factor

    return seconds


def paced(every: float, seconds: float = HOUR) -> Iterator[float]:
    """Moments at even distances."""
    return (i * every for i in range(int(seconds / every)))
