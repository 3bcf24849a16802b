"""Incidents that the Slack bridge has recorded: a list over time, and a page for each with its timeline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from triton_alerts.bridge import summaries
from triton_alerts.bridge.deliver.messages import WORD, Style
from triton_alerts.bridge.incidents.history import RecordedIncident
from triton_alerts.bridge.summaries import document
from triton_alerts.bridge.text import safe_url
from triton_exporter.common.duration import parse_seconds
from tritonwatch.bridge_incidents import DATA_OPTION
from tritonwatch.web import urls
from tritonwatch.web.drawing import TimeAxis
from tritonwatch.web.site import Site
from tritonwatch.web.sources import CachedAnswer
from tritonwatch.web.urls import asked_choice, asked_time, refuse_others

MENU = ("Incidents", "/incidents")
LENGTHS = ("1d", "7d", "30d")
"""Lengths of time that the list can show; a bridge keeps ended incidents for 30 days."""
_LENGTH = "7d"
_MAX_LINES = 200
"""Incidents of one list; the newest are there."""
KINDS = ("all", "page", "ticket")
STATES = ("all", "firing", "resolved")


@dataclass(frozen=True, slots=True)
class IncidentLine:
    """One incident of the list: words, and its place in the drawing."""

    name: str
    url: str
    title: str
    kind: str
    since: float
    lasted: str
    acknowledged: str
    models: tuple[str, ...]
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class IncidentChoice:
    """Incidents that the address chooses; all stored ones where `last` is empty."""

    last: str = _LENGTH
    kind: str = "all"
    state: str = "all"
    q: str = ""

    def start(self, now: float) -> float:
        """Return the Unix time before which nothing is listed."""
        return now - parse_seconds(self.last) if self.last else 0.0

    def select(self, records: Iterable[RecordedIncident], now: float) -> list[RecordedIncident]:
        """Return the records that the list shows, in the same order."""
        start = self.start(now)
        return [
            record
            for record in records
            if record.incident.since <= now
            and (record.incident.open or record.incident.ended_at >= start)
            and self.kind in ("all", WORD[record.severity])
            and self.state in ("all", "firing" if record.incident.open else "resolved")
            and (not self.q or self.q.casefold() in _searchable_text(record))
        ]


def routes(site: Site) -> Sequence[Route]:
    """Return the list and one incident, each also as JSON, as `tritonwatch incidents --json` writes it."""
    return [
        Route(MENU[1], partial(_list_page, site)),
        Route("/incident", partial(_incident, site)),
        Route("/api/incidents", partial(_list_json, site)),
    ]


def _list_json(site: Site, request: Request) -> Response:
    refuse_others(request, urls.TIME, urls.LAST, "kind", "state", "q")
    chosen, now = _choice_and_moment(site, request, "")
    answer = site.sources.incidents()
    if answer.problem:
        raise HTTPException(503, answer.problem)
    return JSONResponse([summaries.as_json(record) for record in chosen.select(answer.value, now)])


def _choice_and_moment(site: Site, request: Request, usual_length: str) -> tuple[IncidentChoice, float]:
    """Return what the address chooses, and the moment that it is about."""
    chosen = IncidentChoice(
        asked_choice(request, urls.LAST, LENGTHS, usual_length),
        asked_choice(request, "kind", KINDS, "all"),
        asked_choice(request, "state", STATES, "all"),
        request.query_params.get("q", "").strip()[:200],
    )
    at = asked_time(request)
    return chosen, site.sources.reader.now if at is None else at


def _list_page(site: Site, request: Request) -> Response:
    chosen, now = _choice_and_moment(site, request, _LENGTH)
    answer = site.sources.incidents()
    axis = TimeAxis(chosen.start(now), now)
    during = replace(chosen, kind="all", state="all", q="").select(answer.value, now)
    matching = sorted(chosen.select(during, now), key=lambda record: -record.incident.since)
    context = {
        "chosen": chosen,
        "lengths": LENGTHS,
        "kinds": KINDS,
        "states": STATES,
        "axis": axis,
        "lines": [
            _incident_line(record, axis, now, request.query_params.get(urls.TIME, ""))
            for record in matching[:_MAX_LINES]
        ],
        "found": len(matching),
        "more": max(0, len(matching) - _MAX_LINES),
        "during": len(during),
        "firing": sum(record.incident.open for record in during),
        "without_bridge": site.sources.bridge_data is None,
        "option": DATA_OPTION,
        "lane": 14,
    }
    return site.page(request, "incidents.html", context, *_with_problem(answer))


def _with_problem(answer: CachedAnswer[Any]) -> tuple[CachedAnswer[Any], ...]:
    """Return the answer if it has a problem; without a bridge there is neither data nor a problem."""
    return (answer,) if answer.problem else ()


def _incident_line(record: RecordedIncident, axis: TimeAxis, now: float, at: str) -> IncidentLine:
    incident = record.incident
    end = incident.ended_at if incident.is_over else now
    return IncidentLine(
        incident.name,
        urls.address("/incident", {"id": incident.name, urls.TIME: at}),
        summaries.title(record),
        WORD[record.severity],
        incident.since,
        summaries.lasted(record, now),
        summaries.acknowledged(record),
        _models_of(record),
        axis.x(incident.since),
        axis.width(incident.since, end),
    )


def _models_of(record: RecordedIncident) -> tuple[str, ...]:
    models = (member.labels.get("model", "") for member in record.incident.members.values())
    return tuple(dict.fromkeys(model for model in models if model))


def _searchable_text(record: RecordedIncident) -> str:
    alerts = (member.name for member in record.incident.members.values())
    return " ".join((record.incident.name, summaries.title(record), *_models_of(record), *alerts)).casefold()


def _incident(site: Site, request: Request) -> Response:
    wanted = request.query_params.get("id", "")
    answer = site.sources.incidents()
    matching = [record for record in answer.value if wanted and record.incident.name == wanted]
    if not matching:
        if answer.problem:
            raise HTTPException(503, answer.problem)
        raise HTTPException(404, "this incident is not stored; closed ones are kept for 30 days")
    at = asked_time(request)
    record, now = matching[0], site.sources.reader.now if at is None else at
    sent: Mapping[str, Any] = document(record.incident, Style(grafana=site.sources.addresses.grafana))
    context = {
        "title": summaries.title(record),
        "name": record.incident.name,
        "kind": WORD[record.severity],
        "state": summaries.state(record).removeprefix(WORD[record.severity]).lstrip(", "),
        "facts": list(summaries.facts(record, now)),
        "first_step": sent["first_step"],
        "happened": list(summaries.happened(record)),
        "models": _models_of(record),
        "alerts": list(record.incident.members.values()),
        "links": [(label, url) for label, url in sent["links"].items() if safe_url(url)],
    }
    return site.page(request, "incident.html", context, *_with_problem(answer))
