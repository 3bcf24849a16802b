"""Recorded events of objectives over a period, corrected, with time without records, unknown and excluded time.

Events are differences of the running sums that the rules record. A sum begins again after a pause of the rules of
more than a day, and ends when its group is gone, at once or days later: so the last sum of every day is read, and
those at the edges of every long pause, and the differences are added up. Recorded time is counted in steps of 5
minutes, which is how far Prometheus looks back for a sample.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from triton_exporter.duration import DAY
from triton_slo import names
from triton_slo.fields import Choice
from triton_slo.objective.zone import known
from triton_slo.prometheus import Prometheus, Sample
from triton_slo.promql import Matchers
from triton_slo.report.reported_period import ReportedPeriod
from triton_slo.rules.periods import Period

STEP_SECONDS = 300
_POINTS = 10_000
"""Steps of one range query: Prometheus answers at most 11,000."""
_EVERY_SECONDS = DAY
_FINE_SECONDS = 3600
"""Precision (seconds) of the last sum of a group that is gone with its objective: later events are lost."""
_LONG_PAUSE_SECONDS = 3600
_ABOUT = frozenset({names.OWNER, "description", "target", "window", "threshold"})
"""Labels of `INFO` that describe the objective; the others are those of all its series."""
_READ = (names.SLI_EVENTS_SUM, names.SLI_EVENTS_SINCE, names.OBJECTIVE_RATIO)

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class RecordedGroup:
    """One model version (or other group) of an objective over a period.

    `since` is when its running sum began, or the start of the period where that is later. `restarted` means that
    events between two readings of the sum are not known, although the rules recorded.
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


@dataclass(frozen=True, slots=True)
class RecordedObjective:
    """The record of an objective over a period, which ends now where it has not ended yet.

    `recorded_from` and `recorded_until` are the first and the last moment with a record, `pauses` are the times in
    which its rules recorded nothing, `excluded` seconds that did not count, by reason,
    `corrections` the failed and all events that each correction added, below 0: took out.
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
    corrections: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class _Info:
    """The labels of an objective's newest record, and the end of every step in which there was one."""

    labels: Mapping[str, str]
    recorded: frozenset[int]

    @property
    def slo(self) -> str:
        return self.labels.get(names.SLO, "")

    @property
    def fixed(self) -> Labels:
        """Labels of all series of the objective besides its name: a selector's, a tenant's."""
        own = _ABOUT | names.NOT_OF_GROUP
        return tuple(sorted((key, value) for key, value in self.labels.items() if key not in own))


def recorded_objectives(
    prometheus: Prometheus, reported: ReportedPeriod, now: float, timezone: str = "UTC"
) -> tuple[RecordedObjective, ...]:
    """Return what was recorded in a period of each objective that has records in it. Raises PrometheusError.

    `timezone` is that of objectives with a rolling window; a calendar objective has its own.
    """
    # On whole days around, so that it holds the period of every time zone.
    around = reported.in_zone("UTC")
    infos = _infos(prometheus, around.start - DAY, min(around.end + DAY, now))
    spans: dict[Period, list[tuple[_Info, str]]] = defaultdict(list)
    for info in infos:
        zone = _zone(info.labels.get("window", ""), timezone)
        whole = reported.in_zone(zone)
        period = Period(whole.start, min(whole.end, now // STEP_SECONDS * STEP_SECONDS))
        if any(period.start < at <= period.end for at in info.recorded):
            spans[period].append((info, zone))
    objectives = [
        objective for period, members in spans.items() for objective in _read(prometheus, period, members)
    ]
    return tuple(sorted(objectives, key=lambda objective: objective.slo))


def _infos(prometheus: Prometheus, start: float, end: float) -> list[_Info]:
    versions: dict[tuple[str, Labels], list[tuple[float, Mapping[str, str]]]] = defaultdict(list)
    recorded: dict[tuple[str, Labels], set[int]] = defaultdict(set)
    for first in range(int(start), int(end) + 1, _POINTS * STEP_SECONDS):
        last = min(end, first + (_POINTS - 1) * STEP_SECONDS)
        for series in prometheus.range(f"{names.INFO}{{{names.RECORDED_HERE}}}", first, last, STEP_SECONDS):
            key = (series.labels.get(names.SLO, ""), _Info(series.labels, frozenset()).fixed)
            recorded[key].update(map(round, series.times))
            versions[key].append((max(series.times, default=0.0), series.labels))
    return [
        _Info(max(versions[key], key=lambda version: version[0])[1], frozenset(at))
        for key, at in recorded.items()
    ]


def _zone(window: str, otherwise: str) -> str:
    """Return the time zone in the words of a calendar window (`month, Europe/Berlin`)."""
    _, comma, zone = window.partition(", ")
    try:
        return str(known(zone)) if comma else otherwise
    except ValueError:
        return otherwise


def _read(
    prometheus: Prometheus, period: Period, members: Sequence[tuple[_Info, str]]
) -> Iterator[RecordedObjective]:
    """Yield what was recorded of objectives that have the same period, asked for all of them at once."""
    pauses = {info: tuple(_pauses(period, info.recorded)) for info, _ in members}
    slos = sorted({info.labels.get(names.SLO, "") for info, _ in members})
    matchers = Matchers((names.RECORDED_HERE,)).choosing(names.SLO, Choice(names=tuple(slos)))
    edges = _edges(period, (pause for spans in pauses.values() for pause in spans))
    sums = _Sums.queried(prometheus, period, edges, matchers)
    records = _Records.queried(prometheus, period, matchers)
    for info, zone in members:
        own = records.of(info)
        recorded = [at for at in info.recorded if period.start < at <= period.end]
        yield RecordedObjective(
            slo=info.slo,
            indicator=info.labels.get(names.INDICATOR, ""),
            owner=info.labels.get(names.OWNER, ""),
            description=info.labels.get("description", ""),
            window=info.labels.get("window", ""),
            timezone=zone,
            period=period,
            recorded_from=min(recorded),
            recorded_until=max(recorded),
            pauses=pauses[info],
            excluded=own.excluded_seconds(),
            corrections=own.corrected_events(),
            groups=own.completed(sums.of(info.slo, set(info.fixed), period, pauses[info])),
        )


@dataclass(frozen=True, slots=True)
class _Records:
    """Samples beside the running sums, over a period: of many objectives, or of one."""

    unknown: Sequence[Sample]
    excluded: Sequence[Sample]
    sources: Sequence[Sample]
    estimate_errors: Sequence[Sample]
    corrections: Sequence[Sample]

    @classmethod
    def queried(cls, prometheus: Prometheus, period: Period, matchers: Matchers) -> _Records:
        """Query them for all objectives that the matchers choose. Raises PrometheusError."""
        length = round(period.end - period.start)
        hourly = f"[{length}s:1h]"
        # Without the very start, at which the tile before ends: in Prometheus 2 a range has both its ends.
        written = f"{names.SLI_EVENTS_CORRECTION}{matchers}[{1000 * length - 1}ms]"
        queries = (
            _steps(names.UNKNOWN, matchers, length),
            _steps(names.SLI_EXCLUDED, matchers, length),
            f"last_over_time({names.SLI_SOURCE}{matchers}{hourly})",
            f"avg_over_time({names.ESTIMATE_ERROR}{matchers}{hourly})",
            f"sum_over_time({written})",
        )
        return cls(*(prometheus.instant(query, period.end) for query in queries))

    def of(self, info: _Info) -> _Records:
        """Return those of one objective."""
        fixed = {(names.SLO, info.slo), *info.fixed}
        return _Records(
            *(
                [sample for sample in samples if fixed <= set(sample.labels.items())]
                for samples in (
                    self.unknown,
                    self.excluded,
                    self.sources,
                    self.estimate_errors,
                    self.corrections,
                )
            )
        )

    def excluded_seconds(self) -> dict[str, float]:
        """Return the excluded time by reason."""
        return {sample.labels.get(names.REASON, ""): sample.value * STEP_SECONDS for sample in self.excluded}

    def corrected_events(self) -> dict[str, tuple[float, float]]:
        """Return failed and all events of all groups, by correction."""
        events = defaultdict[tuple[str, str], float](float)
        for sample in self.corrections:
            events[sample.labels.get(names.CORRECTION, ""), sample.labels.get(names.EVENT, "")] += (
                sample.value
            )
        return {name: (events[name, names.ERROR], events[name, names.TOTAL]) for name, _ in sorted(events)}

    def completed(self, groups: Iterable[tuple[Labels, RecordedGroup]]) -> tuple[RecordedGroup, ...]:
        """Return an objective's groups, corrected, with their unknown time, sources and error of estimates."""
        unknown, sources = defaultdict[Labels, float](float), defaultdict[Labels, set[str]](set)
        for sample in self.unknown:
            # Two reasons may hold at once: the longer one is what is surely unknown.
            unknown[names.group_of(sample.labels)] = max(
                unknown[names.group_of(sample.labels)], sample.value * STEP_SECONDS
            )
        for sample in self.sources:
            sources[names.group_of(sample.labels)].add(sample.labels.get(names.SOURCE, ""))
        errors = {names.group_of(sample.labels): sample.value for sample in self.estimate_errors}
        corrected = defaultdict[tuple[Labels, str], float](float)
        for sample in self.corrections:
            corrected[names.group_of(sample.labels), sample.labels.get(names.EVENT, "")] += sample.value
        return tuple(
            replace(
                counted,
                error=max(0.0, counted.error + corrected[group, names.ERROR]),
                total=max(0.0, counted.total + corrected[group, names.TOTAL]),
                unknown_seconds=unknown[group],
                sources=tuple(sorted(sources[group] - {""})),
                estimate_error=errors.get(group),
            )
            for group, counted in groups
        )


def _steps(name: str, matchers: Matchers, seconds: int) -> str:
    return f"count_over_time({name}{matchers}[{seconds}s:{STEP_SECONDS}s])"


def _pauses(period: Period, recorded: frozenset[int]) -> Iterator[Period]:
    """Yield the times of a period without records, from one step that has some to the next one."""
    before = period.start
    for at in sorted(step for step in recorded if period.start < step <= period.end):
        if at - before > STEP_SECONDS:
            yield Period(before, at)
        before = at
    if before < period.end:
        yield Period(before, period.end)


def _edges(period: Period, pauses: Iterable[Period]) -> list[float]:
    """Return when the present sums are read besides the end: before and after every long pause."""
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
class _Sums:
    """Running sums, when they began, and targets, at several moments."""

    values: dict[tuple[str, Labels], dict[float, dict[str, float]]] = field(default_factory=dict)

    @classmethod
    def queried(
        cls, prometheus: Prometheus, period: Period, edges: Iterable[float], matchers: Matchers
    ) -> _Sums:
        """Query the last sums of each day and those at the edges, of all objectives that the matchers choose."""
        sums = cls()
        present = str(matchers.also(f'__name__=~"{"|".join(_READ)}"'))
        daily = _latest(present, _FINE_SECONDS)
        for series in prometheus.range(daily, period.start, period.end - 1, _EVERY_SECONDS):
            for at, value in zip(series.times, series.values, strict=True):
                sums.add(at, series.labels, value)
        for at in edges:
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
    ) -> Iterator[tuple[Labels, RecordedGroup]]:
        """Yield each group of an objective that had a sum, with its events in the period."""
        for (name, group), read in self.values.items():
            if name == slo and fixed <= set(group):
                known_sums = {
                    at: sums
                    for at, sums in read.items()
                    if names.SLI_EVENTS_SINCE in sums and not _within_pause(at, pauses)
                }
                if known_sums:
                    yield group, _counted(group, known_sums, period, pauses)


def _counted(
    group: Labels, read: Mapping[float, Mapping[str, float]], period: Period, pauses: Sequence[Period]
) -> RecordedGroup:
    moments = sorted(read)
    first = read[moments[0]]
    began = first[names.SLI_EVENTS_SINCE]
    counted = dict.fromkeys((names.ERROR, names.TOTAL), 0.0)
    # A sum that began before the first reading: what it had then is not of this period, or not known to be.
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
        since=max(period.start, began),
        target_before=next((other for other in reversed(targets) if other != target), None),
        restarted=restarted,
    )


def _within_pause(at: float, pauses: Sequence[Period]) -> bool:
    """Return whether a moment is between the last record before a pause and the first one after it."""
    return any(pause.start < at < pause.end for pause in pauses)
