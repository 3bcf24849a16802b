"""Make weeks of random events of objectives, as rules would have recorded them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from support.history import Series
from triton_slo import names

STEP = 300
AGE = 7
"""Seconds by which a record is older than the whole 5 minutes that follow it."""
DAY = 86_400
Span = tuple[float, float]


def unix(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


FIRST = unix("2025-08-29")
LAST = unix("2025-10-03")
START, END = unix("2025-09-01"), unix("2025-10-01")
TIMES = np.arange(FIRST, LAST + 1, STEP)


@dataclass(frozen=True)
class MadeGroup:
    """Events of a model, made at random; `alive` is when it serves, `recorded` how long its series are there."""

    model: str
    failing: float
    seed: int
    pace: float = 300.0
    alive: Span = (FIRST, LAST + 1)
    recorded: Span = (FIRST, LAST + 1)
    target: float = 0.999
    changed: tuple[float, float] | None = None
    """When the target changed, and what it was before."""
    more: Sequence[tuple[str, Mapping[str, str], Span, float]] = ()
    """Other recorded series: name, labels besides those of the group, when, value."""

    @property
    def events(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Failed and all events of the 5 minutes before each time."""
        rng = np.random.default_rng(self.seed)
        total = rng.poisson(self.pace * (1.5 + np.sin(TIMES / 9_000)))
        total[(self.alive[0] >= TIMES) | (self.alive[1] < TIMES)] = 0
        return rng.binomial(total, self.failing), total

    def target_at(self, at: float) -> float:
        return self.changed[1] if self.changed is not None and at < self.changed[0] else self.target

    def truth(self, span: Span) -> tuple[int, int]:
        """Failed and all events in a span of time."""
        inside = (span[0] < TIMES) & (span[1] >= TIMES)
        error, total = self.events
        return int(error[inside].sum()), int(total[inside].sum())


@dataclass(frozen=True)
class MadeObjective:
    slo: str
    owner: str
    groups: Sequence[MadeGroup]
    window: str = "30d"
    recorded: Sequence[Span] = ((FIRST, LAST + 1),)
    excluded: Mapping[str, Span] | None = None

    def series(self) -> Iterator[Series]:
        own = {names.SLO: self.slo, names.INDICATOR: "errors"}
        about = {names.OWNER: self.owner, "target": "0.999", "window": self.window}
        yield names.INFO, {**own, **about}, [(at - AGE, 1.0) for at in TIMES if self.is_recorded(at)]
        for reason, span in (self.excluded or {}).items():
            times = [(at - AGE, 1.0) for at in TIMES if span[0] < at <= span[1]]
            yield names.SLI_EXCLUDED, {**own, names.REASON: reason}, times
        for group in self.groups:
            labels = {**own, "model": group.model, "version": "1"}
            yield from self._counters(group, labels)
            moments = [
                at for at in TIMES if self.is_recorded(at) and group.recorded[0] <= at < group.recorded[1]
            ]
            yield (
                names.OBJECTIVE_RATIO,
                labels,
                [(at - AGE, group.target_at(at)) for at in moments if at % 3600 <= STEP],
            )
            for name, besides, span, value in group.more:
                yield (
                    name,
                    {**labels, **besides},
                    [(at - AGE, value) for at in moments if span[0] < at <= span[1]],
                )

    def is_recorded(self, at: float) -> bool:
        return any(start <= at < end for start, end in self.recorded)

    def _counters(self, group: MadeGroup, labels: Mapping[str, str]) -> Iterator[Series]:
        """Return counters as the rules record them: they begin again after a pause of over an hour."""
        sums: dict[str, list[tuple[float, float]]] = {names.ERROR: [], names.TOTAL: [], "since": []}
        error, total = 7_000.0, 9_000_000.0
        since, last = group.recorded[0], group.recorded[0]
        for at, failed, events in zip(TIMES, *group.events, strict=True):
            error, total = error + failed, total + events
            if not (self.is_recorded(at) and group.recorded[0] <= at < group.recorded[1]):
                continue
            if at - last > 3600 or (at == since and since > FIRST):
                # A group is counted from its first evaluation on, and nothing is known of what was before.
                error, total = 0.0, 0.0
                since = at if at - last > DAY or at == since else since
            last = at
            sums[names.ERROR].append((at - AGE, error))
            sums[names.TOTAL].append((at - AGE, total))
            sums["since"].append((at - AGE, since - AGE))
        yield names.COUNTER_SINCE, labels, sums.pop("since")
        for event, points in sums.items():
            yield names.COPY, {**labels, names.EVENT: event}, points
