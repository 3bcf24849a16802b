"""Calendar periods in a time zone: when the current one began and ends."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from triton_slo.objective.period_window import CalendarWindow
from triton_slo.objective.zone import time_zone


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


def _months_later(first: datetime, months: int) -> datetime:
    month = first.month - 1 + months
    return first.replace(year=first.year + month // 12, month=month % 12 + 1)
