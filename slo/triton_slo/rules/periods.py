"""Calendar periods in a time zone: when the current one began and ends.

Prometheus knows no time zone, so rules carry the changes of the clock from `FIRST` to `LAST` as numbers; after
`LAST` they keep the last offset, and a period may begin an hour off.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache

from triton_slo.objective.period_window import CalendarWindow
from triton_slo.objective.zone import ClockRange, clock_ranges, time_zone
from triton_slo.rules.plan import Plan

FIRST = datetime(2025, 1, 1, tzinfo=UTC)
LAST = datetime(2040, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Period:
    """A calendar period: Unix seconds of its first moment, and of the first moment after it."""

    start: float
    end: float


def period_at(window: CalendarWindow, at: float) -> Period:
    """Return the period that contains Unix time `at`."""
    now = datetime.fromtimestamp(at, time_zone(window.timezone))
    # Where clocks are set back at midnight, there are two midnights: the period begins at the first.
    first = now.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    match window.calendar:
        case "week":
            first -= timedelta(days=now.weekday())
            following = first + timedelta(days=7)
        case "month":
            first = first.replace(day=1)
            following = _months_later(first, 1)
        case "quarter":
            first = first.replace(month=(now.month - 1) // 3 * 3 + 1, day=1)
            following = _months_later(first, 3)
    # Subtracting two times of one zone ignores changes of its offset in between; Unix time does not.
    return Period(first.timestamp(), following.timestamp())


@dataclass(frozen=True, slots=True)
class Basis:
    """Time that a budget is a share of, in seconds: all that it stands for, and as much of that as has passed.

    A rolling window has passed as a whole. A calendar period stands for itself where events are seconds, whose
    number is known beforehand, and otherwise for the part of it that has passed.
    """

    passed_seconds: float
    budget_seconds: float

    @property
    def share(self) -> float:
        """The part of the budget's time that has passed (0 to 1)."""
        return self.passed_seconds / self.budget_seconds


def basis(plan: Plan, at: float) -> Basis:
    """Return what an objective's budget is a share of at Unix time `at`."""
    if plan.objective.calendar is None:
        return Basis(plan.period_seconds, plan.period_seconds)
    period = period_at(plan.objective.calendar, at)
    passed = max(1.0, at - period.start)
    independent = plan.objective.indicator.sees_independent_events
    return Basis(passed, passed if independent else period.end - period.start)


@cache
def known_clock_ranges(timezone: str) -> tuple[ClockRange, ...]:
    """Return how the clocks of a zone are set from `FIRST` to `LAST`."""
    return clock_ranges(timezone, int(FIRST.timestamp()), int(LAST.timestamp()))


def _months_later(first: datetime, months: int) -> datetime:
    month = first.month - 1 + months
    return first.replace(year=first.year + month // 12, month=month % 12 + 1)
