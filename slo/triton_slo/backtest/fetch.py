"""Reads a history from a Prometheus: the same expressions as the rules, asked raw, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from triton_slo.backtest.history import Grid, History
from triton_slo.duration import render
from triton_slo.indicators import Events
from triton_slo.objective import Objective
from triton_slo.plan import Plan
from triton_slo.prometheus import Prometheus
from triton_slo.promql import on

_MOST_POINTS = 10_000
"""Prometheus refuses ranges of more than 11,000 steps."""


def fetch(prometheus: Prometheus, plans: Sequence[Plan], start: float, end: float, step: float) -> History:
    """Events of every group of these objectives, step by step. Raises PrometheusError and HistoryError."""
    grid = Grid(start + step, end, step)
    for plan in plans:
        for events in step_events(plan, step):
            for expression, failed in ((events.error, True), (events.total, False)):
                for first, last in _stretches(start + step, end, step):
                    for series in prometheus.range(expression, first, last, step):
                        key = _key(plan.objective, series.labels)
                        grid.put(key, series.times, np.array(series.values) * step, failed=failed)
    return grid.history()


def step_events(plan: Plan, step: float) -> Iterator[Events]:
    """Events per second over one step, for each part of the objective that has its own threshold."""
    group = on(plan.objective.group_by)
    for variant in plan.variants:
        measure = plan.measure(variant)
        counted = measure.counted(render(step)) if measure.counted else None
        if counted and measure.sampled:
            yield Events(
                *(
                    f"({one})\nor {group}\n({other})"
                    for one, other in (
                        (counted.error, measure.sampled.error),
                        (counted.total, measure.sampled.total),
                    )
                )
            )
        elif found := counted or measure.sampled:
            yield found


def _stretches(start: float, end: float, step: float) -> Iterator[tuple[float, float]]:
    """Ranges that Prometheus answers in one go, on the same grid."""
    reach = step * (_MOST_POINTS - 1)
    while start <= end:
        yield start, min(end, start + reach)
        start += reach + step


def _key(objective: Objective, labels: object) -> tuple[str, str, str]:
    found = labels if isinstance(labels, dict) else {}
    return objective.name, str(found.get("model", "")), str(found.get("version", ""))
