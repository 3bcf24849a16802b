"""Clocks of a time zone, by `zoneinfo`: when they change, and the rule that the changes follow.

PromQL knows only UTC, so rules carry a zone either as its changes or as arithmetic.

A zone's changes to and from summer time follow a rule such as "the last Sunday of March, 01:00 UTC" (POSIX TZ). The
rule is worked out of the changes of 28 years, after which the calendar's weekdays repeat, so it is the same
whenever it is worked out, and is valid for as long as the law is.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

from triton_exporter.common.duration import DAY

_YEARS = range(2026, 2026 + 28)


@dataclass(frozen=True, slots=True)
class ClockChange:
    """The first `weekday` (0: Sunday) of `month` from the day `first` on, at `second` of standard time's day."""

    month: int
    weekday: int
    first: int
    second: int


@dataclass(frozen=True, slots=True)
class ClockRule:
    """Seconds that standard time is ahead of UTC, and what summer time adds between two changes (None: never)."""

    standard: int
    summer: int = 0
    begins: ClockChange | None = None
    ends: ClockChange | None = None


_MACHINES = frozenset({"localtime", "posixrules", "Factory", "posix", "right", "SystemV"})
"""Names that a tz database may contain and that mean something else, or nothing, on the next machine."""


def time_zone(timezone: str) -> ZoneInfo:
    """Return the time zone. Raises ValueError if there is no such, or none that is the same everywhere."""
    if timezone.partition("/")[0] in _MACHINES:
        raise ValueError(
            f"{timezone!r} is not the same zone on every machine; write one such as Europe/Berlin"
        )
    try:
        return ZoneInfo(timezone)
    except (KeyError, ValueError, OSError):
        raise ValueError(f"{timezone!r} is not a time zone; write one such as Europe/Berlin") from None


@cache
def clock_rule(timezone: str) -> ClockRule:
    """Return how a zone's clocks run. Raises ValueError if there is no such zone, or its changes follow no rule."""
    zone = time_zone(timezone)
    start, end = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (_YEARS[0], _YEARS[-1] + 1))
    changes = list(_changes(zone, start, end))
    if not changes:
        return ClockRule(_utc_offset(zone, start))
    offsets = {offset for _, offset in changes}
    standard, summer = min(offsets), max(offsets)
    begins = _change([at + standard for at, offset in changes if offset == summer])
    ends = _change([at + standard for at, offset in changes if offset == standard])
    if len(offsets) != 2 or begins is None or ends is None:
        raise ValueError(f"the clocks of {timezone} change by no fixed rule; write the times in UTC")
    return ClockRule(standard, summer - standard, begins, ends)


class ClockRange(NamedTuple):
    """Time from one change of a zone's clocks to the next: Unix times, and seconds ahead of UTC."""

    start: int
    end: int
    offset: int


def clock_ranges(timezone: str, start: int, end: int) -> tuple[ClockRange, ...]:
    """Return the time between two Unix times, cut where the clocks are changed."""
    zone = time_zone(timezone)
    begun = [(start, _utc_offset(zone, start)), *_changes(zone, start, end)]
    ends = [*(at for at, _ in begun[1:]), end]
    return tuple(ClockRange(at, until, offset) for (at, offset), until in zip(begun, ends, strict=True))


def _changes(zone: ZoneInfo, at: int, end: int) -> list[tuple[int, int]]:
    """Return (Unix time, offset from then on) of each change between two Unix times."""
    changes, before = [], _utc_offset(zone, at)
    for day in (*range(at + DAY, end, DAY), end):
        if (offset := _utc_offset(zone, day)) != before:
            low, high = max(at, day - DAY), day
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if _utc_offset(zone, middle) == offset else (middle, high)
            changes.append((high, offset))
            before = offset
    return changes


def _utc_offset(zone: ZoneInfo, at: int) -> int:
    offset = datetime.fromtimestamp(at, zone).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


def _change(local: list[int]) -> ClockChange | None:
    """Return the rule that changes follow, one a year, given in standard time; None if they follow none."""
    moments = [datetime.fromtimestamp(at, UTC) for at in local]
    kinds = {
        (moment.month, moment.isoweekday() % 7, moment.hour * 3600 + moment.minute * 60 + moment.second)
        for moment in moments
    }
    days = [moment.day for moment in moments]
    if len(kinds) != 1 or [moment.year for moment in moments] != list(_YEARS) or max(days) - min(days) > 6:
        return None
    ((month, weekday, second),) = kinds
    return ClockChange(month, weekday, min(days), second)
