"""The report of a month or quarter as a Slack message, with the incidents of that time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from triton_alerts.bridge.deliver.messages.blocks import Message
from triton_alerts.bridge.incidents.history import RecordedIncident
from triton_alerts.bridge.summaries import listing
from triton_alerts.bridge.summaries.scheduled import Occasion
from triton_alerts.bridge.summaries.summary import Part, Summary, cut
from triton_alerts.hours import Hours
from triton_exporter.common.moments import local_text
from triton_slo import names
from triton_slo.burn.amounts import ratio
from triton_slo.problem_words import count
from triton_slo.report import report_text
from triton_slo.report.period_outcome import ObjectiveOutcome, PeriodReport, ReportedIncident, tally
from triton_slo.report.report_text import NO_OWNER
from triton_slo.report.reported_period import PeriodKind, ReportedPeriod, parse_period


def periodic(
    kind: PeriodKind, hours: Hours, report: Callable[[ReportedPeriod, str], PeriodReport]
) -> Occasion:
    """Return the report of each month or quarter, due on the first working day after it.

    `report` returns the report of a period in a time zone; it raises PrometheusError.
    """
    zone = hours.place or "UTC"

    def period(at: float) -> ReportedPeriod:
        return parse_period(f"last-{kind}", at, zone)

    def write(at: float) -> Message:
        return summarize_period(report(period(at), zone)).message()

    def command(at: float) -> str:
        clocks = "" if zone == "UTC" else f" --timezone {zone}"
        return f"tritonwatch report --period {period(at).name}{clocks}"

    return Occasion(
        f"{kind}ly report", zone, lambda now: hours.first_start(kind, now).timestamp(), write, command
    )


def summarize_period(report: PeriodReport) -> Summary:
    """Return the summary of a period: its results, and the objectives that were missed or are unknown."""
    if not report.objectives:
        nothing = "Prometheus has no record of any objective in this period."
        return Summary(report_text.title(report), (Part("In short", (nothing,)),))
    numbers = tally(report.objectives)
    in_short = [", ".join(f"{number} {result}" for result, number in numbers.items())]
    if report.incidents is not None:
        pages = sum(incident.severity == "critical" for incident in report.incidents)
        begun = max(report.incidents_known_from, report.reported.in_zone(report.timezone).start)
        since = f"since {local_text(begun, report.timezone)}"
        in_short.append(
            f"{count(len(report.incidents), 'incident')} {since}, of which {count(pages, 'page')}"
        )
    parts = (
        Part("Summary", tuple(in_short)),
        Part("Missed", cut([_outcome_line(outcome) for outcome in _with(report, "missed")])),
        Part("Unknown", cut([_outcome_line(outcome) for outcome in _with(report, "unknown")])),
        Part("By owner", cut([_owner_line(owner, of) for owner, of in report.owners.items()])),
    )
    return Summary(report_text.title(report), tuple(part for part in parts if part.lines))


def period_incidents(
    recorded: Iterable[RecordedIncident], report: PeriodReport, owners: Sequence[str] = ()
) -> Iterator[ReportedIncident]:
    """Yield the incidents that were open at some time of the period, and whose alerts have one of the owners."""
    span = report.reported.in_zone(report.timezone)
    for record in recorded:
        incident = record.incident
        ended = None if incident.open else incident.ended_at
        if incident.since >= span.end or (ended is not None and ended < span.start):
            continue
        affected = {member.labels.get(names.OWNER, "") for member in incident.members.values()} - {""}
        if not owners or affected & set(owners):
            yield ReportedIncident(
                incident.name,
                listing.title(record),
                record.severity,
                incident.since,
                ended,
                record.acknowledged is not None,
                tuple(sorted(affected)),
                listing.as_json(record),
            )


def _with(report: PeriodReport, result: str) -> Iterator[ObjectiveOutcome]:
    return (outcome for outcome in report.objectives if outcome.result == result)


def _outcome_line(outcome: ObjectiveOutcome) -> str:
    share = "" if outcome.sli is None else f"SLI {ratio(outcome.sli)}, "
    met = sum(group.result == "met" for group in outcome.groups)
    notes = "".join(f"; {note}" for note in outcome.notes)
    of = f" ({outcome.owner})" if outcome.owner else ""
    return f"{outcome.slo}{of}: {share}{met} of {count(len(outcome.groups), 'group')} met{notes}"


def _owner_line(owner: str, outcomes: Sequence[ObjectiveOutcome]) -> str:
    numbers = ", ".join(f"{number} {result}" for result, number in tally(outcomes).items() if number)
    return f"{owner or NO_OWNER}: {numbers}"
