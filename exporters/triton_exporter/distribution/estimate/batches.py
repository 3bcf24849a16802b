"""Infer dynamic batches from intervals: how long their first requests wait, and how large the batches are.

Triton waits a fixed time for a batch to fill (`max_queue_delay_microseconds`). Where instances are free, the first
request of each batch waits just that, and the others arrive while it does. Where an execution takes longer for more
requests, the seconds of an interval show how its requests were divided over its executions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import factorial
from typing import NamedTuple

import numpy as np

from triton_exporter.distribution.estimate.density import Floats

MIN_KNOWN = 10
"""Intervals, at least, in which each execution answered one request, to know the delay or the sizes."""

MIN_OF_A_SIZE = 3
"""Executions of one size, at least, to know its time."""

MAX_REQUESTS = 16
"""Requests of one interval, at most, that are divided over executions: more can be divided in too many ways."""

EXACT = 1e-9
"""A reach (seconds) of nearly nothing."""

_NEAR = 1.15
"""First waits up to this factor apart are the same delay."""

_MIN_PART = 0.6
"""Minimum part of the batches that wait for the delay alone: it shows little where instances are busy.

From 0.3 to 0.9, the mean error of simulated requests (test_decomposition.py) is about 0.7 points.
"""

_FIRSTS = (1 / 6, 1 / 2, 5 / 6)
"""Quantiles of known first waits that stand for all of them."""

_FIRST_SCATTER = 0.05
"""Standard deviation of first waits, as a part of the delay."""

_MAX_SCATTER = 0.2
"""Executions of one size whose times differ by a larger part show no size."""

_MIN_SLOPE = 1.5
"""Minimum time of one request more in an execution, as a multiple of the scatter."""

_MIN_SCATTER = 0.02
"""Minimum scatter of executions of one size, so that a few equal times do not seem exact."""

_ROUNDS = 8
"""Rounds of expectation-maximisation."""


class Waits(NamedTuple):
    """Waits of some requests of each interval: those that came first in a batch, or the others.

    They are spread evenly within `reach` of `centre`.
    """

    are_first: bool
    """True if these waits are of the first requests of executions."""
    part: Floats
    """Part of the first requests, or of the others, by interval."""
    centre: Floats
    """Mean of these waits (seconds), by interval."""
    reach: Floats
    """How far these waits are from `centre` at most (seconds), by interval."""


@dataclass(frozen=True, slots=True)
class Delay:
    """The time for which a batch waits to fill."""

    firsts: Floats
    """Waits of first requests (seconds) that stand for all of them: the quantiles _FIRSTS."""
    part: float
    """Part of the batches that wait for the delay alone (0 to 1)."""
    mean_wait: float
    """Mean wait of all requests (seconds)."""

    @property
    def seconds(self) -> float:
        """The median of first waits."""
        return float(self.firsts[len(self.firsts) // 2])

    def _likely(self, executions: Floats, requests: Floats, waits: Floats) -> Floats:
        """Return for each interval how likely it is that all its batches waited for the delay alone.

        By Bayes' theorem: if they did, the sum of its waits is normal around a delay for each first request and
        half a delay for each of the others, which arrive evenly; if not, anything up to twice the mean wait.
        """
        delay_seconds, others, waited = self.seconds, requests - executions, waits * requests
        variance = delay_seconds**2 / 12 * others + (_FIRST_SCATTER * delay_seconds * executions) ** 2
        off = waited - delay_seconds * (executions + others / 2)
        alone = self.part**executions * np.exp(-(off**2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)
        busy = (1 - self.part**executions) / (2 * max(self.mean_wait, 1e-9) * requests)
        possible = (waited >= delay_seconds * executions / _NEAR) & (
            waited <= delay_seconds * requests * _NEAR
        )
        near = np.maximum(waits / delay_seconds, delay_seconds / np.maximum(waits, 1e-9)) <= _NEAR
        return np.where(others > 0, np.where(possible, alone / np.maximum(alone + busy, 1e-300), 0.0), near)

    def split(
        self, executions: Floats, requests: Floats, waits: Floats
    ) -> tuple[Sequence[Waits], Floats, Floats]:
        """Return waits of batches that waited for the delay alone; of the others, their part and mean wait."""
        likely = self._likely(executions, requests, waits)
        others = requests - executions
        # Where not all batches of an interval waited for the delay alone, a part of them may have. That is believed
        # if the others are left with a mean wait of the delay or more.
        part = 1.0 - (1.0 - self.part) / np.maximum(1.0 - self.part**executions, 1e-9)
        left = waits - part * self.seconds * (1.0 - others / requests / 2)
        left /= np.maximum(1.0 - part, 1e-9)
        believed = (part > 0) & (left >= self.seconds)
        some = np.where(believed, (1.0 - likely) * part, 0.0)
        exact = np.full(len(requests), EXACT)
        alone = [
            Waits(
                True,
                (likely + some) / len(self.firsts),
                np.where((others > 0) | (likely == 0), seconds, waits),
                exact,
            )
            for seconds in self.firsts.tolist()
        ]
        mean = (waits * requests - self.seconds * executions) / np.maximum(others, 1.0)
        mean = np.clip(mean, 0.0, self.seconds)
        even = np.where(others > 1, np.minimum(mean, self.seconds - mean), 0.0)
        alone.append(Waits(False, likely, mean, np.maximum(even, EXACT)))
        half = np.full(len(requests), self.seconds / 2)
        alone.append(Waits(False, some, half, half))
        return alone, 1.0 - likely - some, np.where(believed, left, waits)


def delay(executions: Floats, requests: Floats, waits: Floats) -> Delay | None:
    """Find the delay among the mean waits of requests that were executed alone, if most batches wait for it."""
    alone = executions >= requests
    if np.count_nonzero(alone) < MIN_KNOWN or np.all(alone):
        return None
    order = np.argsort(waits[alone])
    known, weight = waits[alone][order], requests[alone][order]
    below = np.concatenate([[0.0], np.cumsum(weight)])
    inside = below[np.searchsorted(known, known * _NEAR, "right")] - below[:-1]
    start = int(np.argmax(inside))
    part = float(inside[start] / below[-1])
    if part < _MIN_PART or known[start] <= 0:
        return None
    firsts = np.quantile(known[start : np.searchsorted(known, known[start] * _NEAR, "right")], _FIRSTS)
    fitted = Delay(firsts, part, float((waits * requests).sum() / requests.sum()))
    parts = np.linspace(0.02, 0.98, 49)
    counts, place = np.unique(executions, return_inverse=True)
    all_of = np.log(parts)[:, None] * counts
    for _ in range(_ROUNDS):
        likely = fitted._likely(executions, requests, waits)
        all_waited = np.bincount(place, weights=likely)
        fits = all_of @ all_waited + np.log1p(-np.exp(all_of)) @ (np.bincount(place) - all_waited)
        fitted = Delay(firsts, float(parts[np.argmax(fits)]), fitted.mean_wait)
    return fitted if fitted.part >= _MIN_PART else None


@dataclass(frozen=True, slots=True)
class Sizes:
    """Time of executions by their size: the number of requests that one answers."""

    seconds: Floats
    """Seconds of an execution of each size, from 1 on."""
    common: Floats
    """Part of the executions that have each size, from 1 on."""
    scatter: float
    """Standard deviation of the times of executions of one size, as a part of `seconds`."""

    def counts(self, executions: Floats, requests: Floats, work: Floats) -> Floats:
        """Return how many executions of each size each interval is likely to have had; 0 for all if unknown."""
        counts = np.zeros((len(requests), len(self.seconds)))
        for several, count in {*zip(requests.tolist(), executions.tolist(), strict=True)}:
            if several > MAX_REQUESTS:
                continue
            ways = _ways(int(several), int(count), len(self.seconds))
            if not len(ways):
                continue
            rows = np.flatnonzero((requests == several) & (executions == count))
            every_size = np.arange(1, len(self.seconds) + 1)
            expected = ways @ (every_size * self.seconds)
            spread = self.scatter * np.sqrt(ways @ (every_size * self.seconds) ** 2)
            orders = np.array([np.prod([1.0 / factorial(int(count)) for count in way]) for way in ways])
            prior = np.log(orders) + ways @ np.log(np.maximum(self.common, 1e-6))
            off = (work[rows, None] * several - expected) / spread
            fits = prior - off**2 / 2 - np.log(spread)
            fits = np.exp(fits - fits.max(axis=1, keepdims=True))
            counts[rows] = (fits / fits.sum(axis=1, keepdims=True)) @ ways
        return counts


@cache
def _ways(requests: int, executions: int, largest: int) -> Floats:
    """Return every way to divide requests over executions, as how many executions there are of each size."""

    def divided(left: int, count: int, most: int) -> Iterator[list[int]]:
        if count == 0:
            if left == 0:
                yield []
            return
        for size in range(min(most, left - count + 1), 0, -1):
            if size * count < left:
                return
            for rest in divided(left - size, count - 1, size):
                yield [size, *rest]

    rows = [np.bincount(way, minlength=largest + 1)[1:] for way in divided(requests, executions, largest)]
    return np.array(rows, dtype=np.float64).reshape(len(rows), largest)


def sizes(executions: Floats, requests: Floats, work: Floats) -> Sizes | None:
    """Find what executions of each size take, if that differs more than executions of one size do."""
    alone, single = executions >= requests, (executions == 1) & (requests > 1)
    if np.count_nonzero(alone) < MIN_KNOWN:
        return None
    size = np.concatenate([np.ones(np.count_nonzero(alone)), requests[single]])
    took = np.concatenate([work[alone], work[single]])
    common = size <= MAX_REQUESTS
    size, took = size[common], took[common]
    per_size = {
        batch: float(np.median(took[size == batch]))
        for batch in np.unique(size).tolist()
        if np.count_nonzero(size == batch) >= MIN_OF_A_SIZE
    }
    if len(per_size) < 2:
        return None
    slope, base = np.polyfit(list(per_size), list(per_size.values()), 1)
    largest = min(int(size.max()) + 1, MAX_REQUESTS)
    every = np.array([per_size.get(float(batch), base + slope * batch) for batch in range(1, largest + 1)])
    if slope <= 0 or np.any(every <= 0):
        return None
    expected = every[size.astype(np.int64) - 1]
    # 1.5 times the median of absolute deviations is about one standard deviation of a normal distribution.
    scatter = max(_MIN_SCATTER, float(np.median(np.abs(took / expected - 1)) * 1.5))
    if scatter > _MAX_SCATTER or slope < _MIN_SLOPE * scatter * every[0]:
        return None
    fitted = Sizes(every, np.full(largest, 1.0 / largest), scatter)
    for _ in range(_ROUNDS):
        counts = fitted.counts(executions, requests, work).sum(axis=0)
        fitted = Sizes(every, (counts + 1e-3) / (counts + 1e-3).sum(), scatter)
    return fitted
