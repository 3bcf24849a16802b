"""Time that does not count: planned maintenance, once, every week, or while an expression is true.

Every week means in UTC, the only clock that PromQL knows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BeforeValidator, Field, model_validator

from triton_exporter.common.duration import DAY
from triton_slo import expression, names
from triton_slo.fields import Value
from triton_slo.promql import indent, number, quote

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


class Exclusion(Value):
    """Time that does not count: from one moment to another, on days of the week, or while PromQL has a result.

    With `days`, `start` and `end` are times of the day in UTC, and an end that is not after the start is on the next
    day.
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
    promql: str | None = None

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if self.promql is not None:
            if (self.start, self.end, self.days) != (None,) * 3:
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

    def _check_once(self) -> None:
        for text in (self.start, self.end):
            assert text is not None
            if "T" not in text:
                raise ValueError(
                    f"{text} is a time of the day: add days, or write a date, as 2026-12-24T{text}Z"
                )
            if _date(text).tzinfo is None:
                raise ValueError(f"{text} has no time zone: end it with Z, or with +01:00")
        if not self.span[0] < self.span[1]:
            raise ValueError("an exclusion ends after it starts")

    @property
    def span(self) -> Span:
        """Start and end of an exclusion from one moment to another. Raises ValueError on no such date."""
        assert self.start is not None
        assert self.end is not None
        return _date(self.start).timestamp(), _date(self.end).timestamp()

    @property
    def opens(self) -> int:
        """Second of the day at which a recurring exclusion begins."""
        assert self.start is not None
        return _second(self.start)

    @property
    def duration(self) -> int:
        """Length of a recurring exclusion in seconds; a whole day where it ends as it starts."""
        assert self.end is not None
        return (_second(self.end) - self.opens) % DAY or DAY

    def spans(self, start: float, end: float) -> Iterator[Span]:
        """Yield when it applies between two Unix times, in order; nothing for promql."""
        if self.promql is not None:
            return
        if self.days is None:
            yield from clipped([self.span], start, end)
            return
        # The first day is the one whose exclusion may still be active.
        days = range(math.floor((start - self.opens) / DAY), math.floor((end - self.opens) / DAY) + 1)
        lows = [day * DAY + self.opens for day in days if DAYS[(day + _EPOCH_WEEKDAY) % 7] in self.days]
        yield from clipped(merged([(low, low + self.duration) for low in lows]), start, end)


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


def merged(spans: list[Span]) -> list[Span]:
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
    # The clock minus the exclusion's start: in this time, the exclusion begins at midnight.
    clock = f"vector(time() - {exclusion.opens})" if exclusion.opens else "vector(time())"
    conditions = []
    if exclusion.duration < DAY:
        conditions.append(f"({clock} % {DAY} < {exclusion.duration})")
    days = set(exclusion.days or ())
    if len(days) < len(DAYS):
        # One bit a day, Sunday the lowest.
        mask = sum(1 << (number + 1) % 7 for number, day in enumerate(DAYS) if day in days)
        conditions.append(f"(floor({mask} / 2 ^ day_of_week({clock})) % 2 == 1)")
    return "(" + "\n  and ".join(conditions) + ")"
