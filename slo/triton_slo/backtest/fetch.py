"""Read a history and its excluded time from a Prometheus, with the expressions of the rules, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from triton_exporter.common.duration import DAY, duration_text
from triton_slo.backtest.history import Column, Grid, History
from triton_slo.indicators.common.measure import Events, Measure
from triton_slo.names import ERROR, LAST_SEEN, RETIRED, TOTAL
from triton_slo.objective.exclusion import Exclusion, Span, clipped, merged
from triton_slo.objective.model import Objective
from triton_slo.prometheus.client import MAX_STEPS, Prometheus, query_ranges
from triton_slo.promql import by, number, on
from triton_slo.rules import recording
from triton_slo.rules.plan import Plan, chosen_matchers, group_matchers

RECORDED = "5m"
"""Nominal window of the recorded events that can replace counters, at steps of the same length."""
_FINE_SECONDS, _COARSE_SECONDS = 60.0, 300.0
"""Resolution at which states (readiness, means) are read, in steps up to `_LONG_SECONDS` and in longer ones."""
_LONG_SECONDS = 1.0 * DAY
_EXCLUSION_STEP_SECONDS = 60.0
"""Resolution at which exclusions in PromQL are read."""
_STEPS_APART = 60
"""Steps between two moments at which records are searched for."""


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
            if records := prometheus.range(_presence(plan, step), begin, until, apart):
                first = min(at for series in records for at in series.times)
                break
    # No moment had a record, but there may be some after the last one: read as much as one query can.
    first = first if first < end else end - step * MAX_STEPS
    return max(start, first - apart)


def _presence(plan: Plan, step: float) -> str:
    """Return PromQL that has a value while there is anything to read of an objective."""
    own = [plan.measure(variant).presence for variant in plan.variants]
    if step == plan.clock.real(RECORDED):
        own.append(_recorded_events(plan).total)
    return "\nor\n".join(f"count({presence})" for presence in own)


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

    `recorded` allows reading what the rules of the objectives recorded: not for an objective that measures
    something else than its namesake in Prometheus. Raises PrometheusError and HistoryError.
    """
    grid = Grid(start + step, end, step)
    for plan in plans:
        asked: list[tuple[Column, str, float]] = []
        for events in _event_sources(prometheus, plan, start + step, step, recorded):
            asked += [("bad", events.error, step), ("total", events.total, step)]
        for measure in map(plan.measure, plan.variants):
            if measure.stated_error is not None:
                asked.append(("error", measure.stated_error(duration_text(step)), 1.0))
        for column, expression, factor in asked:
            for first, last in query_ranges(start + step, end, step):
                for series in prometheus.range(expression, first, last, step):
                    key = _history_key(plan.objective, series.labels)
                    grid.put(key, column, series.times, np.array(series.values) * factor)
    return grid.history()


def _event_sources(
    prometheus: Prometheus, plan: Plan, start: float, step: float, recorded: bool
) -> list[Events]:
    """Return recorded events, which cost less, if they have this step and reach back to `start`; else sources."""
    events = _recorded_events(plan)
    if recorded and step == plan.clock.real(RECORDED) and prometheus.instant(f"count({events.total})", start):
        own = group_matchers(plan, chosen_matchers(plan.objective))
        labels = (*plan.objective.group_by, *plan.fixed_labels)
        # Rules record 0 events for a group whose series are gone. In a history, this time is unknown,
        # unless the group is retired.
        seen, retired = (f"max {by(labels)} ({name}{own})" for name in (LAST_SEEN, RETIRED))
        gone = f"time() - {seen} >= {number(step)} unless {on(labels)} {retired} >= {on(labels)} {seen}"
        known = f"sum {by(labels)} ({events.total}) unless {on(labels)} ({gone})"
        return [Events(f"sum {by(labels)} ({events.error})", known)]
    return [source_events(plan, plan.measure(variant), step) for variant in plan.variants]


def _recorded_events(plan: Plan) -> Events:
    groups = group_matchers(plan, chosen_matchers(plan.objective))
    return Events(*(recording.events(plan, RECORDED, event, groups) for event in (ERROR, TOTAL)))


def source_events(plan: Plan, measure: Measure, step: float) -> Events:
    """Return PromQL for events per second over a step, from the source series.

    Counters are read one scrape further back: the increase between the last sample of one step and the first of
    the next would be in neither.
    """
    scrape = plan.clock.scrape_seconds
    span = max(step, scrape)
    fineness = plan.clock.scale * (_FINE_SECONDS if span <= _LONG_SECONDS else _COARSE_SECONDS)
    resolution = duration_text(min(max(fineness, scrape), span))

    def mean(expression: str) -> str:
        return f"avg_over_time((\n{expression}\n)[{duration_text(span)}:{resolution}])"

    # Ranges of Prometheus 2 include a sample at their very beginning, which would be one too many.
    reach = duration_text(step + scrape - 0.001)
    return measure.events.at_once(reach, mean)


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
