"""Moments (Unix times) as text, one form for people and one for programs; and moments and time zones that people write."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from triton_exporter.common.duration import DAY

_YEAR_2200 = 7_258_118_400
_MACHINES = frozenset({"localtime", "posixrules", "Factory", "posix", "right", "SystemV"})
"""Names that a tz database may contain and that mean something else, or nothing, on the next machine."""


def utc_text(at: float) -> str:
    """Write a moment for people: 2026-10-01 00:00:00 UTC."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"


def hour_text(at: float, now: float) -> str:
    """Write a moment of the last hours, or an older one with its day: 14:03 UTC, 2026-10-01 14:03 UTC."""
    form = "%H:%M" if now - at < DAY / 2 else "%Y-%m-%d %H:%M"
    return f"{datetime.fromtimestamp(at, UTC):{form}} UTC"


def local_text(at: float, timezone: str = "UTC") -> str:
    """Write a moment on the clocks of a zone that the text around it names: 2026-10-01 00:00."""
    return f"{datetime.fromtimestamp(at, ZoneInfo(timezone)):%Y-%m-%d %H:%M}"


def rfc3339(at: float, unit: str = "seconds") -> str:
    """Write a moment for programs and for arguments of commands: 2026-10-01T00:00:00Z."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec=unit).replace("+00:00", "Z")


def parse_moment(text: str) -> float:
    """Return a moment as Unix seconds, or as 2026-05-01T09:30Z (UTC where no zone is given). Raises ValueError."""
    try:
        at = float(text)
    except ValueError:
        try:
            read = datetime.fromisoformat(text.strip())
        except ValueError:
            raise ValueError(f"{text!r} is not a time; write 2026-05-01T09:30Z or Unix seconds") from None
        at = (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
    if not 0 <= at < _YEAR_2200:
        raise ValueError(f"{text} is not in the years 1970 to 2199; Unix times are in seconds")
    return at


def parse_past_moment(text: str) -> float:
    """Return a moment in the same forms. Raises ValueError, also for one in the future."""
    at = parse_moment(text)
    if at > time.time():
        raise ValueError(f"{text} is in the future; write a time up to now")
    return at


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
