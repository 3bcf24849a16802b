"""Charts of an objective: the error budget over its period, burn rates with their limits, and events."""

from __future__ import annotations

from triton_exporter.common.duration import parse_seconds
from triton_slo import amounts, names
from triton_slo.fields import error_budget
from triton_slo.group_status import GroupStatus
from triton_slo.plan import Plan
from tritonwatch.web.drawing import Band, Chart, ChartAxis, Curve, Limit, Mark, Values
from tritonwatch.web.queries.group_history import EVENTS, PastSeries

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
                Curve(label, axis.values(burn.named(EVENTS, event=event)))
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
        for window in sorted(rates, key=parse_seconds)
    ]


def _even_pace(axis: ChartAxis, row: GroupStatus) -> Values:
    """Return the budget that would be left if it were spent evenly over the period."""
    ends = axis.end + (row.period_ends_in_seconds or 0.0)
    length = ends - axis.start
    return tuple(1 - (at - axis.start) / length for at in axis.times)
