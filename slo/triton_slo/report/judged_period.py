"""Judge what was recorded of an objective over a period: records in, an outcome out.

An objective is met where it is met even if every event of the time without trustworthy records had failed, at the
average pace of the recorded time, and even if an estimate is wrong by its stated error. It is missed where it is
missed even if all of those events had been good. Everything between is unknown. Records that begin after the period
does, or end before it, never show that an objective was met.
"""

from __future__ import annotations

from triton_exporter.common.duration import in_words
from triton_slo.fields import error_budget
from triton_slo.group_status import points
from triton_slo.report.counted_events import STEP_SECONDS, RecordedGroup
from triton_slo.report.period_outcome import RESULTS, JudgedGroup, ObjectiveOutcome, Result
from triton_slo.report.recorded_events import RecordedObjective


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
    """Return the result of a group, and why it is unknown where it is."""
    if group.target is None:
        return "unknown", "no target was recorded"
    if not group.total:
        return _result_without_events(objective, missing)
    return _result_of_events(objective, group, missing, error_budget(group.target))


def _result_without_events(objective: RecordedObjective, missing: float) -> tuple[Result, str]:
    if objective.begins_late or objective.ends_early or missing > STEP_SECONDS:
        events = (
            "not enough records to count events yet"
            if objective.counts_nothing_yet
            else "no event was recorded"
        )
        return "unknown", f"{_missing_reason(objective, missing)}; {events}"
    return "no events", ""


def _result_of_events(
    objective: RecordedObjective, group: RecordedGroup, missing: float, allowed: float
) -> tuple[Result, str]:
    """Judge by the most and the fewest failures that the missing time and the error of an estimate allow."""
    lasted = objective.period.end - group.since
    counted = max(STEP_SECONDS, lasted - missing - sum(objective.excluded.values()))
    lost = group.total / counted * missing
    error = group.estimate_error or 0.0
    least, most = group.error / (group.total + lost), (group.error + lost) / (group.total + lost)
    if least - error > allowed:
        return "missed", ""
    incomplete = objective.begins_late or objective.ends_early
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
