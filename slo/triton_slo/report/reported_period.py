"""The calendar month or quarter that a report is about, as a person names it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from triton_slo.objective.period_window import CalendarWindow
from triton_slo.objective.periods import Period, period_at
from triton_slo.objective.zone import time_zone

FORMS = "2026-10, 2026-Q3, last-month, this-month, last-quarter or this-quarter"
_NAMED = re.compile(r"([12][0-9]{3})-(?:(0[1-9]|1[0-2])|Q([1-4]))")
_RELATIVE = re.compile(r"(last|this)-(month|quarter)")


PeriodKind = Literal["month", "quarter"]


@dataclass(frozen=True, slots=True)
class ReportedPeriod:
    """A month or a quarter; when it begins and ends depends on the time zone."""

    kind: PeriodKind
    year: int
    number: int
    """1 to 12 of a month, 1 to 4 of a quarter."""

    @property
    def name(self) -> str:
        """The period as `--period` takes it: 2026-10 or 2026-Q3."""
        return f"{self.year}-{self.number:02d}" if self.kind == "month" else f"{self.year}-Q{self.number}"

    def in_zone(self, timezone: str) -> Period:
        """Return its first moment and the first moment after it on the clocks of a time zone."""
        month = self.number if self.kind == "month" else 3 * self.number - 2
        inside = datetime(self.year, month, 15, tzinfo=time_zone(timezone)).timestamp()
        return period_at(CalendarWindow(calendar=self.kind, timezone=timezone), inside)


def parse_period(text: str, now: float, timezone: str = "UTC") -> ReportedPeriod:
    """Read the name of a period; `last-month` is the month before the one that contains Unix time `now`.

    Raises ValueError on any other text.
    """
    if match := _NAMED.fullmatch(text):
        year, month, quarter = match.groups()
        return ReportedPeriod("month" if month else "quarter", int(year), int(month or quarter))
    if not (match := _RELATIVE.fullmatch(text)):
        raise ValueError(f"{text[:40]!r} is not a period; write {FORMS}")
    today = datetime.fromtimestamp(now, time_zone(timezone))
    months = today.year * 12 + today.month - 1
    if match[2] == "month":
        months -= match[1] == "last"
        return ReportedPeriod("month", months // 12, months % 12 + 1)
    quarters = months // 3 - (match[1] == "last")
    return ReportedPeriod("quarter", quarters // 4, quarters % 4 + 1)
