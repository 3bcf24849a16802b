"""Model: its versions' states and loads over time, traffic, phases, GPUs, limits and objectives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from triton_dashboards import shared
from triton_exporter.duration import parse_seconds
from triton_slo.prometheus import Prometheus
from tritonwatch.web import urls
from tritonwatch.web.detail import model_facts
from tritonwatch.web.detail.charts import POINTS
from tritonwatch.web.detail.drawing import TimeAxis
from tritonwatch.web.detail.lifecycle import Timeline, read_timeline
from tritonwatch.web.parameters import asked_choice, asked_time
from tritonwatch.web.reading import Answer
from tritonwatch.web.site import Site

MENU = None
LENGTHS = ("1h", "6h", "1d", "7d")
"""Lengths of time that a timeline can show."""
_LENGTH = "6h"
LONGEST_NAME = 500

T = TypeVar("T")


def routes(site: Site) -> Sequence[Route]:
    """Return the page."""

    def page(request: Request) -> Response:
        return _page(site, request)

    return [Route("/model", page)]


def _page(site: Site, request: Request) -> Response:
    model = request.query_params.get("model", "")
    if not model or len(model) > LONGEST_NAME:
        raise HTTPException(400, "the address names no model: open a model from the overview")
    at = asked_time(request)
    last = asked_choice(request, urls.LAST, LENGTHS, _LENGTH)
    length = parse_seconds(last)

    def ask(what: str, read: Callable[[Prometheus], T], empty: T) -> Answer[T]:
        return site.sources.reader.ask(("model", what, model, at), read, empty)

    now = site.sources.reader.now if at is None else at
    timeline = ask(
        f"timeline {last}",
        lambda prometheus: read_timeline(prometheus, model, now, length, site.sources.options),
        Timeline(now - length, now, length / POINTS),
    )
    traffic = ask(
        "traffic",
        lambda prometheus: model_facts.read_traffic(prometheus, model, at),
        model_facts.TrafficFacts(),
    )
    no_phases: tuple[model_facts.Phase, ...] = ()
    no_devices: tuple[model_facts.Device, ...] = ()
    no_limits: tuple[model_facts.ModelLimit, ...] = ()
    phases = ask("phases", lambda prometheus: model_facts.read_phases(prometheus, model, at), no_phases)
    devices = ask("devices", lambda prometheus: model_facts.read_devices(prometheus, model, at), no_devices)
    limits = ask("limits", lambda prometheus: model_facts.read_limits(prometheus, model, at), no_limits)
    status = site.status(at)
    rows = [row for row in status.value if row.model == model]
    known = bool(timeline.value.lanes or rows or limits.value) or traffic.value.requests is not None
    # It knows the Triton of now only.
    doctor = None if at is not None or not known else site.sources.doctor
    context = {
        "model": model,
        "has_doctor": site.sources.doctor is not None,
        "doctor": None if doctor is None else doctor.of_model(model),
        "known": known,
        "timeline": timeline.value,
        "axis": TimeAxis(timeline.value.start, timeline.value.end),
        "last": last,
        "lengths": [(length, _address(request, model, length)) for length in LENGTHS],
        "traffic": traffic.value,
        "phases": phases.value,
        "devices": devices.value,
        "limits": limits.value,
        "rows": rows,
        "board": urls.grafana_url(site.sources.addresses.grafana, shared.MODEL, {"model": model}),
    }
    answers = (timeline, traffic, phases, devices, limits, status)
    response = site.page(request, "model.html", context, *answers)
    if not known and not any(answer.problem or answer.warnings for answer in answers):
        response.status_code = 404
    return response


def _address(request: Request, model: str, last: str) -> str:
    return urls.address(
        "/model", {"model": model, urls.LAST: last, urls.TIME: request.query_params.get(urls.TIME, "")}
    )
