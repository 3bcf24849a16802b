"""A report as headings, sentences and tables (which the web page writes down), as Markdown and as JSON.

In JSON, times are Unix seconds, shares 0 to 1, and null is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from triton_exporter.common.duration import in_words
from triton_exporter.common.moments import local_text
from triton_exporter.common.printable import printable
from triton_slo.amounts import ratio
from triton_slo.problem_words import count
from triton_slo.prometheus import WARNS
from triton_slo.report.outcome import JudgedGroup, ObjectiveOutcome, PeriodReport, Result, restrictions, tally
from triton_slo.sources import CAVEATS

NO_OWNER = "no owner"
_EVENT_WEIGHTED = (
    "An SLI is the share of good events among all events of the period. An objective is met if every group of it "
    "is: each model version, unless it groups otherwise."
)


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with sentences and a table below it; all of it is plain text."""

    heading: str
    sentences: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    level: int = 2


def title(report: PeriodReport) -> str:
    return f"Objectives of {report.reported.name}" + (" so far" if report.in_progress else "")


def sections(report: PeriodReport) -> tuple[Section, ...]:
    """Return the parts of the report, a summary first; no text of others in it steers a terminal or a browser."""
    return tuple(
        replace(
            section,
            heading=printable(section.heading),
            sentences=tuple(map(printable, section.sentences)),
            rows=tuple(tuple(map(printable, row)) for row in section.rows),
        )
        for section in _sections(report)
    )


def _sections(report: PeriodReport) -> Iterator[Section]:
    yield _summary_section(report)
    for owner, members in report.owners.items():
        yield Section(
            f"Objectives of {owner or NO_OWNER}",
            columns=("Objective", "Result", "SLI", "Events", "Failed", "Groups", "Notes"),
            rows=tuple(_objective_row(report, objective) for objective in members),
        )
        groups = [
            _group_row(report, objective, group)
            for objective in members
            for group in objective.groups
            if group.result in ("missed", "unknown")
        ]
        if groups:
            yield Section(
                "Groups that missed their target, or of which that is not known",
                columns=("Objective", "Group", "Result", "SLI", "Target", "Budget spent", "Notes"),
                rows=tuple(groups),
                level=3,
            )
    yield _incidents(report)


def _summary_section(report: PeriodReport) -> Section:
    zone = report.timezone
    span = report.reported.in_zone(zone)
    span_text = f"From {local_text(span.start, zone)} to {local_text(span.end, zone)}, {zone}"
    own = "an objective with a calendar window: in its own time zone"
    sentences = [f"{span_text} ({own}); made {local_text(report.at, zone)}.", _EVENT_WEIGHTED]
    if report.in_progress:
        sentences.append("The period has not ended: every result may still change.")
    sentences += [f"{WARNS}{warning}" for warning in report.warnings]
    names: tuple[Result, ...] = ("met", "missed", "unknown", "no events")
    rows = []
    for owner, members in report.owners.items():
        numbers = tally(members)
        rows.append((owner or NO_OWNER, str(len(members)), *(str(numbers[name]) for name in names)))
    return Section(
        "Summary",
        tuple(sentences),
        ("Owner", "Objectives", "Met", "Missed", "Unknown", "No events"),
        tuple(rows),
    )


def _objective_row(report: PeriodReport, objective: ObjectiveOutcome) -> tuple[str, ...]:
    met = sum(group.result == "met" for group in objective.groups)
    return (
        objective.slo,
        report.worded(objective),
        _share_text(objective.sli),
        _count_text(objective.total),
        _count_text(objective.error),
        f"{met} of {len(objective.groups)} met",
        "; ".join(objective.notes),
    )


def _group_row(report: PeriodReport, objective: ObjectiveOutcome, group: JudgedGroup) -> tuple[str, ...]:
    return (
        group.slo,
        group.name,
        report.worded(group),
        _share_text(group.sli),
        _share_text(group.recorded.target),
        "-"
        if group.budget_spent is None
        else report.budget_not_known_yet(objective, group) or f"{group.budget_spent:.0%}",
        "; ".join(restrictions(objective, group)),
    )


def _incidents(report: PeriodReport) -> Section:
    heading = "Incidents"
    if report.incidents is None:
        return Section(heading, ("Unknown: no incidents of a bridge were read (--bridge-data).",))
    sentences = []
    start = report.reported.in_zone(report.timezone).start
    if report.incidents_known_from > start:
        known_from = local_text(report.incidents_known_from, report.timezone)
        sentences.append(f"The bridge no longer has incidents that ended before {known_from}.")
    pages = sum(incident.severity == "critical" for incident in report.incidents)
    sentences.append(f"{count(len(report.incidents), 'incident')}, of which {count(pages, 'page')}.")
    columns = ("Incident", "Began", "Lasted", "Severity", "Acknowledged", "Owner", "What was wrong")
    return Section(
        heading,
        tuple(sentences),
        columns if report.incidents else (),
        tuple(
            (
                incident.name,
                local_text(incident.began_at, report.timezone),
                "still open"
                if incident.ended_at is None
                else in_words(incident.ended_at - incident.began_at),
                incident.severity,
                "yes" if incident.acknowledged else "no",
                ", ".join(incident.owners),
                incident.title,
            )
            for incident in report.incidents
        ),
    )


def _share_text(share: float | None) -> str:
    return "-" if share is None else ratio(share)


def _count_text(events: float | None) -> str:
    """Return a number of events: whole ones with separators, as seconds of readiness are many."""
    return "-" if events is None else f"{events:,.0f}"


def markdown(title: str, sections: Iterable[Section]) -> str:
    """Return a report as Markdown, in which no name becomes markup."""
    lines = [f"# {escape_markdown(title)}"]
    for section in sections:
        lines += ["", f"{'#' * section.level} {escape_markdown(section.heading)}"]
        for sentence in section.sentences:
            lines += ["", escape_markdown(sentence)]
        if section.columns:
            lines += ["", _row(section.columns), _row(["---"] * len(section.columns))]
            lines += [_row(map(escape_markdown, row)) for row in section.rows]
    return "\n".join(lines) + "\n"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def escape_markdown(text: str) -> str:
    """Return text that no Markdown reader takes for markup."""
    return re.sub(r"([\\`*_\[\]<>|~#])", r"\\\1", text)


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
                **{result.replace(" ", "_"): number for result, number in tally(members).items()},
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
            "not_recorded": [{"start": pause.start, "end": pause.end} for pause in recorded.pauses],
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
        "budget_spent": None if report.budget_not_known_yet(objective, group) else group.budget_spent,
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
