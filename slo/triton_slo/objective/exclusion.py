"""Time that does not count: planned maintenance, once, every week, or while an expression is true.

PromQL knows only UTC, so rules carry a zone as arithmetic: its changes to and from summer time follow a rule such as
"the last Sunday of March, 01:00 UTC" (POSIX TZ). The rule is worked out of the changes of 28 years, after which the
calendar's weekdays repeat, so it is the same whenever it is worked out, and is valid for as long as the law is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, Self, get_args
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from triton_exporter.common.duration import DAY
from triton_exporter.common.moments import time_zone
from triton_slo import expression, names
from triton_slo.fields import Value
from triton_slo.promql import indent, number, quote

_WORKED_OUT_OF = range(2026, 2026 + 28)


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


@cache
def clock_rule(timezone: str) -> ClockRule:
    """Return how a zone's clocks run. Raises ValueError if there is no such zone, or its changes follow no rule."""
    zone = time_zone(timezone)
    start, end = (
        int(datetime(year, 1, 1, tzinfo=UTC).timestamp())
        for year in (_WORKED_OUT_OF[0], _WORKED_OUT_OF[-1] + 1)
    )
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
    if (
        len(kinds) != 1
        or [moment.year for moment in moments] != list(_WORKED_OUT_OF)
        or max(days) - min(days) > 6
    ):
        return None
    ((month, weekday, second),) = kinds
    return ClockChange(month, weekday, min(days), second)


Day = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
DAYS: tuple[Day, ...] = get_args(Day)
Span = tuple[float, float]
"""Start and end in Unix seconds; the end is not in it."""

_EPOCH_WEEKDAY = 3
"""1970-01-01 was a Thursday."""
_MOMENT = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2})?(Z|[+-][0-9]{2}:[0-9]{2})?"
_YEARS = range(1970, 2200)
_TIME = r"([01]\d|2[0-3]):[0-5]\d"


def _written_in_full(value: Any) -> Any:
    """Write a moment, which YAML reads as a datetime, and an hour of one digit in full."""
    if isinstance(value, datetime):
        return value.isoformat()
    return f"0{value}" if isinstance(value, str) and value[1:2] == ":" else value


def _days(value: Any) -> Any:
    if value == "all":
        return DAYS
    return (value,) if isinstance(value, str) else value


When = Annotated[
    str,
    Field(pattern=f"^({_MOMENT}|{_TIME})$"),
    BeforeValidator(_written_in_full, json_schema_input_type=str),
]


def _known_zone(value: str) -> str:
    time_zone(value)
    return value


TimeZone = Annotated[str, AfterValidator(_known_zone)]


class Exclusion(Value):
    """Time that does not count: from one moment to another, on days of the week, or while PromQL has a result.

    With `days`, `start` and `end` are what the clocks of the time zone show, and an end that is not after the start
    is on the next day: an hour that clocks skip excludes nothing, one that they show twice is excluded twice.
    """

    reason: str = Field(min_length=1, max_length=200)
    days: (
        Annotated[
            tuple[Day, ...],
            Field(min_length=1),
            BeforeValidator(_days, json_schema_input_type=str | list[Day]),
        ]
        | None
    ) = None
    start: When | None = None
    end: When | None = None
    timezone: TimeZone | None = None
    promql: str | None = None

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if self.promql is not None:
            if (self.start, self.end, self.days, self.timezone) != (None,) * 4:
                raise ValueError("an exclusion has either start and end, or promql")
            expression.check(self.promql, "promql", "group((\n{}\n))")
            return self
        if self.start is None or self.end is None:
            raise ValueError("an exclusion has both start and end, or promql")
        if self.days is not None:
            self._check_recurring()
        else:
            self._check_once()
        return self

    def _check_recurring(self) -> None:
        assert self.start is not None
        assert self.end is not None
        if "-" in self.start or "-" in self.end:
            raise ValueError("with days, start and end are times of the day, such as 22:00")
        if self.duration * len(set(self.days or ())) >= 7 * DAY:
            raise ValueError("excludes the whole week; drop the objective instead")
        clock_rule(self.timezone or "UTC")

    def _check_once(self) -> None:
        for text in (self.start, self.end):
            assert text is not None
            if "T" not in text:
                raise ValueError(
                    f"{text} is a time of the day: add days, or write a date, as 2026-12-24T{text}Z"
                )
            aware = _date(text).tzinfo is not None
            if aware == (self.timezone is not None):
                raise ValueError(
                    f"{text}: a moment has a time zone, and only one: end it with Z or +01:00, or add timezone"
                )
        if not self.span[0] < self.span[1]:
            raise ValueError("an exclusion ends after it starts")

    @property
    def span(self) -> Span:
        """Start and end of an exclusion from one moment to another. Raises ValueError on no such date."""
        assert self.start is not None
        assert self.end is not None
        return self._unix_time(self.start), self._unix_time(self.end)

    def _unix_time(self, text: str) -> float:
        moment = _date(text)
        if self.timezone is None:
            return moment.timestamp()
        there = moment.replace(tzinfo=time_zone(self.timezone))
        shown = datetime.fromtimestamp(there.timestamp(), there.tzinfo)
        if shown.replace(tzinfo=None) != moment:
            raise ValueError(
                f"{text} never comes in {self.timezone}: the clocks skip it; "
                f"write {shown:%H:%M}, or a time before they change"
            )
        return there.timestamp()

    def ambiguous(self) -> Iterator[str]:
        """Yield moments that the clocks of the zone show twice; the first of the two is taken."""
        if self.timezone is not None and self.days is None:
            for text in (self.start, self.end):
                assert text is not None
                moment = _date(text).replace(tzinfo=time_zone(self.timezone))
                if moment.utcoffset() != moment.replace(fold=1).utcoffset():
                    yield text

    @property
    def opens(self) -> int:
        """Second of the day at which a recurring exclusion begins."""
        assert self.start is not None
        return _second(self.start)

    @property
    def duration(self) -> int:
        """Length of a recurring exclusion in seconds of the clock; a whole day where it ends as it starts."""
        assert self.end is not None
        return (_second(self.end) - self.opens) % DAY or DAY

    def spans(self, start: float, end: float) -> Iterator[Span]:
        """Yield when it applies between two Unix times, in order; nothing for promql."""
        if self.promql is not None:
            return
        if self.days is None:
            yield from clipped([self.span], start, end)
            return
        yield from clipped(merged(self._recurrences(start, end)), start, end)

    def _recurrences(self, start: float, end: float) -> Iterator[Span]:
        """Yield each day's part, in pieces where the clocks of the zone change meanwhile."""
        for since, until, offset in clock_ranges(self.timezone or "UTC", math.floor(start), math.ceil(end)):
            # Clock times as seconds since 1970; the first day is the one whose exclusion may still be active.
            clock = range(since + offset - self.opens, until + offset - self.opens)
            for day in range(clock.start // DAY, clock.stop // DAY + 1):
                low = day * DAY + self.opens - offset
                if DAYS[(day + _EPOCH_WEEKDAY) % 7] in (self.days or ()):
                    yield from clipped([(low, low + self.duration)], since, until)


def _date(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text} does not exist: check its day, hour and offset") from None
    if moment.year not in _YEARS:
        raise ValueError(f"{text} is not in the years {_YEARS[0]} to {_YEARS[-1]}")
    return moment


def _second(text: str) -> int:
    hour, minute = text.split(":")
    return int(hour) * 3600 + int(minute) * 60


def clipped(spans: list[Span], start: float, end: float) -> Iterator[Span]:
    """Cut these spans to the part between two times."""
    for low, high in spans:
        if max(low, start) < min(high, end):
            yield max(low, start), min(high, end)


def merged(spans: Iterator[Span] | list[Span]) -> list[Span]:
    """Return the same time in spans that do not touch, in order."""
    joined: list[Span] = []
    for low, high in sorted(spans):
        if joined and low <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    return joined


def active_exclusions(exclusions: Iterable[Exclusion]) -> str:
    """Return PromQL with a sample for the reason of each exclusion that applies now."""
    return "\nor\n".join(
        f"label_replace(\n{indent(_holds(exclusion))},\n"
        f'  {quote(names.REASON)}, {quote(exclusion.reason.replace("$", "$$"))}, "", ""\n)'
        for exclusion in exclusions
    )


def _holds(exclusion: Exclusion) -> str:
    if exclusion.promql is not None:
        return f"group (\n{indent(exclusion.promql)}\n)"
    if exclusion.days is None:
        start, end = exclusion.span
        return f"vector(1) and (vector(time()) >= {number(start)} < {number(end)})"
    return f"vector(1) and (\n{indent(_recurring(exclusion))}\n)"


def _recurring(exclusion: Exclusion) -> str:
    """Return PromQL for whether the clocks of the zone show a time inside."""
    # The clock minus the exclusion's start: in this time, the exclusion begins at midnight.
    clock = _clock(clock_rule(exclusion.timezone or "UTC"), exclusion.opens)
    conditions = []
    if exclusion.duration < DAY:
        conditions.append(f"({clock} % {DAY} < {exclusion.duration})")
    days = set(exclusion.days or ())
    if len(days) < len(DAYS):
        # One bit a day, Sunday the lowest.
        mask = sum(1 << (number + 1) % 7 for number, day in enumerate(DAYS) if day in days)
        conditions.append(f"(floor({mask} / 2 ^ day_of_week({clock})) % 2 == 1)")
    return "(" + "\n  and ".join(conditions) + ")"


def _clock(rule: ClockRule, minus: int) -> str:
    """Return what the clocks of a zone show, less `minus` seconds, as seconds since 1970."""
    standard = f"vector(time(){_plus(rule.standard - minus)})"
    if rule.begins is None or rule.ends is None:
        return standard
    return f"({standard} + {rule.summer} * {_summer(rule.begins, rule.ends, rule.standard)})"


def _summer(begins: ClockChange, ends: ClockChange, standard: float) -> str:
    """Return PromQL that is 1 in summer time, else 0; `standard` is what standard time adds to `time()`."""
    if begins.month < ends.month:
        return _between_changes(begins, ends, standard)
    # South of the equator the new year is in summer: it is winter between the changes of a year.
    return f"(1 - {_between_changes(ends, begins, standard)})"


def _between_changes(first: ClockChange, second: ClockChange, standard: float) -> str:
    """Return PromQL that is 1 from one change to another of the same year, else 0."""
    before, after = (f"vector(time(){_plus(standard - change.second)})" for change in (first, second))
    inside = f"(month({before}) > bool {first.month}) * (month({before}) <= bool {second.month})"
    begun = f"({inside} + {_in_month_since(first, before)})"
    not_ended = f"(1 - (month({after}) > bool {second.month}) - {_in_month_since(second, after)})"
    return f"({begun} * {not_ended})"


def _in_month_since(change: ClockChange, at: str) -> str:
    """Return PromQL that is 1 in the rest of the change's month, from the day of the change on, else 0.

    That day has come once the latest such weekday is not before the first day that a change may be on.
    """
    days_since = f"(day_of_week({at}) + {7 - change.weekday}) % 7"
    return (
        f"(month({at}) == bool {change.month}) * (day_of_month({at}) - {days_since} >= bool {change.first})"
    )


def _plus(seconds: float) -> str:
    return "" if not seconds else f" {'+' if seconds > 0 else '-'} {number(abs(round(seconds, 3)))}"
