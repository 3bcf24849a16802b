"""What was recorded of objectives over a month or a quarter: their time with and without records, and their events."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple

from triton_exporter.common.duration import DAY
from triton_exporter.common.moments import time_zone
from triton_slo import names
from triton_slo.fields import Choice
from triton_slo.objective.model import CalendarWindow, Period, period_at
from triton_slo.prometheus import Prometheus, Sample, query_ranges
from triton_slo.promql import Matchers

_NAMED = re.compile(r"([12][0-9]{3})-(?:(0[1-9]|1[0-2])|Q([1-4]))")
_RELATIVE = re.compile(r"(last|this)-(month|quarter)")
PeriodKind = Literal["month", "quarter"]


@dataclass(frozen=True, slots=True)
class ReportedPeriod:
    """A month or a quarter; when it begins and ends depends on the time zone."""

    kind: PeriodKind
    year: int
    number: int
    """1 to 12 of a month, 1 to 4 of a quarter."""

    @property
    def name(self) -> str:
        """The period as `--period` takes it: 2026-10 or 2026-Q3."""
        return f"{self.year}-{self.number:02d}" if self.kind == "month" else f"{self.year}-Q{self.number}"

    def in_zone(self, timezone: str) -> Period:
        """Return its first moment and the first moment after it on the clocks of a time zone."""
        month = self.number if self.kind == "month" else 3 * self.number - 2
        inside = datetime(self.year, month, 15, tzinfo=time_zone(timezone)).timestamp()
        return period_at(CalendarWindow(calendar=self.kind, timezone=timezone), inside)


def parse_period(text: str, now: float, timezone: str = "UTC") -> ReportedPeriod:
    """Read the name of a period; `last-month` is the month before the one that contains Unix time `now`.

    Raises ValueError on any other text.
    """
    if match := _NAMED.fullmatch(text):
        year, month, quarter = match.groups()
        return ReportedPeriod("month" if month else "quarter", int(year), int(month or quarter))
    if not (match := _RELATIVE.fullmatch(text)):
        forms = "2026-10, 2026-Q3, last-month, this-month, last-quarter or this-quarter"
        raise ValueError(f"{text[:40]!r} is not a period; write {forms}")
    today = datetime.fromtimestamp(now, time_zone(timezone))
    months = today.year * 12 + today.month - 1
    if match[2] == "month":
        months -= match[1] == "last"
        return ReportedPeriod("month", months // 12, months % 12 + 1)
    quarters = months // 3 - (match[1] == "last")
    return ReportedPeriod("quarter", quarters // 4, quarters % 4 + 1)


STEP_SECONDS = 300
"""Step in which recorded time is counted: Prometheus' lookback for a sample."""


@dataclass(frozen=True, slots=True)
class RecordedGroup:
    """One model version (or other group) of an objective over a period.

    `since` is when its counter began, or, where that is later, the start of the period.
    """

    group: Mapping[str, str]
    target: float | None
    error: float
    total: float
    since: float
    target_before: float | None = None
    unknown_seconds: float = 0.0
    sources: tuple[str, ...] = ()
    estimate_error: float | None = None


_ABOUT = frozenset({names.OWNER, "description", "target", "window", "threshold"})
"""Labels of `INFO` that describe the objective; the others are those of all its series."""


@dataclass(frozen=True, slots=True)
class RecordedObjective:
    """The record of an objective over a period, which ends now where it has not ended yet.

    `recorded_from` and `recorded_until` are the first and the last moment with a record, `pauses` are the times in
    which its rules recorded nothing, and `excluded` seconds that did not count, by reason.
    """

    slo: str
    indicator: str
    owner: str
    description: str
    window: str
    timezone: str
    period: Period
    recorded_from: float
    recorded_until: float
    pauses: tuple[Period, ...] = ()
    excluded: Mapping[str, float] = field(default_factory=dict)
    groups: tuple[RecordedGroup, ...] = ()

    @property
    def begins_late(self) -> float | None:
        """The first moment with a record, where the period began before it."""
        return self.recorded_from if self.recorded_from - self.period.start > STEP_SECONDS else None

    @property
    def counts_nothing_yet(self) -> bool:
        """True if its recording began late and has one record: events are counted from one record to the next."""
        return self.begins_late is not None and self.recorded_until - self.recorded_from < STEP_SECONDS

    @property
    def ends_early(self) -> float | None:
        """The last moment with a record, where the period ends a step or more after it."""
        return self.recorded_until if self.period.end - self.recorded_until >= STEP_SECONDS else None


class _Info(NamedTuple):
    """An objective, labels of all of its series besides its name (a selector's, a tenant's), the labels of its newest
    record, and the end of every step in which there was one.
    """

    slo: str
    fixed: names.GroupLabels
    labels: Mapping[str, str]
    recorded: frozenset[int]


def recorded_objectives(
    prometheus: Prometheus, reported: ReportedPeriod, now: float, timezone: str = "UTC"
) -> tuple[RecordedObjective, ...]:
    """Return what was recorded in a period of each objective that has records in it. Raises PrometheusError.

    `timezone` is that of objectives with a rolling window; a calendar objective has its own.
    """
    # A day more on both sides contains the period of every time zone.
    around = reported.in_zone("UTC")
    infos = _infos(prometheus, around.start - DAY, min(around.end + DAY, now))
    by_period: dict[Period, list[tuple[_Info, str]]] = defaultdict(list)
    for info in infos:
        zone = _window_zone(info.labels.get("window", ""), timezone)
        whole = reported.in_zone(zone)
        period = Period(whole.start, min(whole.end, int(now)))
        if any(period.start < at <= period.end for at in info.recorded):
            by_period[period].append((info, zone))
    objectives = [
        objective
        for period, members in by_period.items()
        for objective in _read_period(prometheus, period, members)
    ]
    return tuple(sorted(objectives, key=lambda objective: objective.slo))


def _infos(prometheus: Prometheus, start: float, end: float) -> list[_Info]:
    newest: dict[tuple[str, names.GroupLabels], tuple[float, Mapping[str, str]]] = {}
    recorded: dict[tuple[str, names.GroupLabels], set[int]] = defaultdict(set)
    own = _ABOUT | names.NOT_OF_GROUP
    for first, last in query_ranges(int(start), end, STEP_SECONDS):
        for series in prometheus.range(f"{names.INFO}{{{names.RECORDED_HERE}}}", first, last, STEP_SECONDS):
            fixed = tuple(sorted((key, value) for key, value in series.labels.items() if key not in own))
            key, at = (series.labels.get(names.SLO, ""), fixed), max(series.times, default=0.0)
            recorded[key].update(map(round, series.times))
            if key not in newest or at > newest[key][0]:
                newest[key] = at, series.labels
    return [_Info(*key, newest[key][1], frozenset(at)) for key, at in recorded.items()]


def _window_zone(window: str, otherwise: str) -> str:
    """Return the time zone in the words of a calendar window (`month, Europe/Berlin`)."""
    _, comma, zone = window.partition(", ")
    try:
        return str(time_zone(zone)) if comma else otherwise
    except ValueError:
        return otherwise


def _read_period(
    prometheus: Prometheus, period: Period, members: Sequence[tuple[_Info, str]]
) -> Iterator[RecordedObjective]:
    """Yield what was recorded of objectives that have the same period, asked for all of them at once."""
    slos = tuple(sorted({info.slo for info, _ in members}))
    matchers = Matchers((names.RECORDED_HERE,)).choosing(names.SLO, Choice(names=slos))
    counted = _counted(prometheus, period, matchers)
    window = f"{round(period.end - period.start)}s"
    unknown, excluded, sources, errors = (
        prometheus.instant(query, period.end)
        for query in (
            f"count_over_time({names.ALERTS}{_UNKNOWN}[{window}:{STEP_SECONDS}s])",
            f"count_over_time({names.SLI_EXCLUDED}{matchers}[{window}:{STEP_SECONDS}s])",
            # Once an hour, as of a quarter all would be many; and of what began within the last hour.
            *(
                f"{how}({series}{matchers}[{window}:1h]) or {how}({series}{matchers}[1h])"
                for how, series in (
                    ("last_over_time", names.SLI_SOURCE),
                    ("avg_over_time", names.ESTIMATE_ERROR),
                )
            ),
        )
    )
    sources_of = defaultdict[_GroupOf, set[str]](set)
    for sample in sources:
        sources_of[_group_of(sample)].add(sample.labels.get(names.SOURCE, ""))
    error_of = {_group_of(sample): sample.value for sample in errors}
    for info, zone in members:
        slo, fixed = info.slo, set(info.fixed)
        recorded = [at for at in info.recorded if period.start < at <= period.end]
        # The alert on a model that is gone is about all of its objectives.
        gone = [sample for sample in unknown if sample.labels.get(names.SLO, slo) == slo]
        groups = []
        for (name, group), values in counted.items():
            if name != slo or not fixed <= set(group) or "since" not in values:
                continue
            total, target = values.get(names.TOTAL, 0.0), values.get("target")
            others = [values[key] for key in ("least", "most") if key in values and values[key] != target]
            model = dict(group).get("model")
            # A group can be unknown for two reasons at once; the longer time is surely unknown.
            steps = [each.value for each in gone if model in (None, each.labels.get("model", ""))]
            groups.append(
                RecordedGroup(
                    dict(group),
                    target,
                    min(values.get(names.ERROR, 0.0), total),
                    total,
                    max(period.start, values["since"]),
                    next(iter(others), None),
                    max(steps, default=0.0) * STEP_SECONDS,
                    tuple(sorted(sources_of[slo, group] - {""})),
                    error_of.get((slo, group)),
                )
            )
        first = min(recorded)
        # Of a step: what began within it says when.
        begun = min(
            (group.since for group in groups if 0 < first - group.since < STEP_SECONDS), default=first
        )
        yield RecordedObjective(
            slo=slo,
            indicator=info.labels.get(names.INDICATOR, ""),
            owner=info.labels.get(names.OWNER, ""),
            description=info.labels.get("description", ""),
            window=info.labels.get("window", ""),
            timezone=zone,
            period=period,
            recorded_from=begun,
            recorded_until=max(recorded),
            pauses=tuple(_pauses(period, (begun, *recorded))),
            excluded={
                sample.labels.get(names.REASON, ""): sample.value * STEP_SECONDS
                for sample in excluded
                if {(names.SLO, slo), *fixed} <= set(sample.labels.items())
            },
            groups=tuple(groups),
        )


_UNKNOWN = Matchers((f'alertname=~"{names.UNKNOWN_ALERT}|{names.UNMEASURED_ALERT}"', 'alertstate="firing"'))
_GroupOf = tuple[str, names.GroupLabels]
"""Objective, and labels of the group."""


def _group_of(sample: Sample) -> _GroupOf:
    return sample.labels.get(names.SLO, ""), names.group_of(sample.labels)


def _counted(prometheus: Prometheus, period: Period, matchers: Matchers) -> dict[_GroupOf, dict[str, float]]:
    """Return what every counter grew by in the period (by event), since when it counts, and its targets."""
    seconds = max(1, round(period.end - period.start))
    window, counter = f"[{seconds}s]", f"{names.COPY}{matchers}"
    # Exact; `increase` extrapolates to both ends, which are a tenth of the first hour. It knows where a counter began again.
    first = f"({names.COUNTER}{matchers} offset {seconds}s or {counter} offset {seconds}s or min_over_time({counter}{window}))"
    # The copy lags by up to four minutes, in which most failures of a period so far may be.
    most = f"max_over_time({counter}{window})"
    last = f"(last_over_time({names.COUNTER}{matchers}[1h]) > {most} or {most})"
    grown = f"{last} - {first} >= 0 and resets({counter}{window}) == 0 or increase({counter}{window})"
    target = f"{names.OBJECTIVE_RATIO}{matchers}{window}"
    counted: dict[_GroupOf, dict[str, float]] = defaultdict(dict)
    for sample in prometheus.instant(grown, period.end):
        values, event = counted[_group_of(sample)], sample.labels.get(names.EVENT, "")
        # Two counters of a group are those of two thresholds, one after the other.
        values[event] = values.get(event, 0.0) + sample.value
    for key, query in {
        "since": f"min_over_time({names.COUNTER_SINCE}{matchers}{window})",
        "target": f"last_over_time({target})",
        "least": f"min_over_time({target})",
        "most": f"max_over_time({target})",
    }.items():
        for sample in prometheus.instant(query, period.end):
            counted[_group_of(sample)][key] = sample.value
    return counted


def _pauses(period: Period, recorded: Iterable[float]) -> Iterator[Period]:
    """Yield the times of a period without records, from one step that has some to the next one."""
    before = period.start
    for at in sorted(recorded):
        if at - before > STEP_SECONDS:
            yield Period(before, at)
        before = at
    if period.end - before >= STEP_SECONDS:
        yield Period(before, period.end)
