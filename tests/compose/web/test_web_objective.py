"""Test the page of one objective on recorded series: conditions, bands, causes, the spending of a budget."""

from __future__ import annotations

import pytest

from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.burn.condition import burn_condition
from triton_slo.burn.condition_tree import named_parts
from triton_slo.objective.model import Objective
from triton_slo.prometheus.client import Series
from triton_slo.rules.plan import Plan
from triton_slo.verdict.group_status import GroupStatus
from tritonwatch.web.drawing.charts import Band, ChartAxis
from tritonwatch.web.drawing.condition_parts import ConditionPart, TierCondition, tier_conditions
from tritonwatch.web.pages.objective_charts import _left_since_start, burn_curves
from tritonwatch.web.pages.objective_page import _timeline
from tritonwatch.web.queries.group_history import PastSeries, spent_by_cause

PLAN = Plan(Objective(name="errors", target=0.99, indicator={"kind": "errors"}), Options())  # type: ignore[arg-type]
ROW = GroupStatus("errors", "errors", {"model": "a"}, target=0.99, burn={"1h": 20, "5m": 30}, budget_left=0.4)
AXIS = ChartAxis(0, 100, 10)


def _tier(true: frozenset[str]) -> TierCondition:
    """Return the most urgent tier, with these named parts true now."""
    return tier_conditions(PLAN, ROW, lambda _tier, part: part in true, lambda tier: False)[0]


def _parts(part: ConditionPart) -> list[ConditionPart]:
    return [part, *(below for inner in part.parts for below in _parts(inner))]


def test_the_tree_has_every_named_part_of_the_condition() -> None:
    """The page shows the condition that the rules are made of, and no other."""
    [tier, *_] = PLAN.objective.alerting.tiers
    expected = {part.name for part in named_parts(burn_condition(PLAN, tier))}

    assert expected == {part.name for part in _parts(_tier(frozenset()).root)} - {""}


def test_a_condition_is_true_when_all_its_parts_are() -> None:
    """Burn rates are compared with the tier's factor; named parts are as recorded."""
    assert _tier(frozenset({"enough", "now"})).root.truth is True
    assert _tier(frozenset({"enough"})).root.truth is False


def test_what_the_page_cannot_know_is_unknown() -> None:
    """A number of failures is not on the page, so its comparison is neither true nor false."""
    [failures, *_] = [
        part for part in _parts(_tier(frozenset()).root) if part.words.startswith("failures in")
    ]

    assert failures.truth is None


def test_a_gap_ends_a_band() -> None:
    """Two spans of unknown time are two bands; each sample represents the step before it."""
    labels = {"__name__": "slo:sli_unknown:state", "reason": "vanished"}
    past = PastSeries(AXIS, (Series(labels, (20, 30, 70), (1, 1, 1)),))

    assert (
        Band("unknown", 10, 30, "unknown: vanished"),
        Band("unknown", 60, 70, "unknown: vanished"),
    ) == past.bands()


def test_the_timeline_has_a_row_for_each_part_of_each_tier() -> None:
    """A part has the name that the rules record it by; other series of the group have no row."""
    past = PastSeries(
        AXIS,
        (
            Series({"__name__": names.burn_part("now"), "tier": "page_fast"}, (20, 30, 70), (1, 1, 1)),
            Series({"__name__": names.UNKNOWN, "reason": "stuck"}, (20,), (1,)),
        ),
    )

    assert [("page_fast: now", [(10, 30), (60, 70)])] == _timeline(past)


def test_causes_count_by_the_events_that_failed_while_they_were_recorded() -> None:
    """Queueing while nothing fails explains no failure."""
    events = {"__name__": "slo:sli_events:rate5m", "event": "error"}
    causes = [
        Series({"cause": "queue"}, (10, 20, 30), (0.9, 0.2, 0.2)),
        Series({"cause": "compute"}, (10, 20, 30), (0.1, 0.8, 0.8)),
    ]
    burn = PastSeries(AXIS, (Series(events, (10, 20, 30), (0, 5, 5)),))

    [(first, most), (second, least)] = spent_by_cause(PastSeries(AXIS, tuple(causes)), burn)
    assert ("compute", "queue") == (first, second)
    assert pytest.approx((0.8, 0.2)) == (most, least)


def test_the_spending_of_a_window_ends_at_the_budget_left() -> None:
    """A third of the failures came by the middle: 0.8 of the budget was left then, and 0.4 is now."""
    name = "slo:sli_events:sum"
    past = PastSeries(
        AXIS,
        (
            Series({"__name__": name, "event": "error"}, (0, 50, 100), (7, 10, 16)),
            Series({"__name__": name, "event": "total"}, (0, 50, 100), (100, 200, 300)),
        ),
    )

    left = _left_since_start(AXIS, past, ROW)
    assert pytest.approx((1.0, 0.8, 0.4)) == (left[0], left[5], left[10])


def test_the_period_of_a_calendar_window_is_a_burn_curve_too() -> None:
    """An objective of a calendar month records the month's rate beside those of lengths of time."""
    windows = ("month", "1h", "30m")
    series = [Series({"__name__": names.sli_error(window)}, (20, 30), (0.02, 0.01)) for window in windows]
    curves = burn_curves(PastSeries(AXIS, tuple(series)), AXIS, 0.99)
    assert ["30m", "1h", "month"] == [curve.label for curve in curves]
