"""Incidents: what the Slack bridge has recorded, as a list over time, and one with everything that happened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from triton_alerts.bridge.deliver.incident_json import document
from triton_alerts.bridge.deliver.message import WORD, Style
from triton_alerts.bridge.incidents.history import RecordedIncident
from triton_alerts.bridge.review import listing
from triton_alerts.bridge.text import duration, safe_url
from triton_exporter.duration import parse_seconds
from tritonwatch.web import urls
from tritonwatch.web.detail.drawing import TimeAxis
from tritonwatch.web.reading import Answer
from tritonwatch.web.site import Site, asked_choice, asked_time
from tritonwatch.web.sources import BRIDGE_OPTION

MENU = ("Incidents", "/incidents")
LENGTHS = ("1d", "7d", "30d")
"""Lengths of time that the list can show; a bridge keeps ended incidents for 30 days."""
_LENGTH = "7d"
_MOST = 200
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
    firing: bool
    since: float
    lasted: str
    acknowledged: str
    models: tuple[str, ...]
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class IncidentChoice:
    """What the address chooses."""

    last: str = _LENGTH
    kind: str = "all"
    state: str = "all"
    q: str = ""

    def includes(self, one: RecordedIncident) -> bool:
        """Return whether the list has it."""
        kind = self.kind in ("all", WORD[one.severity])
        state = self.state in ("all", "firing" if one.incident.open else "resolved")
        words = self.q.casefold()
        return kind and state and (not words or words in _searched(one))


def routes(site: Site) -> Sequence[Route]:
    """Return the list and one incident, each also as JSON, as `tritonwatch incidents --json` writes it."""

    def page(request: Request) -> Response:
        return _list(site, request)

    def one(request: Request) -> Response:
        return _one(site, request)

    def as_json(request: Request) -> Response:
        found = site.sources.incidents()
        if found.problem:
            return JSONResponse({"error": found.problem}, 503)
        return JSONResponse([listing.as_json(one) for one in found.value])

    return [Route(MENU[1], page), Route("/incident", one), Route("/api/incidents", as_json)]


def _list(site: Site, request: Request) -> Response:
    chosen = IncidentChoice(
        asked_choice(request, urls.LAST, LENGTHS, _LENGTH),
        asked_choice(request, "kind", KINDS, "all"),
        asked_choice(request, "state", STATES, "all"),
        request.query_params.get("q", "").strip()[:200],
    )
    answer = site.sources.incidents()
    at = asked_time(request)
    now = site.sources.reader.now if at is None else at
    start = now - parse_seconds(chosen.last)
    axis = TimeAxis(start, now)
    during = [
        one
        for one in answer.value
        if one.incident.since <= now and (one.incident.open or one.incident.ended_at >= start)
    ]
    found = sorted((one for one in during if chosen.includes(one)), key=lambda one: -one.incident.since)
    context = {
        "chosen": chosen,
        "lengths": LENGTHS,
        "kinds": KINDS,
        "states": STATES,
        "axis": axis,
        "lines": [_line(one, axis, now, request.query_params.get(urls.TIME, "")) for one in found[:_MOST]],
        "found": len(found),
        "more": max(0, len(found) - _MOST),
        "during": len(during),
        "firing": sum(one.incident.open for one in during),
        "without_bridge": site.sources.bridge_data is None,
        "option": BRIDGE_OPTION,
        "lane": 14,
    }
    return site.page(request, "incidents.html", context, *_shown(answer))


def _shown(answer: Answer[Any]) -> tuple[Answer[Any], ...]:
    """Return the answer where it has something to say: without a bridge nothing was read."""
    return (answer,) if answer.problem else ()


def _line(one: RecordedIncident, axis: TimeAxis, now: float, at: str) -> IncidentLine:
    incident = one.incident
    end = now if incident.open else incident.ended_at
    return IncidentLine(
        incident.name,
        urls.address("/incident", {"id": incident.name, urls.TIME: at}),
        listing.title(one),
        WORD[one.severity],
        incident.open,
        incident.since,
        duration(end - incident.since),
        listing.acknowledged(one),
        _models(one),
        axis.x(incident.since),
        axis.width(incident.since, end),
    )


def _models(one: RecordedIncident) -> tuple[str, ...]:
    found = (member.labels.get("model", "") for member in one.incident.members.values())
    return tuple(dict.fromkeys(model for model in found if model))


def _searched(one: RecordedIncident) -> str:
    alerts = (member.name for member in one.incident.members.values())
    return " ".join((one.incident.name, listing.title(one), *_models(one), *alerts)).casefold()


def _one(site: Site, request: Request) -> Response:
    wanted = request.query_params.get("id", "")
    answer = site.sources.incidents()
    found = [one for one in answer.value if wanted and one.incident.name == wanted]
    if not found:
        if answer.problem:
            raise HTTPException(503, answer.problem)
        raise HTTPException(404, "this incident is not stored; closed ones are kept for 30 days")
    at = asked_time(request)
    one, now = found[0], site.sources.reader.now if at is None else at
    sent: Mapping[str, Any] = document(one.incident, Style(grafana=site.sources.addresses.grafana))
    happened = list(listing.happened(one))
    context = {
        "title": listing.title(one),
        "name": one.incident.name,
        "kind": WORD[one.severity],
        "firing": one.incident.open,
        "facts": list(listing.facts(one, now)),
        "first_step": sent["first_step"],
        "happened": happened,
        "models": _models(one),
        "alerts": list(one.incident.members.values()),
        "links": [(label, url) for label, url in sent["links"].items() if safe_url(url)],
    }
    return site.page(request, "incident.html", context, *_shown(answer))
