"""Play requests, one by one, through the queue, the batcher and the instances of one Triton model on one server.

What Triton 2.51 does, as its source says and as measured:

* Without a batcher each execution takes one request.
* With one, an instance that becomes free takes what waits, up to `max_batch`.
* With a delay, the batcher makes groups, also while all instances are busy. One that the delay of its first request closes
  takes no more, unless twice a batch waits; one whose delay had ended before takes what comes until an instance is free.
* With a limit, a request that finds `limit` others waiting is refused, and requests go to free instances only. But
  now and then the batcher misses that an instance became free, and looks again when the next request is accepted.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import heapreplace
from itertools import repeat
from math import inf

MISSED = 0.07
"""Share of the executions whose end a batcher with a limit misses, as measured: it is told before the instance is free."""
LOOKS_AGAIN = 0.5
"""Seconds after which it looks again in any case."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a configuration makes of a model: `max_batch` is in requests (1 without a batcher), `limit` 0 is none."""

    instances: int = 1
    max_batch: int = 1
    delay: float = 0.0
    limit: int = 0

    @property
    def stalls(self) -> str:
        """Why nothing is told with this limit; empty where there is none, or requests never wait beside idle instances."""
        if not self.limit or self.limit >= self.max_batch > 1:
            return ""
        if self.max_batch == 1:
            return (
                "with max_queue_size and batches of one, Triton 2.51 lets requests wait beside idle instances"
            )
        return f"max_queue_size {self.limit} is below the batch size {self.max_batch}: a queue so short fills no batch"


@dataclass(frozen=True, slots=True)
class Service:
    """An execution of n requests takes `fixed + each * n` seconds on average, with this squared variation."""

    fixed: float
    each: float = 0.0
    cv2: float = 0.0

    def seconds(self, requests: float) -> float:
        """Return the mean time of an execution."""
        return self.fixed + self.each * requests


@dataclass(slots=True)
class Outcome:
    """Seconds that each accepted request waited, and took in all; the number of executions and of refused requests."""

    waits: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    executions: int = 0
    refused: int = 0

    @property
    def mean_wait(self) -> float:
        return sum(self.waits) / max(1, len(self.waits))


def simulate(
    setting: Setting,
    service: Service,
    rate: float,
    burst: float = 1.0,
    *,
    requests: int = 20_000,
    seed: int = 1,
) -> Outcome:
    """Return what requests meet that find the server idle at first; the same for the same seed.

    `rate` of them come a second, independently of each other, or `burst` at a time on average.
    """
    # Simulations, no secrets.
    chance, misses, cv2 = random.Random(seed), random.Random(seed + 2), service.cv2  # noqa: S311
    # Factors of mean 1 with this squared variation, distributed as gamma: 0 is constant, 1 exponential.
    factors: Iterator[float] = (
        iter(lambda: chance.gammavariate(1 / cv2, cv2), None) if cv2 > 0.001 else repeat(1.0)
    )
    arrivals = [at / rate for at in _arrivals(burst, requests, seed + 1)]
    outcome, full, limit = Outcome(), setting.max_batch, setting.limit
    if full == 1 and not limit:  # what is below, in a tenth of the time
        outcome.executions = len(arrivals)
        mean, ends = service.seconds(1), [0.0] * setting.instances
        for at, factor in zip(arrivals, factors, strict=False):  # there is no last factor
            first, took = ends[0], mean * factor
            start = first if first > at else at
            heapreplace(ends, start + took)
            outcome.waits.append(start - at)
            outcome.times.append(start - at + took)
        return outcome
    # A heap: when the batcher knows that each instance is free, and when it is.
    free = [(0.0, 0.0)] * setting.instances
    waiting: deque[float] = deque()  # when each waiting request came
    ready = 0.0  # when the batcher can make the next group
    for now in (*arrivals, inf):  # at infinity all have been served
        while waiting:
            made = max(ready, waiting[0] + setting.delay)
            if len(waiting) >= full:
                made = min(made, max(ready, waiting[full - 1]))
            start = max(made, free[0][0])
            if start > now:
                break
            size = min(full, len(waiting))
            if setting.delay and not limit and ready < made and len(waiting) < 2 * full:
                size = min(size, sum(at <= made for at in waiting))
            ready = start if size < full else max(made, waiting[full - 1])
            took = service.seconds(size) * next(factors)
            end = start + took
            heapreplace(free, (end + LOOKS_AGAIN * (limit > 0 and misses.random() < MISSED), end))
            came = [waiting.popleft() for _ in range(size)]
            outcome.waits += [start - at for at in came]
            outcome.times += [end - at for at in came]
            outcome.executions += 1
        if not limit:
            waiting.append(now)
        elif len(waiting) >= limit:
            outcome.refused += now < inf
        else:
            waiting.append(now)
            free = sorted((min(known, now) if end <= now else known, end) for known, end in free)
    return outcome


@lru_cache(maxsize=2)  # one search for the highest rate plays few and many requests in turn
def _arrivals(burst: float, requests: int, seed: int) -> Sequence[float]:
    """Return when requests come, in mean intervals between them."""
    chance = random.Random(seed)  # noqa: S311 # a simulation, no secret
    now, whole, times = 0.0, int(burst), list[float]()
    while len(times) < requests:
        now += chance.expovariate(1 / burst)
        times += [now] * (whole + (chance.random() < burst - whole))
    return times[:requests]
