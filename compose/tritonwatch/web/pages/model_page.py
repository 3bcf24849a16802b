"""Model: its versions' states and loads over time, traffic, phases, GPUs, limits and objectives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from triton_exporter.common.duration import parse_seconds
from triton_slo import links
from triton_slo.prometheus import Prometheus
from tritonwatch.web import urls
from tritonwatch.web.drawing import POINTS, TimeAxis
from tritonwatch.web.queries import model_facts
from tritonwatch.web.queries.lifecycle import Timeline, read_timeline
from tritonwatch.web.site import Site
from tritonwatch.web.sources import CachedAnswer
from tritonwatch.web.urls import asked_choice, asked_time

MENU = None
LENGTHS = ("1h", "6h", "1d", "7d")
"""Lengths of time that a timeline can show."""
_LENGTH = "6h"
MAX_NAME_CHARACTERS = 500

T = TypeVar("T")


def routes(site: Site) -> Sequence[Route]:
    """Return the page."""
    return [Route("/model", partial(_page, site))]


class _ModelAnswers(NamedTuple):
    """What Prometheus answered about one model."""

    timeline: CachedAnswer[Timeline]
    traffic: CachedAnswer[model_facts.TrafficFacts]
    phases: CachedAnswer[tuple[model_facts.Phase, ...]]
    devices: CachedAnswer[tuple[model_facts.Device, ...]]
    limits: CachedAnswer[tuple[model_facts.ModelLimit, ...]]


def _ask_about_model(site: Site, model: str, at: float | None, last: str) -> _ModelAnswers:
    """Query the state at a moment (None: now), and the timeline of the time `last` before it."""

    def ask(what: str, read: Callable[[Prometheus], T], empty: T) -> CachedAnswer[T]:
        return site.sources.reader.ask(("model", what, model, at), read, empty)

    length = parse_seconds(last)
    now = site.sources.reader.now if at is None else at
    return _ModelAnswers(
        ask(
            f"timeline {last}",
            lambda prometheus: read_timeline(prometheus, model, now, length, site.sources.options),
            Timeline(now - length, now, length / POINTS),
        ),
        ask(
            "traffic",
            lambda prometheus: model_facts.read_traffic(prometheus, model, at),
            model_facts.TrafficFacts(),
        ),
        ask("phases", lambda prometheus: model_facts.read_phases(prometheus, model, at), ()),
        ask("devices", lambda prometheus: model_facts.read_devices(prometheus, model, at), ()),
        ask("limits", lambda prometheus: model_facts.read_limits(prometheus, model, at), ()),
    )


def _page(site: Site, request: Request) -> Response:
    model = request.query_params.get("model", "")
    if not model or len(model) > MAX_NAME_CHARACTERS:
        raise HTTPException(400, "the address names no model: open a model from the overview")
    at = asked_time(request)
    last = asked_choice(request, urls.LAST, LENGTHS, _LENGTH)
    answers = _ask_about_model(site, model, at, last)
    status = site.status(at)
    rows = [row for row in status.value if row.model == model]
    known = (
        bool(answers.timeline.value.lanes or rows or answers.limits.value)
        or answers.traffic.value.requests is not None
    )
    # It knows the Triton of now only.
    doctor = None if at is not None or not known else site.sources.doctor
    context = {
        "model": model,
        "has_doctor": site.sources.doctor is not None,
        "doctor": None if doctor is None else doctor.of_model(model),
        "known": known,
        "timeline": answers.timeline.value,
        "axis": TimeAxis(answers.timeline.value.start, answers.timeline.value.end),
        "last": last,
        "lengths": [(length, _model_url(request, model, length)) for length in LENGTHS],
        "traffic": answers.traffic.value,
        "phases": answers.phases.value,
        "devices": answers.devices.value,
        "limits": answers.limits.value,
        "rows": rows,
        "board": urls.grafana_url(site.sources.addresses.grafana, links.MODEL, {"model": model}),
    }
    all_answers = (*answers, status)
    response = site.page(request, "model.html", context, *all_answers)
    if not known and not any(answer.problem or answer.warnings for answer in all_answers):
        response.status_code = 404
    return response


def _model_url(request: Request, model: str, last: str) -> str:
    return urls.address(
        "/model", {"model": model, urls.LAST: last, urls.TIME: request.query_params.get(urls.TIME, "")}
    )
