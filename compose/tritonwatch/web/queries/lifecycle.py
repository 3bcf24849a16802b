"""The lifecycle of a model: states, loads and failed loads on each server, read from the exporter's series."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from triton_dashboards.recording import window_seconds
from triton_exporter.catalogue import state, triton
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.prometheus import Prometheus, Series
from triton_slo.promql import Matchers
from tritonwatch.web.drawing import POINTS, gap

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
    end = end // step * step
    start = end - length // step * step
    own = Matchers().equal("model", model)
    states = prometheus.range(f"{state.MODEL_STATE}{own} == 1", start, end, step)
    durations = prometheus.range(_durations(own), start, end, step)
    failures = prometheus.range(
        f"max_over_time({names.FAILED_LOADS}{own}[{round(max(window, step))}s])", start, end, step
    )
    lanes = _lanes(states, step)
    loads = [*_successes(lanes, durations), *_failed_loads(failures, step, window)]
    return Timeline(
        start,
        end,
        step,
        tuple((place, spans) for place, spans in sorted(lanes.items(), key=lambda lane: _order(lane[0]))),
        tuple(sorted(loads, key=lambda load: (-load.at, _order(load.place)))),
    )


def _durations(own: Matchers) -> str:
    """Return PromQL for the duration of the last load: Triton's own where it has one (0 for ensembles)."""
    return f"({triton.MODEL_LOAD_DURATION_SECS}{own} > 0) or {state.MODEL_LOAD_DURATION_ESTIMATED}{own}"


def _place(labels: Mapping[str, str]) -> Place:
    return Place(*(labels.get(label, "") for label in _OF_PLACE))


def _order(place: Place) -> tuple[str, str, tuple[int, str]]:
    version = (int(place.version), "") if place.version.isdecimal() else (0, place.version)
    return place.cluster, place.instance, version


def _lanes(states: Iterable[Series], step: float) -> dict[Place, tuple[StateSpan, ...]]:
    at: dict[Place, dict[float, str]] = defaultdict(dict)
    for series in states:
        for moment in series.times:
            at[_place(series.labels)][moment] = series.labels.get("state", "unknown")
    return {place: tuple(_spans(sorted(states.items()), step)) for place, states in at.items()}


def _spans(points: Sequence[tuple[float, str]], step: float) -> Iterator[StateSpan]:
    """Yield a span for each time without a change of state; times without samples are in no span."""
    start, state_name = points[0]
    last = start
    for moment, next_state in points[1:]:
        if next_state != state_name or gap(last, moment, step):
            yield StateSpan(state_name, start, min(moment, last + step))
            start, state_name = moment, next_state
        last = moment
    yield StateSpan(state_name, start, last + step)


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
        for at in sorted(became | {change for change in changed if not _near(change, became)}):
            # The duration is exported with the state, or at the next scrape.
            later = [seconds for moment, seconds in sorted(own.items()) if moment >= at]
            yield Load(place, at, later[0] if later else None)


def _near(at: float, others: Iterable[float]) -> bool:
    return any(abs(at - other) <= _SAME_LOAD_SECONDS for other in others)


def _failed_loads(failures: Iterable[Series], step: float, window: float) -> Iterator[Load]:
    for series in failures:
        before = float("-inf")
        for at in series.times:
            # One failure is in the recorded series for its whole window, and in each step of it.
            if gap(before, at, max(step, window)):
                yield Load(_place(series.labels), at, failed=series.labels.get("reason", "other"))
            before = at
