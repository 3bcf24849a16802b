"""Charts of an objective: the error budget over its period, burn rates with their limits, and events."""

from __future__ import annotations

import math

from triton_exporter.common.duration import parse_seconds
from triton_slo import names
from triton_slo.burn import amounts
from triton_slo.fields import error_budget
from triton_slo.rules.plan import Plan
from triton_slo.verdict.group_status import GroupStatus
from tritonwatch.web.drawing.charts import Band, Chart, ChartAxis, Curve, Limit, Mark, Values
from tritonwatch.web.queries.group_history import PastSeries

_ERRORS = names.sli_error("")


def objective_charts(
    row: GroupStatus,
    plan: Plan | None,
    budget: PastSeries,
    burn: PastSeries,
    bands: tuple[Band, ...],
    marks: tuple[Mark, ...],
) -> list[Chart]:
    """Return the charts of one group; without a plan, those of burn rates have no limits."""
    axis = burn.axis
    return [
        _budget_chart(row, budget),
        Chart(
            "burn",
            "Burn rate by window",
            "times",
            axis.times,
            tuple(burn_curves(burn, axis, row.target)),
            tuple(_limits(plan)) if plan else (),
            bands,
            marks,
            log=True,
        ),
        Chart(
            "events",
            "Events per second",
            "per second",
            axis.times,
            tuple(
                Curve(label, axis.values(burn.named(names.sli_events("5m"), event=event)))
                for label, event in (("all", names.TOTAL), ("failed", names.ERROR))
            ),
            bands=bands,
            marks=marks,
        ),
    ]


def _budget_chart(row: GroupStatus, past: PastSeries) -> Chart:
    axis = past.axis
    left = axis.values(past.named(names.PERIOD_BUDGET_REMAINING))
    # The last point is the number on the page.
    curves = [Curve("budget left", (*left[:-1], row.budget_left))]
    if row.period_ends_in_seconds is None:
        left_since_start = _left_since_start(axis, past, row)
        if any(value is not None for value in left_since_start):
            curves.append(Curve("left, counted from the window's start", left_since_start, dashed=True))
    curves.append(Curve("even pace", _even_pace(axis, row), dashed=True))
    return Chart("budget", "Error budget over the period", "share", axis.times, tuple(curves))


def _limits(plan: Plan) -> list[Limit]:
    return [
        Limit(f"{tier.name} {amounts.burn_rate(factor)} ({tier.long} and {tier.short})", factor)
        for tier in plan.objective.alerting.tiers
        for factor in [plan.factor(tier)]
    ]


def burn_curves(burn: PastSeries, axis: ChartAxis, target: float | None) -> list[Curve]:
    """Return the burn rate of each recorded window, the shortest first; none if the target is unknown."""
    if target is None:
        return []
    rates = {
        series.labels["__name__"].removeprefix(_ERRORS): axis.values(series)
        for series in burn.all_named(_ERRORS)
    }
    return [
        Curve(
            window, tuple(None if value is None else value / error_budget(target) for value in rates[window])
        )
        for window in sorted(rates, key=_length)
    ]


def _length(window: str) -> float:
    """Return the seconds of a window; a calendar period (`month`) is longer than any other."""
    return math.inf if window.isalpha() else parse_seconds(window)


def _even_pace(axis: ChartAxis, row: GroupStatus) -> Values:
    """Return the budget that would be left if it were spent evenly over the period."""
    ends = axis.end + (row.period_ends_in_seconds or 0.0)
    length = ends - axis.start
    return tuple(1 - (at - axis.start) / length for at in axis.times)


def _left_since_start(axis: ChartAxis, past: PastSeries, row: GroupStatus) -> Values:
    """Return the budget left at each step if only failures since the window's start are counted.

    The last value is the budget left now.
    """
    errors, totals = (
        axis.values(past.named(names.SLI_EVENTS_SUM, event=event)) for event in (names.ERROR, names.TOTAL)
    )
    first = next((i for i, value in enumerate(errors) if value is not None and totals[i] is not None), None)
    if first is None or row.target is None or row.budget_left is None:
        return (None,) * len(axis.times)
    start = errors[first] or 0.0
    failed = [None if value is None else max(0.0, value - start) for value in errors]
    last = next((value for value in reversed(failed) if value is not None), 0.0)
    spent = 1 - row.budget_left
    if last <= 0 or spent <= 0:
        return tuple(None if value is None else 1.0 for value in failed)
    return tuple(None if value is None else 1 - spent * value / last for value in failed)
