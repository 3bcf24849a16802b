"""A report as a JSON document; times are Unix seconds, shares 0 to 1, null is unknown."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from triton_slo.indicators.common.sources import CAVEATS
from triton_slo.objective.periods import Period
from triton_slo.report.period_outcome import JudgedGroup, ObjectiveOutcome, PeriodReport, restrictions, tally


def document(report: PeriodReport) -> dict[str, Any]:
    """Return the report as values that `json` writes.

    `result` carries `so far` before the period has ended and the caveats of the numbers, `met (estimated)`, so that
    no program takes it for `met`.
    """
    return {
        "at": report.at,
        "period": {
            "name": report.reported.name,
            "kind": report.reported.kind,
            "timezone": report.timezone,
            "in_progress": report.in_progress,
        },
        "owners": [
            {
                "owner": owner,
                **_counts(members),
                "objectives": [_objective_fields(report, member) for member in members],
            }
            for owner, members in report.owners.items()
        ],
        "incidents": None
        if report.incidents is None
        else [incident.document for incident in report.incidents],
        "incidents_known_from": None if report.incidents is None else report.incidents_known_from,
        "warnings": list(report.warnings),
    }


def _counts(members: tuple[ObjectiveOutcome, ...]) -> dict[str, int]:
    return {result.replace(" ", "_"): number for result, number in tally(members).items()}


def _objective_fields(report: PeriodReport, objective: ObjectiveOutcome) -> dict[str, Any]:
    recorded = objective.recorded
    fields: dict[str, Any] = {
        "slo": objective.slo,
        "result": report.worded(objective),
        "sli": objective.sli,
        "events": objective.total,
        "failed_events": objective.error,
        "notes": list(objective.notes),
    }
    if recorded is not None:
        fields |= {
            "indicator": recorded.indicator,
            "description": recorded.description,
            "window": recorded.window,
            "timezone": recorded.timezone,
            "start": recorded.period.start,
            "end": recorded.period.end,
            "recorded_from": recorded.recorded_from,
            "recorded_until": recorded.recorded_until,
            "not_recorded": [_span(pause) for pause in recorded.pauses],
            "excluded_seconds": dict(recorded.excluded),
        }
    return fields | {"groups": [_group_fields(report, objective, group) for group in objective.groups]}


def _group_fields(report: PeriodReport, objective: ObjectiveOutcome, group: JudgedGroup) -> dict[str, Any]:
    recorded = group.recorded
    return {
        "group": dict(group.group),
        "result": report.worded(group),
        "reason": group.reason,
        "target": recorded.target,
        "target_before": recorded.target_before,
        "sli": group.sli,
        "budget_spent": group.budget_spent,
        "events": None if objective.counts_nothing_yet else recorded.total,
        "failed_events": None if objective.counts_nothing_yet else recorded.error,
        "since": recorded.since,
        "unknown_seconds": recorded.unknown_seconds,
        "missing_seconds": group.missing_seconds,
        "estimate_error": recorded.estimate_error,
        "sources": list(recorded.sources),
        "caveats": {source: asdict(CAVEATS[source]) for source in group.caveats},
        "restrictions": list(restrictions(objective, group)),
    }


def _span(pause: Period) -> dict[str, float]:
    return {"start": pause.start, "end": pause.end}
