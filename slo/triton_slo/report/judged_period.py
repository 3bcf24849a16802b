"""Judge what was recorded of an objective over a period: records in, an outcome out.

An objective is met where it is met even if every event of the time without trustworthy records had failed, at the
average pace of the recorded time, and even if an estimate is wrong by its stated error. It is missed where it is
missed even if all of those events had been good. Everything between is unknown. Records that begin after the period
does, or end before it, never show that an objective was met.
"""

from __future__ import annotations

from triton_exporter.common.duration import in_words
from triton_slo.fields import error_budget
from triton_slo.report.period_outcome import RESULTS, JudgedGroup, ObjectiveOutcome, Result
from triton_slo.report.recorded_events import RecordedObjective
from triton_slo.report.summed_events import STEP_SECONDS, RecordedGroup
from triton_slo.verdict.group_status import points


def outcome(recorded: RecordedObjective, *, unknown_is_failed: bool = False) -> ObjectiveOutcome:
    """Judge what was recorded of an objective; `unknown_is_failed`: its unknown time already counts as failed."""
    groups = (_judge_group(recorded, group, unknown_is_failed) for group in recorded.groups)
    order = sorted(
        groups, key=lambda group: (RESULTS.index(group.result), -(group.budget_spent or 0.0), group.name)
    )
    return ObjectiveOutcome(recorded.slo, recorded.owner, recorded, tuple(order))


def _judge_group(objective: RecordedObjective, group: RecordedGroup, unknown_is_failed: bool) -> JudgedGroup:
    period, pauses = objective.period, objective.pauses
    unknown = 0.0 if unknown_is_failed else group.unknown_seconds
    late, early = objective.begins_late, objective.ends_early
    missing = unknown + sum(
        pause.end - max(pause.start, group.since if pause.start > period.start else pause.start)
        for pause in pauses
        if pause.end > group.since or pause.start == period.start
    )
    sli = 1 - group.error / group.total if group.total else None
    spent = None
    if sli is not None and group.target is not None:
        spent = (1 - sli) / error_budget(group.target)

    def judged(result: Result, reason: str = "") -> JudgedGroup:
        return JudgedGroup(objective.slo, group, result, sli, spent, missing, reason)

    if group.restarted:
        return judged("unknown", "its running sum began again, and the events before are not known")
    if group.target is None:
        return judged("unknown", "no target was recorded")
    if sli is None:
        if late or early or missing > STEP_SECONDS:
            return judged("unknown", _missing_reason(late, early, missing) + ", and otherwise no event")
        return judged("no events")
    lasted = period.end - group.since
    counted = max(STEP_SECONDS, lasted - missing - sum(objective.excluded.values()))
    lost = group.total / counted * missing
    error = group.estimate_error or 0.0
    allowed = error_budget(group.target)
    if group.error / (group.total + lost) - error > allowed:
        return judged("missed")
    worst = (group.error + lost) / (group.total + lost) + error
    if worst <= allowed and not (late or early):
        return judged("met")
    if late or early or (lost and worst - error > allowed):
        return judged("unknown", _missing_reason(late, early, missing))
    return judged("unknown", f"within the error of the estimate (+-{points(error)})")


def _missing_reason(late: float | None, early: float | None, missing: float) -> str:
    if late is not None:
        return "recorded only from a time after the period began"
    if early is not None:
        return "recorded only until a time before the period ended"
    return f"nothing is known of {in_words(missing)}"
