"""Simulate requests, their completions and times, and Triton's counters of them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Draw = Callable[[int], Floats]


@dataclass(frozen=True)
class Requests:
    """When each request ended, how long it took and waited before (seconds), and which execution answered it.

    Where `took` are waits alone, the requests `worked` besides.
    """

    ended: Floats
    took: Floats
    execution: npt.NDArray[np.int64]
    waited: Floats
    worked: Floats | None = None

    def until(self, end: float) -> Requests:
        """Return the requests that ended before `end`, in that order."""
        order = np.argsort(self.ended, kind="stable")
        order = order[self.ended[order] < end]
        worked = None if self.worked is None else self.worked[order]
        return Requests(
            self.ended[order], self.took[order], self.execution[order], self.waited[order], worked
        )

    def only_waits(self) -> Requests:
        """Return the waits, as if these were the requests."""
        worked = self.took - self.waited
        return Requests(self.ended, self.waited, self.execution, np.zeros_like(self.waited), worked)


@dataclass(frozen=True)
class Intervals:
    """What polls of the counters every `seconds` return: only intervals in which requests ended."""

    seconds: float
    ends: Floats
    requests: Floats
    sums: Floats
    executions: Floats
    waits: Floats
    work: Floats


def polled(requests: Requests, every: float) -> Intervals:
    """Read counters that count in whole microseconds."""
    place = np.floor(requests.ended / every).astype(np.int64)
    count = np.bincount(place)
    worked = np.zeros_like(requests.took) if requests.worked is None else requests.worked
    sums, waits, work = (
        np.bincount(place, weights=np.round(times * 1e6)) / 1e6
        for times in (requests.took, requests.waited, worked)
    )
    _, first = np.unique(requests.execution, return_index=True)
    executions = np.bincount(place[first], minlength=len(count))
    busy = np.flatnonzero(count)
    return Intervals(
        every,
        (busy + 1) * every,
        count[busy].astype(float),
        sums[busy],
        executions[busy].astype(float),
        waits[busy],
        work[busy],
    )


def poisson(rng: np.random.Generator, rate: float, seconds: float) -> Floats:
    """Arrivals at random."""
    return np.sort(rng.uniform(0, seconds, rng.poisson(rate * seconds)))


def independent(arrivals: Floats, took: Floats) -> Requests:
    """Simulate requests that never wait."""
    return Requests(arrivals + took, took, np.arange(len(took)), np.zeros(len(took)))


def queued(arrivals: Floats, service: Floats, servers: int) -> Requests:
    """Simulate requests that wait for one of the servers, first come first served."""
    free = [0.0] * servers
    ended = np.empty(len(arrivals))
    for number, (arrival, needs) in enumerate(zip(arrivals.tolist(), service.tolist(), strict=True)):
        ended[number] = max(arrival, heapq.heappop(free)) + needs
        heapq.heappush(free, ended[number])
    return Requests(ended, ended - arrivals, np.arange(len(arrivals)), ended - arrivals - service)


def batched(
    arrivals: Floats, service: Draw, max_size: int, delay: float = 0.0, each: float = 0.0
) -> Requests:
    """Simulate a server that answers up to `max_size` requests at once, `delay` seconds after the first of them.

    An execution takes `each` seconds for each of its requests, and what `service` draws.
    """
    ended, waited = np.empty(len(arrivals)), np.empty(len(arrivals))
    execution = np.empty(len(arrivals), dtype=np.int64)
    needs = service(len(arrivals))
    first, free = 0, 0.0
    while first < len(arrivals):
        full = arrivals[first + max_size - 1] if first + max_size <= len(arrivals) else np.inf
        starts = max(free, min(full, arrivals[first] + delay))
        last = max(first + 1, min(int(np.searchsorted(arrivals, starts, "right")), first + max_size))
        free = starts + needs[first] + each * (last - first)
        ended[first:last], execution[first:last] = free, first
        waited[first:last] = starts - arrivals[first:last]
        first = last
    return Requests(ended, ended - arrivals, execution, waited)


def one_after_another(rng: np.random.Generator, clients: int, service: Draw, seconds: float) -> Requests:
    """Clients that send the next request 5 ms after the last answer."""
    took = [service(int(seconds / 0.01)) for _ in range(clients)]
    return Requests(
        np.concatenate([np.cumsum(seconds + 0.005) for seconds in took]),
        np.concatenate(took),
        np.arange(sum(map(len, took))),
        np.zeros(sum(map(len, took))),
    )


def mixture(rng: np.random.Generator, slow: float, fast: float = 0.005, late: float = 0.3) -> Draw:
    """Draw fast times, and slow ones for a share of `slow`, each give or take a tenth."""
    return lambda count: np.where(rng.random(count) < slow, late, fast) * rng.lognormal(0, 0.1, count)


def lognormal(rng: np.random.Generator, median: float, sigma: float) -> Draw:
    return lambda count: rng.lognormal(np.log(median), sigma, count)


def exponential(rng: np.random.Generator, mean: float) -> Draw:
    return lambda count: rng.exponential(mean, count)


@dataclass(frozen=True)
class Traffic:
    """A kind of traffic, made for a random generator and a number of seconds, and the thresholds to judge."""

    text: str
    thresholds: tuple[float, ...]
    make: Callable[[np.random.Generator, float], Requests]


def _tail(rate: float, slow: float) -> Traffic:
    return Traffic(
        f"{rate:.0f}/s, {1 - slow:.0%} take 5 ms and {slow:.0%} take 300 ms",
        (0.05, 0.2),
        lambda rng, seconds: _drawn(rng, rate, seconds, mixture(rng, slow)),
    )


def _drawn(rng: np.random.Generator, rate: float, seconds: float, draw: Draw) -> Requests:
    arrivals = poisson(rng, rate, seconds)
    return independent(arrivals, draw(len(arrivals)))


def _queue(rng: np.random.Generator, rate: float, seconds: float, draw: Draw, servers: int) -> Requests:
    arrivals = poisson(rng, rate, seconds)
    return queued(arrivals, draw(len(arrivals)), servers)


def _bursts(rng: np.random.Generator, seconds: float) -> Requests:
    starts = np.repeat(np.arange(1, seconds, 5), 12)
    arrivals = np.sort(starts + rng.uniform(0, 0.005, len(starts)))
    return queued(arrivals, np.full(len(arrivals), 0.03), 1)


def _step(rng: np.random.Generator, seconds: float) -> Requests:
    arrivals = poisson(rng, 100, seconds)
    before, after = mixture(rng, 0.01)(len(arrivals)), mixture(rng, 0.1)(len(arrivals))
    return independent(arrivals, np.where(arrivals < seconds / 2, before, after))


def _drift(rng: np.random.Generator, seconds: float) -> Requests:
    arrivals = poisson(rng, 20, seconds)
    return independent(arrivals, (0.03 + 0.36 * arrivals / seconds) * rng.lognormal(0, 0.05, len(arrivals)))


def _phases(rng: np.random.Generator, seconds: float) -> Requests:
    arrivals = poisson(rng, 60, seconds)
    return independent(arrivals, mixture(rng, 0.05)(len(arrivals)) * np.where(arrivals % 60 > 45, 4, 1))


def _on_and_off(rng: np.random.Generator, seconds: float) -> Requests:
    arrivals = poisson(rng, 100, seconds)
    arrivals = arrivals[arrivals % 20 < 7]
    return independent(arrivals, lognormal(rng, 0.03, 0.6)(len(arrivals)))


def _cold(rng: np.random.Generator, seconds: float) -> Requests:
    """Independent requests; those of the first second wait for a server that takes 45 ms for each."""
    arrivals = poisson(rng, 40, seconds)
    took = mixture(rng, 0.05)(len(arrivals))
    first = arrivals < 1
    waited = np.zeros(len(arrivals))
    waited[first] = queued(arrivals[first], np.full(np.count_nonzero(first), 0.045), 1).took
    return Requests(arrivals + waited + took, waited + took, np.arange(len(took)), waited)


TRAFFIC: Mapping[str, Traffic] = {
    "uniform": Traffic(
        "10/s, 30 to 390 ms evenly",
        (0.1, 0.2, 0.3),
        lambda rng, seconds: _drawn(rng, 10, seconds, lambda count: rng.uniform(0.03, 0.39, count)),
    ),
    **{f"tail_{rate}_{slow}": _tail(rate, slow / 100) for rate in (20, 100, 400, 1000) for slow in (5, 1)},
    "two_kinds": Traffic(
        "50/s, half take 60 ms and half 200 ms",
        (0.1, 0.15),
        lambda rng, seconds: _drawn(rng, 50, seconds, mixture(rng, 0.5, 0.06, 0.2)),
    ),
    "lognormal_100": Traffic(
        "100/s, lognormal, median 30 ms, sigma 0.8",
        (0.02, 0.05, 0.1),
        lambda rng, seconds: _drawn(rng, 100, seconds, lognormal(rng, 0.03, 0.8)),
    ),
    "lognormal_1000": Traffic(
        "1000/s, lognormal, median 10 ms, sigma 0.7",
        (0.01, 0.02, 0.05),
        lambda rng, seconds: _drawn(rng, 1000, seconds, lognormal(rng, 0.01, 0.7)),
    ),
    "mm1": Traffic(
        "M/M/1, 20/s, 40 ms",
        (0.05, 0.1, 0.2),
        lambda rng, seconds: _queue(rng, 20, seconds, exponential(rng, 0.04), 1),
    ),
    "mm4": Traffic(
        "M/M/4, 80/s, 45 ms: nearly full",
        (0.05, 0.1, 0.2),
        lambda rng, seconds: _queue(rng, 80, seconds, exponential(rng, 0.045), 4),
    ),
    "slow_tail_one_server": Traffic(
        "60/s, one server, 5 ms, 5 % of 150 ms",
        (0.02, 0.05, 0.2),
        lambda rng, seconds: _queue(rng, 60, seconds, mixture(rng, 0.05, 0.005, 0.15), 1),
    ),
    "slow_tail_two_servers": Traffic(
        "60/s, two servers, 10 ms, 3 % of 300 ms",
        (0.02, 0.05, 0.2),
        lambda rng, seconds: _queue(rng, 60, seconds, mixture(rng, 0.03, 0.01, 0.3), 2),
    ),
    "md1": Traffic(
        "80/s, one server, exactly 10 ms",
        (0.02, 0.05),
        lambda rng, seconds: _queue(rng, 80, seconds, lambda count: np.full(count, 0.01), 1),
    ),
    "bursts": Traffic("12 at once every 5 s, 30 ms each, one server", (0.1, 0.2), _bursts),
    "batches": Traffic(
        "150/s, one server, up to 8 at once in 20 ms, 5 % in 150 ms",
        (0.05, 0.1),
        lambda rng, seconds: batched(poisson(rng, 150, seconds), mixture(rng, 0.05, 0.02, 0.15), 8),
    ),
    "batches_alike": Traffic(
        "150/s, one server, up to 8 at once, 10 ms after the first, in 20 ms",
        (0.025, 0.03, 0.035),
        lambda rng, seconds: batched(
            poisson(rng, 150, seconds), lambda count: np.full(count, 0.02), 8, delay=0.01
        ),
    ),
    "closed": Traffic(
        "4 clients, each waits for its answer; 5 ms, 5 % of 300 ms",
        (0.05, 0.2),
        lambda rng, seconds: one_after_another(rng, 4, mixture(rng, 0.05), seconds),
    ),
    "step": Traffic("100/s of 5 ms, 1 % and then 10 % of 300 ms", (0.05, 0.2), _step),
    "cold": Traffic("40/s of 5 ms, 5 % of 300 ms; in the first second all wait", (0.05, 0.2), _cold),
    "drift": Traffic("20/s, from 30 to 390 ms over the run", (0.1, 0.2, 0.3), _drift),
    "phases": Traffic("60/s of 5 ms, 5 % of 300 ms, four times slower now and then", (0.05, 0.2), _phases),
    "on_and_off": Traffic("100/s for 7 s in 20, lognormal, median 30 ms", (0.02, 0.05, 0.1), _on_and_off),
}
