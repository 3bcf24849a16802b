"""Model: its versions' states and loads over time, traffic, phases, GPUs, limits and objectives.

First the page, then what it asks: its facts, one query each, and the lifecycle on each server.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from triton_dashboards.query import PHASES
from triton_dashboards.recording import window_seconds
from triton_exporter.catalogue import Metric, gpu, models, state, triton
from triton_exporter.catalogue.external import headroom
from triton_exporter.common.duration import parse_seconds, time_text
from triton_slo import links, names
from triton_slo.amounts import digits
from triton_slo.artifact import Options
from triton_slo.prometheus import Prometheus, Series
from triton_slo.promql import Matchers, quote, regex_of
from tritonwatch.web import urls
from tritonwatch.web.drawing import POINTS, TimeAxis, gap
from tritonwatch.web.site import Site
from tritonwatch.web.sources import CachedAnswer
from tritonwatch.web.urls import asked_choice, asked_time

LENGTHS = ("1h", "6h", "1d", "7d")
"""Lengths of time that a timeline can show."""
_LENGTH = "6h"
MAX_NAME_CHARACTERS = 500

T = TypeVar("T")


def routes(site: Site) -> Sequence[Route]:
    return [Route("/model", partial(_page, site))]


def _page(site: Site, request: Request) -> Response:
    model = request.query_params.get("model", "")
    if not model or len(model) > MAX_NAME_CHARACTERS:
        raise HTTPException(400, "the address names no model: open a model from the overview")
    at, moment = asked_time(request), request.query_params.get(urls.TIME, "")
    last = asked_choice(request, urls.LAST, LENGTHS, _LENGTH)
    length, now = parse_seconds(last), site.sources.reader.now if at is None else at

    def ask(read: Callable[[Prometheus, str, float | None], T], empty: T) -> CachedAnswer[T]:
        key = ("model", read, model, at)
        return site.sources.reader.ask(key, lambda prometheus: read(prometheus, model, at), empty)

    timeline = site.sources.reader.ask(
        ("model", "timeline", model, at, last),
        lambda prometheus: read_timeline(prometheus, model, now, length, site.sources.options),
        Timeline(now - length, now, length / POINTS),
    )
    traffic = ask(read_traffic, TrafficFacts())
    phases: CachedAnswer[tuple[Phase, ...]] = ask(read_phases, ())
    devices: CachedAnswer[tuple[Device, ...]] = ask(read_devices, ())
    limits: CachedAnswer[tuple[ModelLimit, ...]] = ask(read_limits, ())
    rooms: CachedAnswer[Mapping[tuple[str, str], str]] = ask(read_rooms, {})
    status, broken, alerts, met = site.status(at), site.broken(at), site.slo_alerts(at), site.met(at)
    servers = {place.instance for place, _ in timeline.value.lanes}
    rows = [row for row in status.value if row.model == model]
    known = bool(timeline.value.lanes or rows or limits.value) or traffic.value.requests is not None
    # It knows the Triton of now only.
    doctor = None if at is not None or not known else site.sources.doctor
    context = {
        "model": model,
        "has_doctor": site.sources.doctor is not None,
        "doctor": None if doctor is None else doctor.of_model(model),
        "known": known,
        "problems": site.problems(
            [(fault, "") for fault in broken.value.faults(model, servers)],
            rows,
            at,
            moment,
        ),
        "load_errors": site.load_errors(broken.value, at),
        "timeline": timeline.value,
        "axis": TimeAxis(timeline.value.start, timeline.value.end),
        "last": last,
        "lengths": [
            (word, urls.address("/model", {"model": model, urls.LAST: word, urls.TIME: moment}))
            for word in LENGTHS
        ],
        "traffic": traffic.value,
        "traffic_seconds": window_seconds(site.sources.options),
        "phases": phases.value,
        "devices": devices.value,
        "limits": limits.value,
        "rooms": rooms.value,
        "rows": rows,
        "board": urls.grafana_url(site.sources.addresses.grafana, links.MODEL, {"model": model}),
    }
    answers = (timeline, traffic, phases, devices, limits, rooms, status, broken, alerts, met)
    response = site.page(request, "model.html", context, *answers)
    if not known and not any(answer.problem or answer.warnings for answer in answers):
        response.status_code = 404
    return response


_WHAT = "what"
"""Label that keeps the parts of one query apart."""
_OF_GPU: tuple[tuple[str, Metric], ...] = (
    ("utilization", gpu.UTILIZATION),
    ("sm_active", gpu.SM_ACTIVE),
    ("memory_used", gpu.MEMORY_USED),
    ("memory_total", gpu.MEMORY_TOTAL),
    ("power", gpu.POWER),
    ("temperature", gpu.TEMPERATURE),
)
_OF_MODEL_ON_GPU: tuple[tuple[str, Metric], ...] = (
    ("caused", gpu.MODEL_UTILIZATION),
    ("memory", gpu.MODEL_MEMORY),
)
_DEVICE = ("cluster", "instance", "gpu_uuid", "gpu_instance_id")


@dataclass(frozen=True, slots=True)
class TrafficFacts:
    """Traffic of two minutes over all servers and versions; None is not known or, of shares, no traffic."""

    requests: float | None = None
    failures: float | None = None
    pending: float | None = None
    mean_seconds: float | None = None
    queue_share: float | None = None
    batch: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None

    @property
    def failed_share(self) -> float | None:
        return _share_of(self.failures, self.requests)


@dataclass(frozen=True, slots=True)
class Phase:
    """The mean time (seconds) of a request in one phase over ten minutes, and its share of the whole."""

    name: str
    seconds: float
    share: float


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU, or MIG instance, that the model runs on, as the exporter knows it; None was not exported."""

    instance: str
    uuid: str
    mig: str
    known_by: str
    confidence: str
    values: Mapping[str, float]

    def __getitem__(self, name: str) -> float | None:
        return self.values.get(name)


@dataclass(frozen=True, slots=True)
class ModelLimit:
    """A limit of the model's configuration in words, and the versions that have it."""

    name: str
    words: str
    versions: tuple[str, ...]


def read_traffic(prometheus: Prometheus, model: str, at: float | None) -> TrafficFacts:
    """Ask what is recorded of the model's traffic, and its quantiles. Raises PrometheusError."""
    own = Matchers().equal("model", model)
    # The recorded names alone: `sum by (__name__)` keeps them, and reads one series a name.
    recorded = regex_of(names.model_traffic(what) for what in names.TRAFFIC)
    every = f"sum by (__name__) ({{__name__=~{quote(recorded)}, {own.parts[0]}}})"
    quantiles = f"max by (quantile) ({state.REQUEST_QUANTILE}{own})"
    figures: dict[str, float] = {}
    for sample in prometheus.instant(f"{every} or {quantiles}", at):
        key = sample.labels.get("__name__") or f"p{100 * float(sample.labels.get('quantile', 'nan')):g}"
        figures[key] = sample.value
    value = {what: figures.get(names.model_traffic(what)) for what in names.TRAFFIC}
    succeeded = None
    if value["requests"] is not None:
        succeeded = value["requests"] - (value["failures"] or 0.0)
    return TrafficFacts(
        requests=value["requests"],
        failures=value["failures"],
        pending=value["pending"],
        mean_seconds=_share_of(value["request_seconds"], succeeded),
        queue_share=_share_of(value["queue_seconds"], value["request_seconds"]),
        batch=_share_of(value["inferences"], value["executions"]),
        p50=figures.get("p50"),
        p95=figures.get("p95"),
        p99=figures.get("p99"),
    )


def read_phases(prometheus: Prometheus, model: str, at: float | None) -> tuple[Phase, ...]:
    """Ask where the time of a request goes; empty without requests. Raises PrometheusError."""
    own = Matchers().equal("model", model)
    parts = [("whole", triton.REQUEST_DURATION_US), ("requests", triton.REQUEST_SUCCESS), *PHASES]
    rates = {what: f"rate({metric}{own}[10m])" for what, metric in parts}
    # An ensemble has no queue: its requests wait in those of its steps.
    rates["queue"] += f" or 1e6 * avg_over_time({names.step_traffic('queue_seconds')}{own}[10m])"
    query = _joined((what, f"sum({expr})") for what, expr in rates.items())
    phases = {
        sample.labels.get(_WHAT, ""): sample.value
        for sample in prometheus.instant(query, at)
        if math.isfinite(sample.value)
    }
    requests, whole = phases.get("requests", 0.0), phases.get("whole", 0.0)
    if requests <= 0 or whole <= 0:
        return ()
    # Microseconds of all requests in a second, over the requests in a second.
    times = {name: phases.get(name, 0.0) for name, _ in PHASES}
    times["other"] = max(0.0, whole - sum(times.values()))
    every = sum(times.values())
    return tuple(Phase(name, micros / requests / 1e6, micros / every) for name, micros in times.items())


def read_devices(prometheus: Prometheus, model: str, at: float | None) -> tuple[Device, ...]:
    """Ask which GPUs the model runs on, and how they are. Raises PrometheusError."""
    own = Matchers().equal("model", model)
    device = ", ".join(_DEVICE)
    runs = f"group by ({device}, source, confidence) ({gpu.MODEL_GPU_INFO}{own})"
    boards = ((what, f"max by ({device}) ({metric})") for what, metric in _OF_GPU)
    on_gpu = f"and on (instance, gpu_uuid) {gpu.MODEL_GPU_INFO}{own}"
    caused = ((what, f"sum by ({device}) ({metric}{own})") for what, metric in _OF_MODEL_ON_GPU)
    parts = [("runs", runs), *((what, f"({expr}) {on_gpu}") for what, expr in boards), *caused]
    about: dict[tuple[str, ...], Mapping[str, str]] = {}
    values: dict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
    for sample in prometheus.instant(_joined(parts), at):
        key = tuple(sample.labels.get(label, "") for label in _DEVICE)
        if sample.labels.get(_WHAT) == "runs":
            about[key] = sample.labels
        elif math.isfinite(sample.value):
            values[key][sample.labels.get(_WHAT, "")] = sample.value
    return tuple(
        Device(
            " ".join(part for part in key[:2] if part),
            key[2],
            key[3],
            labels.get("source", ""),
            labels.get("confidence", ""),
            # What belongs to the board is exported without a MIG instance.
            {**values.get((*key[:3], ""), {}), **values.get(key, {})},
        )
        for key, labels in sorted(about.items())
    )


def read_limits(prometheus: Prometheus, model: str, at: float | None) -> tuple[ModelLimit, ...]:
    """Ask for the limits of the model's configuration, the same on all servers once. Raises PrometheusError."""
    wanted = quote(regex_of(_WORDS))
    samples = prometheus.instant(f"{{__name__=~{wanted}, model={quote(model)}}}", at)
    order = {name: index for index, name in enumerate(_WORDS)}
    versions: dict[tuple[int, str, str], set[str]] = defaultdict(set)
    for sample in samples:
        metric = sample.labels.get("__name__", "")
        if metric in order:
            name, words = _WORDS[metric](sample.labels, sample.value)
            versions[order[metric], name, words].add(sample.labels.get("version", ""))
    return tuple(
        ModelLimit(name, words, tuple(sorted(filter(None, numbers))))
        for (_, name, words), numbers in sorted(versions.items())
    )


def read_rooms(prometheus: Prometheus, model: str, at: float | None) -> Mapping[tuple[str, str], str]:
    """Ask how much of its present traffic each version and objective bears. Raises PrometheusError."""
    own = Matchers().equal("model", model)
    rooms: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for sample in prometheus.instant(f"max by (version, slo, bound) ({headroom.RATIO}{own})", at):
        labels = sample.labels
        rooms[labels.get("version", ""), labels["slo"]][labels["bound"]] = sample.value
    words = {}
    for key, bounds in rooms.items():
        shown = [f"{digits(bounds['estimate'])}x"] if "estimate" in bounds else []
        least = [f"at least {digits(bounds['least'])}x"] if "least" in bounds else []
        words[key] = ", ".join(shown + least)
    return words


def _priority(labels: Mapping[str, str]) -> str:
    return f" at priority {labels['priority']}" if labels.get("priority") else ""


_WORDS: Mapping[str, Callable[[Mapping[str, str], float], tuple[str, str]]] = {
    models.INFO.name: lambda labels, value: (
        "backend",
        " ".join(part for part in (labels.get("backend", ""), labels.get("platform", "")) if part),
    ),
    models.INSTANCES.name: lambda labels, value: (
        "instances",
        f"{value:g} of {labels.get('kind', '')}" + (f" on GPU {labels['gpu']}" if labels.get("gpu") else ""),
    ),
    models.MAX_BATCH_SIZE.name: lambda labels, value: (
        "largest batch",
        f"{value:g}" if value else "does not batch",
    ),
    models.MAX_QUEUE_DELAY.name: lambda labels, value: ("longest wait for a batch", time_text(value)),
    models.QUEUE_SIZE_LIMIT.name: lambda labels, value: (
        "queue holds",
        f"{value:g} requests{_priority(labels)}",
    ),
    models.QUEUE_TIMEOUT.name: lambda labels, value: (
        "queue timeout",
        f"{time_text(value)}{_priority(labels)}"
        + (f", then {labels['action']}" if labels.get("action") else ""),
    ),
    models.RESPONSE_CACHE.name: lambda labels, value: ("response cache", "on"),
    models.DECOUPLED.name: lambda labels, value: ("responses", "any number for each request (decoupled)"),
    models.ENSEMBLE_STEP.name: lambda labels, value: (
        "ensemble",
        f"step {labels.get('position', '')}: {labels.get('step_model', '')}",
    ),
}


def _joined(parts: Iterable[tuple[str, str]]) -> str:
    return "\nor\n".join(f'label_replace({expr}, "{_WHAT}", "{what}", "", "")' for what, expr in parts)


def _share_of(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


_SAME_LOAD_SECONDS = 120
"""Largest time between a new duration and a version becoming ready that are of the same load."""
_OF_PLACE = ("cluster", "instance", "version")


@dataclass(frozen=True, slots=True)
class Place:
    """A version of the model on a server; `cluster` is empty where there is one."""

    cluster: str
    instance: str
    version: str

    @property
    def words(self) -> str:
        """Return `version 2 on SERVER`, or only the server."""
        server = " ".join(part for part in (self.cluster, self.instance) if part) or "the server"
        return f"version {self.version} on {server}" if self.version else server


@dataclass(frozen=True, slots=True)
class StateSpan:
    """A state from one Unix time to another."""

    state: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Load:
    """A load that ended at Unix time `at`: `seconds` long (None: not known), or failed for a class of reasons."""

    place: Place
    at: float
    seconds: float | None = None
    failed: str = ""


@dataclass(frozen=True, slots=True)
class Timeline:
    """States by place between two Unix times, and loads, the latest first."""

    start: float
    end: float
    step: float
    lanes: tuple[tuple[Place, tuple[StateSpan, ...]], ...] = ()
    loads: tuple[Load, ...] = ()


def read_timeline(
    prometheus: Prometheus, model: str, end: float, length: float, options: Options
) -> Timeline:
    """Ask for the states and loads of a model over a time. Raises PrometheusError."""
    window = window_seconds(options)
    step = max(15.0, length / POINTS // 15 * 15)
    # Not on whole steps: the last of them may end many minutes ago.
    end = end // 15 * 15
    start = end - length // step * step
    own = Matchers().equal("model", model)
    states = prometheus.range(f"{state.MODEL_STATE}{own} == 1", start, end, step)
    # Triton's own duration of the last load where it has one (0 for ensembles).
    duration = f"({triton.MODEL_LOAD_DURATION_SECS}{own} > 0) or {state.MODEL_LOAD_DURATION_ESTIMATED}{own}"
    durations = prometheus.range(duration, start, end, step)
    failures = prometheus.range(
        f"max_over_time({names.FAILED_LOADS}{own}[{round(max(window, step))}s])", start, end, step
    )
    lanes = _lanes(states, step, end)
    loads = [*_successes(lanes, durations), *_failed_loads(failures, step, window)]
    return Timeline(
        start,
        end,
        step,
        tuple((place, spans) for place, spans in sorted(lanes.items(), key=lambda lane: _order(lane[0]))),
        tuple(sorted(loads, key=lambda load: (-load.at, _order(load.place)))),
    )


def _place(labels: Mapping[str, str]) -> Place:
    return Place(*(labels.get(label, "") for label in _OF_PLACE))


def _order(place: Place) -> tuple[str, str, tuple[int, str]]:
    version = (int(place.version), "") if place.version.isdecimal() else (0, place.version)
    return place.cluster, place.instance, version


def _lanes(states: Iterable[Series], step: float, end: float) -> dict[Place, tuple[StateSpan, ...]]:
    at: dict[Place, dict[float, str]] = defaultdict(dict)
    for series in states:
        for moment in series.times:
            at[_place(series.labels)][moment] = series.labels.get("state", "unknown")
    return {place: tuple(_spans(sorted(states.items()), step, end)) for place, states in at.items()}


def _spans(points: Sequence[tuple[float, str]], step: float, end: float) -> Iterator[StateSpan]:
    """Yield a span for each time without a change of state; times without samples are in no span."""
    start, state_name = points[0]
    last = start
    for moment, next_state in points[1:]:
        if next_state != state_name or gap(last, moment, step):
            yield StateSpan(state_name, start, min(moment, last + step))
            start, state_name = moment, next_state
        last = moment
    yield StateSpan(state_name, start, min(last + step, end))


def _successes(lanes: Mapping[Place, Sequence[StateSpan]], durations: Iterable[Series]) -> Iterator[Load]:
    """Yield when a version became ready, and when the duration of its last load changed: a reload.

    The first samples of a server, and those after a gap, show no event: it may have been ready for long.
    """
    seen: dict[tuple[str, str], float] = {}
    for place, spans in lanes.items():
        server = place.cluster, place.instance
        seen[server] = min(seen.get(server, spans[0].start), spans[0].start)
    measured = {
        _place(series.labels): dict(zip(series.times, series.values, strict=True)) for series in durations
    }
    for place, spans in lanes.items():
        own = measured.get(place, {})
        became = {
            span.start
            for before, span in pairwise((None, *spans))
            if span is not None
            and span.state == "ready"
            and (before.state != "ready" if before else span.start > seen[place.cluster, place.instance])
        }
        changed = {at for (_, last), (at, seconds) in pairwise(sorted(own.items())) if seconds != last}
        reloads = {at for at in changed if all(abs(at - other) > _SAME_LOAD_SECONDS for other in became)}
        for at in sorted(became | reloads):
            # The duration is exported with the state, or at the next scrape.
            later = [seconds for moment, seconds in sorted(own.items()) if moment >= at]
            yield Load(place, at, later[0] if later else None)


def _failed_loads(failures: Iterable[Series], step: float, window: float) -> Iterator[Load]:
    for series in failures:
        before = float("-inf")
        for at in series.times:
            # One failure is in the recorded series for its whole window, and in each step of it.
            if gap(before, at, max(step, window)):
                yield Load(_place(series.labels), at, failed=series.labels.get("reason", "other"))
            before = at
