"""Outcome of objectives over a period, with its caveats: recorded series in, frozen values out.

An objective is met where it is met even if every event of the time without trustworthy records had failed, at the
average pace of the recorded time, and even if an estimate is wrong by its stated error. It is missed where it is
missed even if all of those events had been good. Everything between is unknown. Records that begin after the period
does, or end before it, never show that an objective was met.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from triton_exporter.duration import in_words
from triton_slo.indicators.sources import CAVEATS, HIDING
from triton_slo.objective.model import budget
from triton_slo.objective.zone import known
from triton_slo.report.recorded_events import STEP_SECONDS, RecordedGroup, RecordedObjective
from triton_slo.report.reported_period import ReportedPeriod
from triton_slo.verdict.estimate import group_name
from triton_slo.verdict.group_status import points

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
    def model(self) -> str:
        return self.group.get("model", "")

    @property
    def version(self) -> str:
        return self.group.get("version", "")

    @property
    def name(self) -> str:
        """The group as people read it."""
        return group_name(self) or "all models"

    @property
    def caveats(self) -> tuple[str, ...]:
        """Sources of its numbers that cannot see everything: keys of `sources.CAVEATS`."""
        return tuple(source for source in self.recorded.sources if source in CAVEATS)

    @property
    def qualified(self) -> str:
        """The caveats of its numbers in words, `estimated, +-1.2 points`; empty where there are none."""
        error = self.recorded.estimate_error
        words = (
            CAVEATS[caveat].word + ("" if caveat in HIDING or error is None else f", +-{points(error)}")
            for caveat in self.caveats
        )
        return ", ".join(dict.fromkeys(words))


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
    def error(self) -> float:
        return sum(group.recorded.error for group in self.groups)

    @property
    def total(self) -> float:
        return sum(group.recorded.total for group in self.groups)

    @property
    def sli(self) -> float | None:
        """The share of good events among those of all groups."""
        return 1 - self.error / self.total if self.total else None

    @property
    def qualified(self) -> str:
        """The caveats of its groups in words, without their errors."""
        words = (CAVEATS[source].word for group in self.groups for source in group.caveats)
        return ", ".join(dict.fromkeys(words))

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes about time that was not recorded or did not count."""
        if self.recorded is None:
            return (NOT_RECORDED,)
        return tuple(_notes(self.recorded))


@dataclass(frozen=True, slots=True)
class Incident:
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
class CorrectedObjective:
    """The failed and all events that a correction added to an objective, below 0: took out.

    Reason and author are empty where the audit trail is not known or does not have the correction.
    """

    correction: str
    slo: str
    error: float
    total: float
    reason: str = ""
    author: str = ""


@dataclass(frozen=True, slots=True)
class PeriodReport:
    """The report of a period, made at `at`; `incidents` is None where no bridge was asked.

    `signatures` are the reason and the author of corrections by name, as an audit trail has them.
    """

    reported: ReportedPeriod
    timezone: str
    at: float
    objectives: tuple[ObjectiveOutcome, ...]
    incidents: tuple[Incident, ...] | None = None
    incidents_known_from: float = 0.0
    warnings: tuple[str, ...] = ()
    signatures: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def corrections(self) -> tuple[CorrectedObjective, ...]:
        """Events that corrections changed in this period, by objective; the numbers contain them."""
        return tuple(
            CorrectedObjective(name, outcome.slo, *events, *self.signatures.get(name, ()))
            for outcome in self.objectives
            if outcome.recorded is not None
            for name, events in outcome.recorded.corrections.items()
        )

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


def outcome(recorded: RecordedObjective, *, unknown_is_failed: bool = False) -> ObjectiveOutcome:
    """Judge what was recorded of an objective; `unknown_is_failed`: its unknown time already counts as failed."""
    groups = (_judged(recorded, group, unknown_is_failed) for group in recorded.groups)
    order = sorted(
        groups, key=lambda group: (RESULTS.index(group.result), -(group.budget_spent or 0.0), group.name)
    )
    return ObjectiveOutcome(recorded.slo, recorded.owner, recorded, tuple(order))


def tally(outcomes: Iterable[ObjectiveOutcome]) -> dict[Result, int]:
    """Return how many objectives have each result."""
    results = [judged.result for judged in outcomes]
    return {result: results.count(result) for result in RESULTS}


def _judged(objective: RecordedObjective, group: RecordedGroup, unknown_is_failed: bool) -> JudgedGroup:
    period, pauses = objective.period, objective.pauses
    unknown = 0.0 if unknown_is_failed else group.unknown_seconds
    late, early = _cut(objective)
    missing = unknown + sum(
        pause.end - max(pause.start, group.since if pause.start > period.start else pause.start)
        for pause in pauses
        if pause.end > group.since or pause.start == period.start
    )
    sli = 1 - group.error / group.total if group.total else None
    spent = None
    if sli is not None and group.target is not None:
        spent = (1 - sli) / budget(group.target)

    def judged(result: Result, reason: str = "") -> JudgedGroup:
        return JudgedGroup(objective.slo, group, result, sli, spent, missing, reason)

    if group.restarted:
        return judged("unknown", "its running sum began again, and the events before are not known")
    if group.target is None:
        return judged("unknown", "no target was recorded")
    if sli is None:
        if late or early or missing > STEP_SECONDS:
            return judged("unknown", _why(late, early, missing) + ", and otherwise no event")
        return judged("no events")
    lasted = period.end - group.since
    counted = max(STEP_SECONDS, lasted - missing - sum(objective.excluded.values()))
    lost = group.total / counted * missing
    error = group.estimate_error or 0.0
    allowed = budget(group.target)
    if group.error / (group.total + lost) - error > allowed:
        return judged("missed")
    worst = (group.error + lost) / (group.total + lost) + error
    if worst <= allowed and not (late or early):
        return judged("met")
    if late or early or (lost and worst - error > allowed):
        return judged("unknown", _why(late, early, missing))
    return judged("unknown", f"within the error of the estimate (+-{points(error)})")


def _cut(objective: RecordedObjective) -> tuple[float | None, float | None]:
    """Return when records begin after the period does, and when they end before it does; None where they do not."""
    period, first, last = objective.period, objective.recorded_from, objective.recorded_until
    return first if first - period.start > STEP_SECONDS else None, last if last < period.end else None


def _why(late: float | None, early: float | None, missing: float) -> str:
    if late is not None:
        return "recorded only from a time after the period began"
    if early is not None:
        return "recorded only until a time before the period ended"
    return f"nothing is known of {in_words(missing)}"


def _notes(recorded: RecordedObjective) -> Iterable[str]:
    late, early = _cut(recorded)
    zone = recorded.timezone
    if late is not None:
        yield f"recorded only from {moment_text(late, zone)}"
    if early is not None:
        yield f"recorded only until {moment_text(early, zone)}"
    inside = [pause for pause in recorded.pauses if pause.end != late and pause.start != early]
    if inside:
        longest = max(inside, key=lambda pause: pause.end - pause.start)
        seconds = sum(pause.end - pause.start for pause in inside)
        yield (
            f"not recorded for {in_words(seconds)} in between, the longest from "
            f"{moment_text(longest.start, zone)} for {in_words(longest.end - longest.start)}"
        )
    for reason, seconds in sorted(recorded.excluded.items()):
        yield f"excluded for {in_words(seconds)}: {reason}"


def moment_text(at: float, timezone: str) -> str:
    """Return a time on the clocks of a zone: 2026-10-01 00:00."""
    return f"{datetime.fromtimestamp(at, known(timezone)):%Y-%m-%d %H:%M}"


def restrictions(objective: ObjectiveOutcome, outcome: JudgedGroup) -> Sequence[str]:
    """Return what a reader must know of a group's numbers besides them."""
    recorded, whole = outcome.recorded, objective.recorded
    before, unknown = recorded.target_before, recorded.unknown_seconds
    new = whole is not None and recorded.since > whole.period.start
    words = [
        outcome.reason,
        outcome.qualified,
        f"unknown for {in_words(unknown)}" if unknown and unknown != outcome.missing_seconds else "",
        f"counted from {moment_text(recorded.since, whole.timezone)}" if whole and new else "",
        f"the target was {before:.6g} before" if before is not None else "",
    ]
    return [word for word in words if word]
