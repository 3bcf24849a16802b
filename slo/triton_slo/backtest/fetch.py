"""Read a history and its excluded time from a Prometheus: the growth of counters from step to step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from triton_exporter.common.duration import duration_text
from triton_slo import names
from triton_slo.backtest.history import Column, Grid, History, Matrix
from triton_slo.objective.exclusion import Exclusion, Span, clipped, merged
from triton_slo.objective.model import Objective
from triton_slo.plan import Plan, chosen_matchers
from triton_slo.prometheus import MAX_STEPS, Prometheus, query_ranges

_EXCLUSION_STEP_SECONDS = 60.0
"""Resolution at which exclusions in PromQL are read."""
_STEPS_APART = 60
"""Steps between two moments at which records are searched for."""
_EVENTS: Mapping[str, Column] = {names.ERROR: "bad", names.TOTAL: "total"}


def records_from(
    prometheus: Prometheus, plans: Sequence[Plan], start: float, end: float, step: float
) -> float:
    """Return the Unix time from which to read a history: `start`, or later if nothing was recorded before.

    Records are searched at few moments, so that decades without any cost little; a history that one query can read
    begins at `start`. Raises PrometheusError.
    """
    if end - start <= step * MAX_STEPS:
        return start
    apart = step * _STEPS_APART
    first = end
    for plan in plans:
        for begin, until in query_ranges(start, first, apart):
            if records := prometheus.range(_presence(plan), begin, until, apart):
                first = min(at for series in records for at in series.times)
                break
    # No moment had a record, but there may be some after the last one: read as much as one query can.
    first = first if first < end else end - step * MAX_STEPS
    return max(start, first - apart)


def _presence(plan: Plan) -> str:
    """Return PromQL that has a value while there is anything to read of an objective."""
    return f"count({plan.measure.total})\nor\ncount({_recorded(plan, names.TOTAL)})"


def fetch(
    prometheus: Prometheus,
    plans: Sequence[Plan],
    start: float,
    end: float,
    step: float,
    *,
    recorded: bool = True,
) -> History:
    """Return the events of every group of these objectives and the stated errors of estimated shares, by step.

    `recorded` allows reading the counters that the rules of the objectives recorded: not for an objective that
    measures something else than its namesake in Prometheus. Raises PrometheusError and HistoryError.
    """
    grid = Grid(start + step, end, step)
    for plan in plans:
        usable = recorded and prometheus.instant(f"count({_recorded(plan, names.TOTAL)})", start + step)
        for event, column in _EVENTS.items():
            if usable:
                grown = _growth(prometheus, _recorded(plan, event), start, end, step)
            elif plan.objective.indicator.counts_time:
                grown = _seconds(prometheus, plan, event, start, end, step)
            else:
                counter = plan.measure.error if event == names.ERROR else plan.measure.total
                grown = _growth(prometheus, counter, start, end, step)
            _put(grid, plan, column, grown, start, step)
        if plan.measure.stated_error is not None:
            stated = plan.measure.stated_error(duration_text(step))
            for first, last in query_ranges(start + step, end, step):
                for series in prometheus.range(stated, first, last, step):
                    key = _history_key(plan.objective, series.labels)
                    grid.put(key, "error", series.times, np.array(series.values))
    return grid.history()


def _recorded(plan: Plan, event: str) -> str:
    groups = chosen_matchers(plan.objective).within(plan.objective.group_by)
    return f"{names.COUNTER}{plan.own.also(*groups.parts).equal(names.EVENT, event)}"


Growth = Iterator[tuple[Mapping[str, str], Matrix, Matrix]]
"""Labels of a series, times and what it grew by until then."""


def _read(
    prometheus: Prometheus, query: str, start: float, end: float, step: float
) -> Iterator[tuple[Mapping[str, str], Matrix, Matrix]]:
    """Yield each series as a whole, however many queries its steps take."""
    parts: dict[tuple[tuple[str, str], ...], list[tuple[Matrix, Matrix]]] = defaultdict(list)
    for first, last in query_ranges(start, end, step):
        for series in prometheus.range(query, first, last, step):
            parts[tuple(sorted(series.labels.items()))].append(
                (np.array(series.times), np.array(series.values))
            )
    for labels, read in parts.items():
        times, values = (np.concatenate(column) for column in zip(*read, strict=True))
        yield dict(labels), times, values


def _growth(prometheus: Prometheus, query: str, start: float, end: float, step: float) -> Growth:
    """Yield what each counter grew by from step to step, as the rules count it: one that fell began again at 0.

    A counter that is seen first adds nothing, unless its server was known before: a first failure, for example.
    """
    series = list(_read(prometheus, query, start, end, step))
    known: dict[tuple[str, ...], float] = {}
    for labels, times, _ in series:
        server = _server(labels)
        known[server] = min(known.get(server, np.inf), float(times[0]))
    for labels, times, values in series:
        grown = np.diff(values, prepend=0.0 if known[_server(labels)] < times[0] else values[0])
        yield labels, times, np.where(grown < 0, values, grown)


def _server(labels: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(labels.get(label, "") for label in ("job", "instance", "model", "version"))


def _seconds(prometheus: Prometheus, plan: Plan, event: str, start: float, end: float, step: float) -> Growth:
    """Yield the seconds of servers that fail, or of all: those that there are at the end of a step count for
    all of it."""
    query = plan.measure.error
    if event == names.TOTAL:
        query = f"sum {plan.scope.by} (\n({query}) or {plan.measure.total}\n)"
    for labels, times, values in _read(prometheus, query, start, end, step):
        yield labels, times, values * step


def _put(grid: Grid, plan: Plan, column: Column, grown: Growth, start: float, step: float) -> None:
    """Add up the servers of each group; a step in which none was seen is unknown."""
    sums: dict[tuple[str, str, str], dict[float, float]] = defaultdict(lambda: defaultdict(float))
    for labels, times, values in grown:
        into = sums[_history_key(plan.objective, labels)]
        for at, value in zip(times.tolist(), values.tolist(), strict=True):
            if at > start + step / 2 and not np.isnan(value):
                into[at] += value
    for key, counted in sums.items():
        grid.put(key, column, list(counted), np.array(list(counted.values())))


def _history_key(objective: Objective, labels: Mapping[str, str]) -> tuple[str, str, str]:
    return objective.name, labels.get("model", ""), labels.get("version", "")


def excluded_spans(
    exclusions: Sequence[Exclusion], start: float, end: float, prometheus: Prometheus | None = None
) -> list[Span]:
    """Return the excluded time between two Unix times, in order, none twice. Raises PrometheusError.

    Raises LookupError for an exclusion in PromQL where there is no Prometheus to ask.
    """
    return merged([span for exclusion in exclusions for span in _spans(exclusion, start, end, prometheus)])


def _spans(exclusion: Exclusion, start: float, end: float, prometheus: Prometheus | None) -> Iterator[Span]:
    if exclusion.promql is None:
        yield from exclusion.spans(start, end)
        return
    if prometheus is None:
        raise LookupError(f"the exclusion {exclusion.reason!r} is PromQL, which only Prometheus can answer")
    step = max(_EXCLUSION_STEP_SECONDS, (end - start) / MAX_STEPS)
    for series in prometheus.range(f"group ((\n{exclusion.promql}\n))", start, end, step):
        # The exclusion may begin or end anywhere between two evaluations: a step on each side is left out, too.
        yield from clipped([(at - step, at + step) for at in series.times], start, end)
