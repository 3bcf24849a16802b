"""OpenSLO's time windows: rolling ones of a number of days, calendar weeks, months and quarters."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from triton_slo import problem_words
from triton_slo.convert.entry import Entry, EntryError
from triton_slo.convert.ledger import Ledger
from triton_slo.objective.model import CalendarWindow

_DAYS = {"m": 1 / 1440, "h": 1 / 24, "d": 1.0, "w": 7.0, "M": 30.0, "Q": 90.0, "Y": 365.0}
_CALENDARS = {"1w": "week", "7d": "week", "1M": "month", "1Q": "quarter", "3M": "quarter"}
_MIN_DAYS, _MAX_DAYS = 7, 90


def days(entry: Entry) -> float:
    """Return a duration shorthand in days; months have 30, quarters 90. Raises EntryError."""
    match = re.fullmatch(r"([1-9]\d{0,6})([mhdwMQY])", entry.text())
    if match is None:
        raise EntryError(entry, f"{entry.text()!r} is not a duration such as 5m, 1h, 30d, 4w, 1M or 1Q")
    return int(match[1]) * _DAYS[match[2]]


def window(spec: Entry, default: str, ledger: Ledger) -> Any:
    """Return the window as an objective writes it: the nearest one that an objective can have."""
    listed = spec.get("timeWindow")
    entries = listed.items() if listed is not None else []
    if not entries:
        ledger.noted(spec, f"no timeWindow is given; {default} is taken (--window)")
        return default
    if len(entries) > 1:
        raise EntryError(entries[1], "timeWindow has exactly one window")
    only = entries[0]
    duration, calendar, rolling = only.need("duration"), only.get("calendar"), only.get("isRolling")
    is_rolling = rolling.flag() if rolling is not None else calendar is None
    if is_rolling and calendar is not None:
        raise EntryError(calendar, "a rolling window has no calendar")
    if calendar is None:
        if not is_rolling:
            raise EntryError(only, "a window that does not roll needs a calendar")
        return _rolling(duration, ledger)
    return _calendar(duration, calendar, ledger)


def _rolling(duration: Entry, ledger: Ledger, doubt: str = "") -> str:
    wanted = days(duration)
    taken = min(_MAX_DAYS, max(_MIN_DAYS, round(wanted)))
    if taken != wanted:
        doubt = f"a window has {_MIN_DAYS} to {_MAX_DAYS} whole days"
    if doubt:
        ledger.lost(duration, doubt, f"{taken}d, rolling")
    elif duration.text()[-1] in "MQY":
        ledger.noted(duration, f"months differ in length: a rolling {duration.text()} is {taken}d")
    return f"{taken}d"


def _calendar(duration: Entry, calendar: Entry, ledger: Ledger) -> Any:
    zone, start = calendar.need("timeZone").text(), calendar.need("startTime")
    written = duration.text()
    if written == "1m":  # of minutes there is no calendar; OpenSLO's own example means a month
        ledger.noted(duration, "1m, which is a minute, is read as the month 1M")
        written = "1M"
    kind = _CALENDARS.get(written)
    if kind is None:
        return _rolling(duration, ledger, f"there is no calendar window of {duration.text()}")
    try:
        begins = datetime.fromisoformat(start.text())
    except ValueError:
        raise EntryError(start, f"{start.text()!r} is not a time such as 2026-01-01 00:00:00") from None
    form = {"calendar": kind, "timezone": zone}
    try:
        CalendarWindow.model_validate(form)
    except ValidationError as error:
        raise EntryError(calendar, problem_words.reason(error.errors()[0])) from None
    if not _on_edge(kind, begins):
        ledger.lost(start, f"a calendar {kind} starts at its own first midnight", "that start is taken")
    return form


def _on_edge(kind: str, begins: datetime) -> bool:
    if (begins.hour, begins.minute, begins.second) != (0, 0, 0):
        return False
    if kind == "week":
        return begins.weekday() == 0
    return begins.day == 1 and (kind == "month" or begins.month % 3 == 1)
