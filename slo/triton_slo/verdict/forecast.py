"""Forecast of the time at which an error budget will be spent, with its uncertainty."""

from __future__ import annotations

import math
from dataclasses import dataclass

from triton_exporter.common.duration import DAY
from triton_slo.fields import error_budget
from triton_slo.verdict.group_status import SHOWN_WINDOWS, GroupStatus


@dataclass(frozen=True, slots=True)
class Forecast:
    """Seconds until a budget is spent: at the pace of the last hour, and the soonest and the latest.

    The range contains the paces of the windows `SHOWN_WINDOWS`, each wrong by the stated error of an estimate.
    Infinite: not at that pace, or not before a calendar period ends.
    """

    seconds: float
    soonest: float
    latest: float


def forecast(row: GroupStatus, period_days: float | None) -> Forecast | None:
    """Return when the budget of a group is spent; None where that is unknown, or it is spent already."""
    if row.lasts in ("unknown", "exhausted") or row.exhausted_in_seconds is None:
        return None
    if row.budget_left is None or row.target is None or period_days is None:
        return None
    paces = [row.burn[window] for window in SHOWN_WINDOWS if window in row.burn]
    if not paces:
        return None
    error = (row.estimate_error or 0.0) / error_budget(row.target)
    left, ends = row.budget_left * period_days * DAY, row.period_ends_in_seconds

    def spent(pace: float) -> float:
        seconds = left / pace if pace > 0 else math.inf
        return math.inf if ends is not None and seconds >= ends else seconds

    return Forecast(row.exhausted_in_seconds, spent(max(paces) + error), spent(min(paces) - error))
