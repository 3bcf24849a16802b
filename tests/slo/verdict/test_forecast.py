"""Test the forecast of when a budget is spent, with the range from several windows and an estimate's error."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_exporter.common.duration import DAY
from triton_slo.group_status import GroupStatus, forecast

_PACE = st.floats(0, 50)


def _row(
    left: float, hour: float, six: float, error: float | None = None, ends: float | None = None
) -> GroupStatus:
    seconds = left * 30 * DAY / hour if hour else math.inf
    return GroupStatus(
        "latency",
        "latency",
        {"model": "a"},
        target=0.99,
        burn={"1h": hour, "6h": six},
        budget_left=left,
        lasts="estimated" if hour else "not_burning",
        exhausted_in_seconds=seconds,
        period_ends_in_seconds=ends,
        estimate_error=error,
        period_days=30,
    )


def test_the_range_includes_the_paces_of_all_windows() -> None:
    """Half a budget of 30 days at 5x and at 1x: in 3 days at the last hour's pace, in up to 15."""
    predicted = forecast(_row(0.5, 5, 1))

    assert predicted is not None
    assert (3 * DAY, 3 * DAY, 15 * DAY) == (predicted.seconds, predicted.soonest, predicted.latest)


def test_the_error_of_an_estimate_widens_the_range() -> None:
    """+-1 point of a budget of 1 % is one burn rate either way: at 5x +-1 in 2.5 to 3.75 days."""
    predicted = forecast(_row(0.5, 5, 5, error=0.01))

    assert predicted is not None
    assert pytest.approx((2.5 * DAY, 3.75 * DAY)) == (predicted.soonest, predicted.latest)


def test_a_calendar_period_that_ends_before_resets_the_budget() -> None:
    """At 1x the budget would last 15 days, and a new one begins in 10."""
    predicted = forecast(_row(0.5, 5, 1, ends=10 * DAY))

    assert predicted is not None
    assert (3 * DAY, math.inf) == (predicted.soonest, predicted.latest)


def test_what_is_unknown_or_spent_has_no_forecast() -> None:
    """Without a known budget there is no forecast."""
    assert forecast(GroupStatus("a", "latency", {})) is None
    assert forecast(replace(_row(0.5, 5, 1), period_days=None)) is None


@given(st.floats(0.01, 1), _PACE, _PACE, st.none() | st.floats(0, 0.02))
def test_the_forecast_is_in_its_range(left: float, hour: float, six: float, error: float | None) -> None:
    """For any burn rates: soonest, then the status' own estimate, then latest."""
    predicted = forecast(_row(left, hour, six, error))

    assert predicted is not None
    assert predicted.soonest <= predicted.seconds * (1 + 1e-9)
    assert predicted.seconds <= predicted.latest * (1 + 1e-9)
