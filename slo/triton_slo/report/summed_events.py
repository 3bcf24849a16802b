"""Events of groups over a period, from the running sums that the rules record.

A sum begins again after a pause of the rules of more than a day, and ends when its group is gone, at once or days
later: so the last sum of every day is read, and those at the edges of every long pause, and the differences are
added up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from triton_exporter.common.duration import DAY
from triton_slo import names
from triton_slo.prometheus.client import Prometheus
from triton_slo.promql import Matchers
from triton_slo.rules.periods import Period

STEP_SECONDS = 300
"""Step in which recorded time is counted: Prometheus' lookback for a sample."""

_EVERY_SECONDS = DAY
_FINE_SECONDS = 3600
"""Precision (seconds) of the last sum of a group that is gone with its objective: later events are lost."""
_LONG_PAUSE_SECONDS = 3600
_READ = (names.SLI_EVENTS_SUM, names.SLI_EVENTS_SINCE, names.OBJECTIVE_RATIO)


@dataclass(frozen=True, slots=True)
class RecordedGroup:
    """One model version (or other group) of an objective over a period.

    `since` is when its running sum began, or, where that is later, the start of the period or the objective's first
    record in it. `restarted` means that events between two readings of the sum are not known, although the rules
    recorded.
    """

    group: Mapping[str, str]
    target: float | None
    error: float
    total: float
    since: float
    target_before: float | None = None
    restarted: bool = False
    unknown_seconds: float = 0.0
    sources: tuple[str, ...] = ()
    estimate_error: float | None = None


def _edges(period: Period, pauses: Iterable[Period]) -> list[float]:
    """Return the times, besides the period's end, at which the sums are read: before and after every long pause."""
    edges = {
        at
        for pause in pauses
        if pause.end - pause.start >= _LONG_PAUSE_SECONDS or pause.start == period.start
        for at in (pause.start, pause.end)
    }
    return sorted(edges - {period.end})


def _latest(query: str, step_seconds: int) -> str:
    return f"last_over_time({query}[{_EVERY_SECONDS}s:{step_seconds}s])"


@dataclass
class RunningSums:
    """Running sums, when they began, and targets, at several moments."""

    values: dict[tuple[str, names.GroupLabels], dict[float, dict[str, float]]] = field(default_factory=dict)

    @classmethod
    def queried(
        cls, prometheus: Prometheus, period: Period, pauses: Iterable[Period], matchers: Matchers
    ) -> RunningSums:
        """Query the last sums of each day and those around long pauses, of all objectives that match."""
        sums = cls()
        present = str(matchers.also(f'__name__=~"{"|".join(_READ)}"'))
        daily = _latest(present, _FINE_SECONDS)
        for series in prometheus.range(daily, period.start, period.end - 1, _EVERY_SECONDS):
            for at, value in zip(series.times, series.values, strict=True):
                sums.add(at, series.labels, value)
        for at in _edges(period, pauses):
            for sample in prometheus.instant(present, at):
                sums.add(at, sample.labels, sample.value)
        for sample in prometheus.instant(_latest(present, STEP_SECONDS), period.end):
            sums.add(period.end, sample.labels, sample.value)
        return sums

    def add(self, at: float, labels: Mapping[str, str], value: float) -> None:
        """Take what a series had at a moment."""
        if not math.isnan(value):
            key = (labels.get(names.SLO, ""), names.group_of(labels))
            name = labels.get(names.EVENT) or labels["__name__"]
            self.values.setdefault(key, {}).setdefault(at, {})[name] = value

    def of(
        self, slo: str, fixed: set[tuple[str, str]], period: Period, pauses: Sequence[Period]
    ) -> Iterator[tuple[names.GroupLabels, RecordedGroup]]:
        """Yield each group of an objective that had a sum, with its events in the period."""
        for (name, group), read in self.values.items():
            if name == slo and fixed <= set(group):
                known_sums = {
                    at: sums
                    for at, sums in read.items()
                    if names.SLI_EVENTS_SINCE in sums and not _within_pause(at, pauses)
                }
                if known_sums:
                    yield group, _counted_group(group, known_sums, period, pauses)


def _counted_group(
    group: names.GroupLabels,
    read: Mapping[float, Mapping[str, float]],
    period: Period,
    pauses: Sequence[Period],
) -> RecordedGroup:
    moments = sorted(read)
    first = read[moments[0]]
    began = first[names.SLI_EVENTS_SINCE]
    counted = dict.fromkeys((names.ERROR, names.TOTAL), 0.0)
    # What a sum had at the first reading counts only if it began in the period, and while the rules recorded.
    if began > period.start and not _within_pause(began, pauses):
        counted = {event: first.get(event, 0.0) for event in counted}
    restarted = False
    for before, after in pairwise(moments):
        earlier, later = read[before], read[after]
        same = later[names.SLI_EVENTS_SINCE] == earlier[names.SLI_EVENTS_SINCE]
        for event in counted:
            grown = later.get(event, 0.0) - (earlier.get(event, 0.0) if same else 0.0)
            counted[event] += max(0.0, grown)
        restarted |= not same and not any(before <= pause.start and pause.end <= after for pause in pauses)
    targets = [read[at][names.OBJECTIVE_RATIO] for at in moments if names.OBJECTIVE_RATIO in read[at]]
    target = targets[-1] if targets else None
    return RecordedGroup(
        group=dict(group),
        target=target,
        error=min(counted[names.ERROR], counted[names.TOTAL]),
        total=counted[names.TOTAL],
        since=_counted_since(began, period, pauses),
        target_before=next((other for other in reversed(targets) if other != target), None),
        restarted=restarted,
    )


def _counted_since(began: float, period: Period, pauses: Sequence[Period]) -> float:
    """Return from when the events of a sum are counted: not before the first record of the period."""
    late = (pause.end for pause in pauses if pause.start == period.start < began < pause.end)
    return next(late, max(period.start, began))


def _within_pause(at: float, pauses: Sequence[Period]) -> bool:
    """Return whether a moment is between the last record before a pause and the first one after it."""
    return any(pause.start < at < pause.end for pause in pauses)
