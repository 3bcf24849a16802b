"""Play requests, one by one, through the queue, the batcher and the instances of one Triton model on one server.

What Triton 2.51 does, as its source says and as measured:

* Without a batcher each execution takes one request.
* With one, an instance that becomes free takes what waits, up to `max_batch`.
* With a delay, the batcher makes groups, also while all instances are busy; a free instance takes the first of them.
* With a limit, a request that finds `limit` others waiting is refused, and requests go to free instances only. But
  now and then the batcher misses that an instance became free, and looks again when the next request is accepted.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heapify, heappop, heappush, heapreplace
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

    waits: list[float]
    times: list[float]
    executions: int
    refused: int

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
    chance, cv2 = random.Random(seed), service.cv2  # noqa: S311 # a simulation, no secret
    # Factors of mean 1 with this squared variation, distributed as gamma: 0 is constant, 1 exponential.
    draw: Iterator[float] = (
        iter(lambda: chance.gammavariate(1 / cv2, cv2), None) if cv2 > 0.001 else repeat(1.0)
    )
    arrivals = [at / rate for at in _arrivals(burst, requests, seed + 1)]
    outcome = Outcome([], [], 0, 0)
    waits, times = outcome.waits, outcome.times

    def execute(start: float, came: list[float]) -> float:
        took = service.seconds(len(came)) * next(draw)
        outcome.executions += 1
        for at in came:
            waits.append(start - at)
            times.append(start - at + took)
        return start + took

    if setting.max_batch == 1 and not setting.limit:  # what `_play` does, in half the time
        mean, ends = service.seconds(1), [0.0] * setting.instances
        for at, factor in zip(arrivals, draw, strict=False):  # there is no last factor
            free, took = ends[0], mean * factor
            start = free if free > at else at
            heapreplace(ends, start + took)
            waits.append(start - at)
            times.append(start - at + took)
        outcome.executions = len(waits)
    elif setting.delay and not setting.limit:
        _play_groups(setting, arrivals, execute)
    else:
        outcome.refused = _play(setting, arrivals, execute, random.Random(seed + 2))  # noqa: S311 # the same
    return outcome


def _play(
    setting: Setting,
    arrivals: Sequence[float],
    execute: Callable[[float, list[float]], float],
    chance: random.Random,
) -> int:
    """Let each free instance take what waits; return how many requests were refused.

    `execute` takes the start of an execution and when its requests came, and returns the end.
    """
    # a heap: when each instance is free, and whether that is missed
    free = [(0.0, False)] * setting.instances
    waiting: deque[float] = deque()  # when each waiting request came
    refused, full, limit = 0, setting.max_batch, setting.limit
    for now in (*arrivals, inf):  # at infinity all have been served
        while waiting:
            start = free[0][0]
            if limit:
                start = min(at + LOOKS_AGAIN * missed for at, missed in free)
            due = waiting[0] + setting.delay
            if len(waiting) >= full:
                due = min(due, waiting[full - 1])
            if (start := max(start, due)) > now:
                break
            came = [waiting.popleft() for _ in range(min(len(waiting), full))]
            heapreplace(free, (execute(start, came), limit > 0 and chance.random() < MISSED))
        if not limit:
            waiting.append(now)
        elif len(waiting) >= limit:
            refused += now < inf
        else:
            waiting.append(now)
            free = [(now, False) if missed and at <= now else (at, missed) for at, missed in free]
            heapify(free)
    return refused


def _play_groups(
    setting: Setting, arrivals: Sequence[float], execute: Callable[[float, list[float]], float]
) -> None:
    """Let the batcher make groups, of which each free instance takes the first."""
    waiting: deque[float] = deque()
    row: deque[list[float]] = deque()  # groups; the batcher may still add to the last one
    busy: list[float] = []  # a heap: when each busy instance is free
    group: list[float] | None = None  # the one that it adds to
    wanted, looks_again = 0, inf  # it looks when so many wait, or then

    def take(now: float) -> None:
        nonlocal group
        came = row.popleft()
        if came is group:
            group = None
        while row and now - row[0][0] > setting.delay:
            if row[0] is group:
                group = None
            if len(came) + len(row[0]) > setting.max_batch:
                break
            came += row.popleft()
        heappush(busy, execute(now, came))

    def look(now: float) -> None:
        nonlocal group, wanted, looks_again
        looks_again = inf
        while True:
            while row and len(busy) < setting.instances:
                take(now)
            if group is None:
                group, wanted = [], 0
            if not waiting or len(row) >= 2 * setting.instances:
                return
            room, due = setting.max_batch - len(group), waiting[0] + setting.delay
            if len(waiting) < room and now < due:
                wanted = room
                if not group:
                    looks_again = due
                    return
            if not group:
                row.append(group)
            group += [waiting.popleft() for _ in range(min(room, len(waiting)))]
            if len(group) == setting.max_batch:
                group = None

    for now in (*arrivals, inf):
        while (at := min(looks_again, busy[0] if busy else inf)) <= now and at < inf:
            if at != looks_again:
                heappop(busy)
            look(at)
        if now < inf:
            waiting.append(now)
            if group is None or len(waiting) >= wanted:
                look(now)


@lru_cache(maxsize=2)  # one search for the highest rate plays few and many requests in turn
def _arrivals(burst: float, requests: int, seed: int) -> Sequence[float]:
    """Return when requests come, in mean intervals between them."""
    chance = random.Random(seed)  # noqa: S311 # a simulation, no secret
    now, whole, times = 0.0, int(burst), list[float]()
    while len(times) < requests:
        now += chance.expovariate(1 / burst)
        times += [now] * (whole + (chance.random() < burst - whole))
    return times[:requests]
