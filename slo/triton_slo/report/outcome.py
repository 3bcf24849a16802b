"""Outcomes of objectives over a period, with their caveats, and the report that they are in.

An objective is met where it is met even if every event of the time without trustworthy records had failed, at the
average pace of the recorded time, and even if an estimate is wrong by its stated error. It is missed where it is
missed even if all of those events had been good. Everything between is unknown. Records that begin after the period
does, or end before it, never show that an objective was met.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from triton_exporter.common.duration import DAY, in_words
from triton_exporter.common.moments import local_text
from triton_slo.amounts import not_known_yet
from triton_slo.fields import error_budget
from triton_slo.group_status import group_name, points
from triton_slo.objective.model import Objective
from triton_slo.prometheus import Prometheus
from triton_slo.report.events import (
    STEP_SECONDS,
    RecordedGroup,
    RecordedObjective,
    ReportedPeriod,
    recorded_objectives,
)
from triton_slo.sources import caveat_words, caveats_of

Result = Literal["met", "missed", "unknown", "no events"]
RESULTS: tuple[Result, ...] = ("missed", "unknown", "met", "no events")
"""The worst first: an objective has the worst result of its groups."""
NOT_RECORDED = "nothing was recorded in this period"


@dataclass(frozen=True, slots=True)
class JudgedGroup:
    """One model version (or other group) over the period.

    `sli` is the share of good events, `budget_spent` 1 where all of the budget is; None without events or target.
    `missing_seconds` is time without trustworthy records, `reason` why the result is unknown.
    """

    slo: str
    recorded: RecordedGroup
    result: Result
    sli: float | None
    budget_spent: float | None
    missing_seconds: float
    reason: str = ""

    @property
    def group(self) -> Mapping[str, str]:
        return self.recorded.group

    @property
    def name(self) -> str:
        return group_name(self.group) or "all models"

    @property
    def caveats(self) -> tuple[str, ...]:
        """Sources of its numbers that cannot see everything: keys of `sources.CAVEATS`."""
        return caveats_of(self.recorded.sources)

    @property
    def qualified(self) -> str:
        """The caveats of its numbers in words, `estimated, +-1.2 points`; empty where there are none."""
        error = self.recorded.estimate_error
        return caveat_words(self.caveats, "" if error is None else f", +-{points(error)}")


@dataclass(frozen=True, slots=True)
class ObjectiveOutcome:
    """One objective over the period; without groups nothing was recorded of it."""

    slo: str
    owner: str
    recorded: RecordedObjective | None
    groups: tuple[JudgedGroup, ...] = ()

    @property
    def result(self) -> Result:
        """The worst result of its groups."""
        results = {group.result for group in self.groups}
        return next((each for each in RESULTS if each in results), "unknown")

    @property
    def counts_nothing_yet(self) -> bool:
        """True if it has too few records to count events: their number is unknown, not 0."""
        return self.recorded is not None and self.recorded.counts_nothing_yet

    @property
    def error(self) -> float | None:
        return None if self.counts_nothing_yet else sum(group.recorded.error for group in self.groups)

    @property
    def total(self) -> float | None:
        return None if self.counts_nothing_yet else sum(group.recorded.total for group in self.groups)

    @property
    def sli(self) -> float | None:
        """The share of good events among those of all groups."""
        return 1 - self.error / self.total if self.total and self.error is not None else None

    @property
    def qualified(self) -> str:
        """The caveats of its groups in words, without their errors."""
        return caveat_words(source for group in self.groups for source in group.caveats)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes about time that was not recorded or did not count."""
        if self.recorded is None:
            return (NOT_RECORDED,)
        return tuple(_notes(self.recorded))


@dataclass(frozen=True, slots=True)
class ReportedIncident:
    """An incident of the period: times are Unix seconds; `document` is what `incidents --json` has of it."""

    name: str
    title: str
    severity: str
    began_at: float
    ended_at: float | None
    acknowledged: bool
    owners: tuple[str, ...]
    document: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class PeriodReport:
    """The report of a period, made at `at`; `incidents` is None where no bridge was asked."""

    reported: ReportedPeriod
    timezone: str
    at: float
    objectives: tuple[ObjectiveOutcome, ...]
    incidents: tuple[ReportedIncident, ...] | None = None
    incidents_known_from: float = 0.0
    warnings: tuple[str, ...] = ()

    @property
    def in_progress(self) -> bool:
        """True if the period has not ended in every time zone of the report."""
        zones = {
            self.timezone,
            *(objective.recorded.timezone for objective in self.objectives if objective.recorded),
        }
        return any(self.reported.in_zone(zone).end > self.at for zone in zones)

    def worded(self, judged: ObjectiveOutcome | JudgedGroup) -> str:
        """Return a result as people and programs read it: `met (estimated)`, and `met so far` before the end."""
        so_far = " so far" if self.in_progress and judged.result in ("met", "missed") else ""
        qualified = f" ({judged.qualified})" if judged.qualified and judged.result != "no events" else ""
        return f"{judged.result}{so_far}{qualified}"

    def budget_not_known_yet(self, objective: ObjectiveOutcome, judged: JudgedGroup) -> str:
        """Return why no budget of a group is shown; an empty text where enough of the period is recorded."""
        whole = self.reported.in_zone(self.timezone)
        recorded = objective.recorded
        until = (recorded.ends_early or recorded.period.end) if recorded else whole.end
        return not_known_yet(until - judged.recorded.since, (whole.end - whole.start) / DAY)

    @property
    def owners(self) -> Mapping[str, tuple[ObjectiveOutcome, ...]]:
        """Objectives by owner; those without one are last."""
        owners = sorted(
            {objective.owner for objective in self.objectives}, key=lambda owner: (not owner, owner)
        )
        return {
            owner: tuple(objective for objective in self.objectives if objective.owner == owner)
            for owner in owners
        }


def tally(outcomes: Iterable[ObjectiveOutcome]) -> dict[Result, int]:
    """Return how many objectives have each result."""
    results = [judged.result for judged in outcomes]
    return {result: results.count(result) for result in RESULTS}


def _notes(recorded: RecordedObjective) -> Iterable[str]:
    late, early = recorded.begins_late, recorded.ends_early
    zone = recorded.timezone
    if late is not None:
        counted = ", and events are counted from then on" if recorded.counts_nothing_yet else ""
        yield f"recorded only from {local_text(late, zone)}{counted}"
    if early is not None:
        yield f"recorded only until {local_text(early, zone)}"
    inside = [pause for pause in recorded.pauses if pause.end != late and pause.start != early]
    if inside:
        longest = max(inside, key=lambda pause: pause.end - pause.start)
        seconds = sum(pause.end - pause.start for pause in inside)
        yield (
            f"not recorded for {in_words(seconds)} in between, the longest from "
            f"{local_text(longest.start, zone)} for {in_words(longest.end - longest.start)}"
        )
    for reason, seconds in sorted(recorded.excluded.items()):
        yield f"excluded for {in_words(seconds)}: {reason}"


def restrictions(objective: ObjectiveOutcome, outcome: JudgedGroup) -> Sequence[str]:
    """Return what a reader must know of a group's numbers besides them."""
    recorded, whole = outcome.recorded, objective.recorded
    before, unknown = recorded.target_before, recorded.unknown_seconds
    new = whole is not None and recorded.since > whole.period.start
    words = [
        outcome.reason,
        outcome.qualified,
        f"unknown for {in_words(unknown)}" if unknown and unknown != outcome.missing_seconds else "",
        f"counted from {local_text(recorded.since, whole.timezone)}" if whole and new else "",
        f"the target was {before:.6g} before" if before is not None else "",
    ]
    return [word for word in words if word]


def outcome(recorded: RecordedObjective) -> ObjectiveOutcome:
    """Judge what was recorded of an objective."""
    groups = (_judge_group(recorded, group) for group in recorded.groups)
    order = sorted(
        groups, key=lambda group: (RESULTS.index(group.result), -(group.budget_spent or 0.0), group.name)
    )
    return ObjectiveOutcome(recorded.slo, recorded.owner, recorded, tuple(order))


def _judge_group(objective: RecordedObjective, group: RecordedGroup) -> JudgedGroup:
    missing = _paused_seconds(objective, group) + group.unknown_seconds
    sli = 1 - group.error / group.total if group.total else None
    spent = None if sli is None or group.target is None else (1 - sli) / error_budget(group.target)
    result, reason = _result(objective, group, missing)
    return JudgedGroup(objective.slo, group, result, sli, spent, missing, reason)


def _paused_seconds(objective: RecordedObjective, group: RecordedGroup) -> float:
    """Return how long nothing was recorded of a group.

    A pause at the start of the period counts as a whole, because the group may have been there already; later ones
    count from when it began.
    """
    start = objective.period.start
    begins = (
        (pause, start if pause.start == start else max(pause.start, group.since))
        for pause in objective.pauses
    )
    return sum(max(0.0, pause.end - begin) for pause, begin in begins)


def _result(objective: RecordedObjective, group: RecordedGroup, missing: float) -> tuple[Result, str]:
    """Return the result of a group, and why it is unknown where it is.

    With events, by the most and the fewest failures that the missing time and the error of an estimate allow.
    """
    if group.target is None:
        return "unknown", "no target was recorded"
    incomplete = objective.begins_late or objective.ends_early
    if not group.total:
        if not incomplete and missing <= STEP_SECONDS:
            return "no events", ""
        nothing = objective.counts_nothing_yet
        events = "not enough records to count events yet" if nothing else "no event was recorded"
        return "unknown", f"{_missing_reason(objective, missing)}; {events}"
    allowed, error = error_budget(group.target), group.estimate_error or 0.0
    lasted = objective.period.end - group.since
    counted = max(STEP_SECONDS, lasted - missing - sum(objective.excluded.values()))
    lost = group.total / counted * missing
    least, most = group.error / (group.total + lost), (group.error + lost) / (group.total + lost)
    if least - error > allowed:
        return "missed", ""
    if most + error <= allowed and not incomplete:
        return "met", ""
    if incomplete or (lost and most > allowed):
        return "unknown", _missing_reason(objective, missing)
    return "unknown", f"within the error of the estimate (+-{points(error)})"


def _missing_reason(objective: RecordedObjective, missing: float) -> str:
    if objective.begins_late is not None:
        return "recorded only from a time after the period began"
    if objective.ends_early is not None:
        return "recorded only until a time before the period ended"
    return f"nothing is known of {in_words(missing)}"


def recorded_report(
    prometheus: Prometheus,
    reported: ReportedPeriod,
    now: float,
    timezone: str = "UTC",
    objectives: Sequence[Objective] = (),
) -> PeriodReport:
    """Return the report of all owners, without incidents.

    Objectives of files of which nothing was recorded are unknown. Raises PrometheusError.
    """
    with prometheus.collecting() as remarks:
        recorded = recorded_objectives(prometheus, reported, now, timezone)
    outcomes = [outcome(each) for each in recorded]
    if recorded:
        filed = {objective.name: objective for objective in objectives}
        for name in sorted(filed.keys() - {objective.slo for objective in recorded}):
            outcomes.append(ObjectiveOutcome(name, filed[name].owner, None))
    return PeriodReport(reported, timezone, now, tuple(outcomes), warnings=tuple(remarks.warnings))
