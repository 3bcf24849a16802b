"""The report of a month or quarter, from Prometheus, the objectives' files and a bridge's incidents."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

from triton_alerts.bridge import summaries
from triton_alerts.bridge.incidents.history import RecordedIncident
from triton_alerts.bridge.service import KEEP_SECONDS
from triton_exporter.common.problem import Problem, ProblemsError
from triton_slo import names
from triton_slo.prometheus import WARNS
from triton_slo.report import documents
from triton_slo.report.events import ReportedPeriod, parse_period
from triton_slo.report.outcome import PeriodReport, ReportedIncident
from tritonwatch.parser import did_you_mean


def of_owners(report: PeriodReport, owners: Sequence[str]) -> PeriodReport:
    """Return the report with the objectives of these owners, without any: of all.

    Raises ProblemsError where nothing was recorded, and on an owner that no objective has.
    """
    if reason := why_empty(report):
        raise ProblemsError(Problem("", reason))
    for owner in owners:
        if owner not in report.owners:
            reason = f"no objective here has the owner {owner!r}{did_you_mean(owner, report.owners)}"
            raise ProblemsError(Problem("", reason))
    chosen = tuple(judged for judged in report.objectives if not owners or judged.owner in owners)
    return replace(report, objectives=chosen)


def why_empty(report: PeriodReport) -> str:
    """Return why a report has no objective, or an empty text if it has one."""
    if report.objectives:
        return ""
    if report.warnings:
        return f"{WARNS}{report.warnings[0]}; nothing is known of {report.reported.name}"
    return (
        f"Prometheus has no record of any objective in {report.reported.name}: were the rules loaded then for more than "
        "five minutes, and does it keep samples for so long (--storage.tsdb.retention.time)?"
    )


def with_incidents(
    report: PeriodReport, recorded: Iterable[RecordedIncident], owners: Sequence[str] = ()
) -> PeriodReport:
    """Return the report with those of a bridge's incidents that were open at some time of the period.

    With `owners`, only those whose alerts have one of them.
    """
    span = report.reported.in_zone(report.timezone)
    incidents = []
    for record in recorded:
        incident = record.incident
        ended = None if incident.open else incident.ended_at
        if incident.since >= span.end or (ended is not None and ended < span.start):
            continue
        affected = {member.labels.get(names.OWNER, "") for member in incident.members.values()} - {""}
        if not owners or affected & set(owners):
            incidents.append(
                ReportedIncident(
                    incident.name,
                    summaries.title(record),
                    record.severity,
                    incident.since,
                    ended,
                    record.acknowledged is not None,
                    tuple(sorted(affected)),
                    summaries.as_json(record),
                )
            )
    return replace(report, incidents=tuple(incidents), incidents_known_from=report.at - KEEP_SECONDS)


def begun_period(text: str, now: float, timezone: str) -> ReportedPeriod:
    """Return the period with a name. Raises ValueError on any other, and before it begins."""
    try:
        reported = parse_period(text, now, timezone)
        start = reported.in_zone(timezone).start
    except OverflowError as error:
        raise ValueError(str(error)) from error
    if start >= now:
        raise ValueError(f"{text} has not begun; write for example last-month")
    return reported


def period_instead(
    report: PeriodReport, asked: str | None, now: float, timezone: str
) -> ReportedPeriod | None:
    """Return this month where no period is asked for and nothing is recorded of the last one; else None."""
    if asked or report.objectives:
        return None
    try:
        return begun_period("this-month", now, timezone)
    except ValueError:  # at the first moment of a month
        return None


def formatted_report(report: PeriodReport, form: str) -> str:
    if form == "json":
        return json.dumps(documents.document(report), indent=2, ensure_ascii=False) + "\n"
    return documents.markdown(documents.title(report), documents.sections(report))
