"""Play requests, one by one, through the queue, the batcher and the instances of one Triton model on one server.

What Triton 2.51 does, as measured:

* Without a batcher each execution takes one request.
* With one, an instance that becomes free takes what waits, up to `max_batch`.
* With a delay, requests are handed over in groups: a group closes when its first request has waited so long, or when
  it fills a batch. This also happens while all instances are busy. A free instance takes only closed groups.
* With a limit, requests are handed over only to a free instance; it takes everything that waits once the first
  request's delay is over. A request that finds `limit` others waiting is refused.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapreplace
from math import inf


@dataclass(frozen=True, slots=True)
class Setting:
    """What a configuration makes of a model: `max_batch` is in requests (1 without a batcher), `limit` 0 is none."""

    instances: int = 1
    max_batch: int = 1
    delay: float = 0.0
    limit: int = 0


@dataclass(frozen=True, slots=True)
class Service:
    """An execution of n requests takes `fixed + each * n` seconds on average, with this squared variation."""

    fixed: float
    each: float = 0.0
    cv2: float = 0.0

    def seconds(self, requests: float) -> float:
        """Return the mean time of an execution."""
        return self.fixed + self.each * requests


@dataclass(frozen=True, slots=True)
class Outcome:
    """Seconds that each accepted request waited, and took in all; the number of executions and of refused requests."""

    waits: list[float]
    times: list[float]
    executions: int
    refused: int

    @property
    def mean_wait(self) -> float:
        return sum(self.waits) / max(1, len(self.waits))

    @property
    def refused_share(self) -> float:
        return self.refused / max(1, self.refused + len(self.waits))

    def wait_within(self, share: float) -> float:
        """Return the wait that this share of the accepted requests does not exceed."""
        return (
            sorted(self.waits)[min(len(self.waits) - 1, int(share * len(self.waits)))] if self.waits else 0.0
        )


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
    draw = _variation(service.cv2, random.Random(seed))  # noqa: S311 # a simulation, no secret
    free = [0.0] * setting.instances  # a heap: when each instance is free
    waiting: deque[float] = deque()  # when each waiting request came
    waits: list[float] = []
    times: list[float] = []
    executions = refused = 0
    for now in _arrivals(rate, burst, requests, random.Random(seed + 1)):  # noqa: S311 # the same
        while waiting:
            start = max(free[0], _due(waiting, setting))
            if start > now:
                break
            size = _handed_over(waiting, start, setting)
            took = service.seconds(size) * next(draw)
            heapreplace(free, start + took)
            executions += 1
            for _ in range(size):
                wait = start - waiting.popleft()
                waits.append(wait)
                times.append(wait + took)
        if setting.limit and len(waiting) >= setting.limit:
            refused += now < inf
        else:
            waiting.append(now)
    return Outcome(waits, times, executions, refused)


def _arrivals(rate: float, burst: float, requests: int, chance: random.Random) -> Iterator[float]:
    """Yield when each request comes; at last infinity, at which all others have been served."""
    now, whole = 0.0, int(burst)
    while requests > 0:
        now += chance.expovariate(rate / burst)
        size = min(requests, whole + (chance.random() < burst - whole))
        for _ in range(size):
            yield now
        requests -= size
    yield inf


def _variation(cv2: float, chance: random.Random) -> Iterator[float]:
    """Yield factors of mean 1 with this squared variation, distributed as gamma: 0 is constant, 1 exponential."""
    while True:
        yield chance.gammavariate(1 / cv2, cv2) if cv2 > 0.001 else 1.0


def _due(waiting: deque[float], setting: Setting) -> float:
    """Return from when on a free instance would take the requests at the head of the queue."""
    due = waiting[0] + setting.delay
    return min(due, waiting[setting.max_batch - 1]) if len(waiting) >= setting.max_batch else due


def _handed_over(waiting: deque[float], start: float, setting: Setting) -> int:
    """Return how many requests a free instance takes."""
    size = min(len(waiting), setting.max_batch)
    if not setting.delay or setting.limit or size == setting.max_batch:
        return size
    closed = 0
    while closed < size and waiting[closed] + setting.delay <= start:
        closes = waiting[closed] + setting.delay
        while closed < size and waiting[closed] <= closes:
            closed += 1
    return closed
