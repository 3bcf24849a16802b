"""Simulate a fleet event by event: the true events, and what scrapes can show of them.

Time runs in ticks of 5 s. A replica is scraped every third tick. Nothing here knows the rules under test: the truth
is a count of events, and the allowance is what is lost on counters that are only scraped every few seconds.
"""

from __future__ import annotations

import subprocess
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from support.promtool import PAUSED
from support.tools import promtools
from triton_exporter.catalogue import triton

TICK = 5
EVERY = 3
"""Ticks between scrapes."""
SCRAPE = TICK * EVERY
TILE = 60
"""Ticks of the longest window that is read from counters: an hour, scaled down."""
PERIOD = TILE * 24 * 7
BEFORE = TILE * 10
"""Ticks before the period: events that must be forgotten."""
LENGTH = PERIOD + BEFORE
REASONS = ("BACKEND", "CANCELED")
_EXTRAPOLATED = 2.2
"""Scrape intervals by which Prometheus' rate() may extrapolate what it saw: 1.1 at each end."""

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Pause:
    """No rule is evaluated in [start, end) ticks; `down`: nothing is scraped either."""

    start: int
    end: int
    down: bool = False

    def __contains__(self, tick: int) -> bool:
        return self.start <= tick < self.end


@dataclass(frozen=True)
class Life:
    """One process of a replica: it serves in [start, end) ticks; its counters begin at `past` (0: a restart)."""

    start: int
    end: int
    past: int = 0


@dataclass(frozen=True)
class Replica:
    """Processes one after another under one instance label, and the ticks in which its scrapes fail."""

    instance: str
    lives: tuple[Life, ...]
    gaps: tuple[tuple[int, int], ...] = ()
    phase: int = 1


@dataclass(frozen=True)
class Model:
    """Traffic of a model in stretches of equal length: (requests a tick and replica, share that fails)."""

    name: str
    stretches: tuple[tuple[float, float], ...]
    replicas: tuple[Replica, ...]
    seed: int = 0

    @cached_property
    def events(self) -> Mapping[str, Mapping[str, Counts]]:
        """Instance -> kind (success, BACKEND, CANCELED) -> events in each tick, while the replica runs."""
        random = np.random.default_rng(self.seed)
        which = np.arange(LENGTH) * len(self.stretches) // LENGTH
        rate, share = (np.array(column)[which] for column in zip(*self.stretches, strict=True))
        scraped: dict[str, Mapping[str, Counts]] = {}
        for replica in self.replicas:
            alive = np.zeros(LENGTH, dtype=bool)
            for life in replica.lives:
                alive[life.start : life.end] = True
            requests = random.poisson(rate) * alive
            failed = random.binomial(requests, share)
            scraped[replica.instance] = {
                "success": requests - failed,
                "BACKEND": failed,
                "CANCELED": random.binomial(requests, 0.1),
            }
        return scraped

    def truth(self, start: int = BEFORE, end: int = LENGTH) -> tuple[int, int]:
        """Failures that count, and all requests but the cancelled, in [start, end) ticks: in the period."""
        failed, good = (
            sum(int(kinds[kind][max(0, start) : max(0, end)].sum()) for kinds in self.events.values())
            for kind in ("BACKEND", "success")
        )
        return failed, failed + good

    def allowance(self) -> tuple[float, float]:
        """By how many failures and requests the best reading of the scrapes may miss the truth."""
        failed, good = (
            sum(_allowed(replica, self.events[replica.instance][kind]) for replica in self.replicas)
            for kind in ("BACKEND", "success")
        )
        return failed, failed + good

    def series(self, pauses: Sequence[Pause] = ()) -> Iterator[tuple[str, str]]:
        """promtool's input series, a value a tick; with pauses also the series of them for `pausable` rules."""
        if pauses:
            paused = " ".join(str(int(any(tick in pause for pause in pauses))) for tick in range(LENGTH))
            yield f'{PAUSED}{{model="{self.name}"}}', f"0 {paused}"
        for replica in self.replicas:
            for kind, counts in self.events[replica.instance].items():
                labels = f'model="{self.name}", version="1", instance="{replica.instance}"'
                metric = triton.REQUEST_SUCCESS
                if kind in REASONS:
                    metric, labels = triton.REQUEST_FAILURE, f'{labels}, reason="{kind}"'
                yield f"{metric}{{{labels}}}", " ".join(_scraped(replica, counts, pauses))


@cache
def phases() -> st.SearchStrategy[int]:
    """Ticks after which a replica's scrapes come; the last is the very moment of an evaluation.

    Prometheus 2's ranges include both ends, so there such a scrape counts in two tiles. Of real scrapes, timed
    to the millisecond, it happens to one in 15,000: where promtool is that old, it does not happen here.
    """
    printed = subprocess.run([promtools()[-1], "--version"], capture_output=True, text=True, check=True)
    closed = "version 2." in printed.stdout + printed.stderr
    return st.integers(0, EVERY - 2 if closed else EVERY - 1)


def counter(replica: Replica, counts: Counts) -> list[tuple[int, int, int]]:
    """(tick, value, life) of each successful scrape: the counter at the end of the tick."""
    changes = []
    for number, life in enumerate(replica.lives):
        grown = life.past + np.cumsum(counts[life.start : life.end])
        ticks = np.arange(life.start, life.end)
        ticks = ticks[ticks % EVERY == replica.phase]
        for low, high in replica.gaps:
            ticks = ticks[(ticks < low) | (ticks >= high)]
        values = grown[ticks - life.start].tolist()
        changes += [(tick, value, number) for tick, value in zip(ticks.tolist(), values, strict=True)]
    return changes


def _scraped(replica: Replica, counts: Counts, pauses: Sequence[Pause]) -> list[str]:
    seen = {tick: value for tick, value, _ in counter(replica, counts)}
    down = [pause for pause in pauses if pause.down]
    # The value after tick n belongs to the time (n + 1) * TICK: promtool's first value is at time 0.
    values = ["_"] * (LENGTH + 1)
    before = True
    for tick in range(replica.phase, LENGTH, EVERY):
        if any(tick in pause for pause in down):
            continue
        if tick in seen:
            values[tick + 1] = str(seen[tick])
            before = False
        elif not before:
            values[tick + 1] = "stale"
            before = True
    return values


def _allowed(replica: Replica, counts: Counts) -> float:
    """Return what one counter may hide: per tile, and where its scrapes are broken off."""
    scrapes = counter(replica, counts)
    ends = [BEFORE + TILE * number for number in range(1, PERIOD // TILE + 1)]
    return sum(_allowed_in_tile(replica, counts, scrapes, end) for end in ends)


def allowed_since(replica: Replica, counts: Counts, tiles: Iterable[tuple[int, int]]) -> float:
    """Return what one counter may hide in tiles of any lengths: (start, end) in ticks."""
    scrapes = counter(replica, counts)
    hidden = 0.0
    for start, end in tiles:
        hidden += _allowed_in_tile(replica, counts, scrapes, end, end - start)
        hidden += sum(int(counts[max(0, edge - EVERY) : edge + EVERY].sum()) for edge in (start, end))
    return hidden


def _allowed_in_tile(
    replica: Replica, counts: Counts, scrapes: list[tuple[int, int, int]], end: int, length: int = TILE
) -> float:
    start = end - length
    truth = int(counts[start:end].sum())
    inside = scrapes[bisect_left(scrapes, (start - EVERY,)) : bisect_left(scrapes, (end,))]
    whole = len(inside) == length // EVERY + 1
    if len(inside) < 2:
        return truth
    increase = sum(
        value if value < before else value - before for (_, before, _), (_, value, _) in pairwise(inside)
    )
    if whole and len({life for *_, life in inside}) == 1:
        # Nothing is broken: a window's two ends are the events around them, and a counter near zero keeps rate()
        # from reaching further back than where it was zero.
        near_zero = inside[0][1] * len(inside) < increase
        edges = int(counts[max(0, start - EVERY) : start + EVERY].sum()) + int(
            counts[end - EVERY : end].sum()
        )
        return _edge(start, end, edges) + (increase / (len(inside) - 1) if near_zero else 0)
    return abs(truth - increase) + _EXTRAPOLATED * increase / (len(inside) - 1)


def _edge(start: int, end: int, events: int) -> float:
    """Neighbouring tiles share their edges, so only the period's own ends count."""
    return events if start == BEFORE or end == LENGTH else 0


stretches = st.lists(
    st.tuples(st.sampled_from((0.0, 0.02, 0.5, 5.0, 40.0)), st.sampled_from((0.0, 0.001, 0.02, 0.3, 1.0))),
    min_size=1,
    max_size=12,
).map(tuple)
"""Traffic of a made model: stretches of so many requests a second, of which so many fail."""
