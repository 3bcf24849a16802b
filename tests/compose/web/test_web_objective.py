"""Test the page of one objective on recorded series: bands, alerts, causes."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import history
from support.history import END
from triton_exporter.common.duration import DAY
from triton_slo import names, rules
from triton_slo.artifact import Options
from triton_slo.group_status import GroupStatus
from triton_slo.objective.model import Objective
from triton_slo.plan import Plan
from triton_slo.prometheus import Prometheus, Series
from triton_slo.server_access import Access
from tritonwatch.web.drawing import POINTS, Band, ChartAxis
from tritonwatch.web.pages.objective_page import (
    EVENTS,
    PastSeries,
    _even_pace,
    _tiers,
    _timeline,
    burn_curves,
    deployments,
    past_burn,
    past_deployments,
    past_states,
    spent_by_cause,
)
from tritonwatch.web.sources import PrometheusReader, Sources

PLAN = Plan(Objective(name="errors", target=0.99, indicator="errors"), Options())
AXIS = ChartAxis(0, 100, 10)


def test_the_page_shows_the_condition_that_the_rules_have() -> None:
    """Each alert with its PromQL, and no other words for it."""
    shown = _tiers(PLAN, {"page_slow"})

    expressions = {
        rule.labels["tier"]: rule.expr
        for group in rules.groups(PLAN)
        for rule in group.rules
        if "tier" in rule.labels
    }
    assert expressions == {str(tier["tier"]): tier["promql"] for tier in shown}
    assert [False, True, False, False] == [tier["firing"] for tier in shown]


def test_a_gap_ends_a_band() -> None:
    """Two spans of excluded time are two bands; each sample represents the step before it."""
    labels = {"__name__": names.SLI_EXCLUDED, "reason": "move"}
    past = PastSeries(AXIS, (Series(labels, (20, 30, 70), (1, 1, 1)),))

    assert (
        Band("excluded", 10, 30, "excluded: move"),
        Band("excluded", 60, 70, "excluded: move"),
    ) == past.bands()


def test_the_timeline_has_a_row_for_each_alert() -> None:
    """A burn alert by its tier, another one by its name."""
    past = PastSeries(
        AXIS,
        (
            Series(
                {"__name__": names.ALERTS, "alertname": "A", "tier": "page_fast"}, (20, 30, 70), (1, 1, 1)
            ),
            Series({"__name__": names.ALERTS, "alertname": names.UNKNOWN_ALERT}, (20,), (1,)),
        ),
    )

    assert [(names.UNKNOWN_ALERT, [(10, 20)]), ("page_fast", [(10, 30), (60, 70)])] == _timeline(past)


@pytest.mark.real
def test_the_charts_of_the_first_day_are_true(tmp_path: Path) -> None:
    """They have steps of four seconds, and rules are evaluated each 15, 30 or 240: an alert that fires on is one."""
    labels = {"alertname": "A", "alertstate": "firing", "slo": "errors", "model": "m"}
    series = [
        *(
            (names.ALERTS, {**labels, "tier": tier}, [(END - back, 1) for back in range(600, -1, -every)])
            for tier, every in (("page_fast", 30), ("ticket_fast", 240))
        ),
        (
            names.COUNTER,
            {"slo": "errors", "model": "m", "event": "total"},
            [(END - back, 10.0 * (600 - back)) for back in range(600, -1, -15)],
        ),
        (
            names.BECAME_READY,
            {"model": "m", "version": "1"},
            [(END - back, 1) for back in range(300, 200, -15)],
        ),
    ]
    row = GroupStatus("errors", "errors", {"model": "m"})
    with history.serve(history.openmetrics(series), tmp_path) as url, Prometheus(Access(url)) as client:
        sources = Sources(PrometheusReader(client, 60.0))
        axis = ChartAxis.until(END, 900)
        fires, ticket = past_states(sources, row, axis).value.alerts()
        burn = past_burn(sources, row, axis).value
        [ready] = deployments(past_deployments(sources, row, axis).value)

    assert "page_fast fires for 10m" in fires.label
    assert "ticket_fast fires for 10m" in ticket.label
    assert END - 600 <= fires.at <= END - 590
    assert "version 1 became ready" == ready.label
    events = axis.values(burn.named(EVENTS, event="total"))
    assert {None} == set(events[:95]), "nothing before a whole window"
    assert [10.0] * 100 == pytest.approx(events[-100:])
    assert [10.0] * 10 == pytest.approx(events[100:110]), "a minute after it began"
    # A thirtieth of the budget is spent each day, on the first one, too.
    assert pytest.approx((1.0, 1 - 900 / (30 * DAY))) == _even_pace(axis, row, 30 * DAY)[::POINTS]


def test_causes_count_by_the_events_that_failed_while_they_were_recorded() -> None:
    """Queueing while nothing fails explains no failure."""
    events = {"__name__": EVENTS, "event": "error"}
    causes = [
        Series({"cause": "queue"}, (10, 20, 30), (0.9, 0.2, 0.2)),
        Series({"cause": "compute"}, (10, 20, 30), (0.1, 0.8, 0.8)),
    ]
    burn = PastSeries(AXIS, (Series(events, (10, 20, 30), (0, 5, 5)),))

    [(first, most), (second, least)] = spent_by_cause(PastSeries(AXIS, tuple(causes)), burn)
    assert ("compute", "queue") == (first, second)
    assert pytest.approx((0.8, 0.2)) == (most, least)


def test_burn_curves_are_by_window() -> None:
    """The shortest first; a longer one begins once a tenth of it is recorded."""
    windows = ("6h", "5m", "1h")
    series = [Series({"__name__": names.sli_error(window)}, (20, 30), (0.02, 0.01)) for window in windows]
    curves = burn_curves(PastSeries(AXIS, tuple(series)), AXIS, 0.99, 430.0, 1.0)
    known = {curve.label: [value for value in curve.values if value is not None] for curve in curves}
    assert [("5m", [2, 1]), ("1h", [1]), ("6h", [])] == [
        (label, list(map(pytest.approx, values))) for label, values in known.items()
    ]
