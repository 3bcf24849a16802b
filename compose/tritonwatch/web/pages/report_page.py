"""Report: which objectives were met in a month or quarter, on a page that prints well, as Markdown and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from triton_alerts.bridge.incidents.history import RecordedIncident
from triton_exporter.common.moments import time_zone
from triton_exporter.common.problem import ProblemsError
from triton_slo.prometheus import Prometheus
from triton_slo.report import documents
from triton_slo.report.events import ReportedPeriod, parse_period
from triton_slo.report.outcome import RESULTS, PeriodReport, recorded_report, tally
from tritonwatch.period_reports import (
    begun_period,
    formatted_report,
    of_owners,
    period_instead,
    why_empty,
    with_incidents,
)
from tritonwatch.web import urls
from tritonwatch.web.site import Site, banner_text
from tritonwatch.web.sources import CachedAnswer, PrometheusReader
from tritonwatch.web.urls import ParameterError, asked_time, refuse_others

MENU = ("Report", "/report")
CACHE_SECONDS = 600.0
"""Time for which a period is cached for all viewers and owners: it takes more queries than other pages."""
_CACHED_REPORTS = 16
_PERIOD, _ZONE = "last-month", "UTC"
_CHOSEN = ("period", "owner", "timezone")
_MONTHS, _QUARTERS = 13, 5
COLOURS: Mapping[str, str] = {"met": "ok", "missed": "exhausted", "unknown": "unknown", "no events": "idle"}
"""Result -> the state that has its colour and its symbol."""
_NUMBERS = frozenset({"SLI", "Events", "Failed", "Target", "Budget spent", "Objectives", "Met", "Missed"})


@dataclass(frozen=True, slots=True)
class ReportChoice:
    """Report that the address chooses; `at` as it is written there."""

    reported: ReportedPeriod
    owner: str
    timezone: str
    at: str

    def address(self, path: str) -> str:
        """Return the address of the same report in another form."""
        zone = "" if self.timezone == _ZONE else self.timezone
        chosen = {"period": self.reported.name, "owner": self.owner, "timezone": zone, urls.TIME: self.at}
        return urls.address(path, chosen)


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table: its text, and how the page shows it."""

    heading: str
    text: str
    state: str = ""
    url: str = ""

    @property
    def number(self) -> bool:
        return self.heading in _NUMBERS


def routes(site: Site) -> Sequence[Route]:
    """Return the page, and the report as `tritonwatch report` writes it."""
    reader = site.sources.reader.sibling(CACHE_SECONDS, _CACHED_REPORTS)
    return [
        Route(MENU[1], partial(_page, site, reader)),
        Route("/report.md", partial(_file, site, reader, form="markdown")),
        Route("/api/report", partial(_file, site, reader, form="json")),
    ]


def _page(site: Site, reader: PrometheusReader, request: Request) -> Response:
    chosen, now, answer, incidents = _asked_report(site, reader, request)
    context: dict[str, object] = {
        "chosen": chosen,
        "months": tuple(_periods(now, chosen.timezone, "month")),
        "quarters": tuple(_periods(now, chosen.timezone, "quarter")),
        "owners": [owner for owner in answer.value.owners if owner],
        "title": documents.title(answer.value),
        "missing": "",
        "current": replace(chosen, reported=parse_period("this-month", now, chosen.timezone), owner=""),
        "tally": (),
        "sections": (),
        "colours": COLOURS,
    }
    code = 200
    if answer.read_at is not None:
        try:
            report = _chosen_report(answer.value, incidents, chosen)
        except ProblemsError as error:
            context["missing"] = str(error)
            # The menu leads here, also where nothing is recorded yet.
            code = 200 if why_empty(answer.value) else 404
        else:
            context["tally"] = tuple(tally(report.objectives).items())
            context["sections"] = [
                (
                    section,
                    [list(map(partial(_cell, chosen.at), section.columns, row)) for row in section.rows],
                )
                for section in documents.sections(report)
            ]
    response = site.page(request, "report.html", context, answer, *([incidents] if incidents.problem else []))
    response.status_code = code
    return response


def _file(site: Site, reader: PrometheusReader, request: Request, form: str) -> Response:
    chosen, _, answer, incidents = _asked_report(site, reader, request)
    if answer.read_at is None:
        raise HTTPException(503, answer.problem)
    try:
        report = _chosen_report(answer.value, incidents, chosen)
    except ProblemsError as error:
        raise HTTPException(404, str(error)) from error
    problems = filter(None, (banner_text([answer], site.sources.reader.now), incidents.problem))
    text = formatted_report(replace(report, warnings=(*report.warnings, *problems)), form)
    if form == "json":
        return Response(text, media_type="application/json")
    headers = {"Content-Disposition": f'attachment; filename="report-{chosen.reported.name}.md"'}
    return Response(text, media_type="text/markdown", headers=headers)


def _choice_and_moment(site: Site, request: Request) -> tuple[ReportChoice, float]:
    """Return what the address chooses, and the time of the report."""
    asked = asked_time(request)
    now = site.sources.reader.now if asked is None else asked
    if urls.is_api(request.url.path):
        refuse_others(request, urls.TIME, *_CHOSEN)
    given = {name: request.query_params.get(name, "").strip() for name in _CHOSEN}
    zone = given["timezone"] or _ZONE
    try:
        time_zone(zone)
    except ValueError as error:
        raise ParameterError("timezone", error) from error
    try:
        reported = begun_period(given["period"] or _PERIOD, now, zone)
    except ValueError as error:
        raise ParameterError("period", error) from error
    return ReportChoice(reported, given["owner"], zone, request.query_params.get(urls.TIME, "")), now


def _asked_report(
    site: Site, reader: PrometheusReader, request: Request
) -> tuple[ReportChoice, float, CachedAnswer[PeriodReport], CachedAnswer[list[RecordedIncident]]]:
    """Return the choice, the time and the answers; this month where none is chosen and last month is empty."""
    chosen, now = _choice_and_moment(site, request)
    answer, incidents = _report_answers(site, reader, chosen, now)
    asked = request.query_params.get("period", "").strip()
    if answer.read_at is not None and (instead := period_instead(answer.value, asked, now, chosen.timezone)):
        chosen = replace(chosen, reported=instead)
        answer, incidents = _report_answers(site, reader, chosen, now)
    return chosen, now, answer, incidents


def _report_answers(
    site: Site, reader: PrometheusReader, chosen: ReportChoice, now: float
) -> tuple[CachedAnswer[PeriodReport], CachedAnswer[list[RecordedIncident]]]:
    """Return the report of the period as recorded, and the incidents that are added to it."""

    def read(prometheus: Prometheus) -> PeriodReport:
        return recorded_report(prometheus, chosen.reported, now, chosen.timezone, site.sources.objectives)

    empty = PeriodReport(chosen.reported, chosen.timezone, now, ())
    recorded = reader.ask(("report", chosen.reported, chosen.timezone, chosen.at), read, empty)
    return site.checked(recorded), site.sources.incidents()


def _chosen_report(
    report: PeriodReport,
    incidents: CachedAnswer[list[RecordedIncident]],
    chosen: ReportChoice,
) -> PeriodReport:
    """Return the part of a report that the address chooses. Raises ProblemsError if it is empty."""
    owners = (chosen.owner,) if chosen.owner else ()
    report = of_owners(report, owners)
    return report if incidents.read_at is None else with_incidents(report, incidents.value, owners)


def _periods(now: float, timezone: str, kind: str) -> Iterator[str]:
    """Yield the names of the last months or quarters, the newest first."""
    newest = parse_period(f"this-{kind}", now, timezone)
    months, length = (_MONTHS, 12) if kind == "month" else (_QUARTERS, 4)
    for back in range(months):
        number = newest.year * length + newest.number - 1 - back
        yield ReportedPeriod(newest.kind, number // length, number % length + 1).name


def _cell(at: str, column: str, text: str) -> Cell:
    if column == "Result":
        return Cell(column, text, COLOURS[next(result for result in RESULTS if text.startswith(result))])
    if column == "Objective":
        return Cell(column, text, url=urls.address("/", {"slo": text, urls.TIME: at}))
    if column == "Incident":
        return Cell(column, text, url=urls.address("/incident", {"id": text, urls.TIME: at}))
    return Cell(column, text)
