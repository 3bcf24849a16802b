"""Durations as people write them (`100ms`, `1h30m`, `30d`) and as Prometheus reads them."""

from __future__ import annotations

import re
from collections.abc import Callable

DAY = 86_400
"""Seconds."""
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
# Digits by name: `\d` is every script's, and Prometheus reads none but these.
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d|w)")
_WHOLE = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h|d|w))+")
_MAX_MS = 36_500 * _UNITS_MS["d"]


def parse_seconds(text: str) -> float:
    """Read `100ms`, `0.5s`, `1h30m`, `30d`; in seconds. Raises ValueError on anything else, zero and centuries."""
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is not a duration such as 100ms, 5m, 1h or 30d")
    milliseconds = sum(float(number) * _UNITS_MS[unit] for number, unit in _PART.findall(text))
    seconds = round(milliseconds / 1000, 9)  # as the exporter rounds the bounds of its buckets
    if seconds <= 0:
        raise ValueError("a duration must be longer than zero")
    if milliseconds > _MAX_MS:
        raise ValueError("a duration of more than a hundred years (36500d) is a slip")
    return seconds


def duration_between(least: float, most: float) -> Callable[[str], float]:
    """Return a reader of durations within limits: `500ms`, `30s`, or a bare number of seconds (ValueError)."""

    def read(text: str) -> float:
        try:
            seconds = float(text)
        except ValueError:
            seconds = parse_seconds(text)
        if not least <= seconds <= most:
            low = duration_text(least) if least else "0"
            raise ValueError(f"{text} is not from {low} to {duration_text(most)}")
        return seconds

    return read


def in_words(seconds: float) -> str:
    """Return a length of time in its two largest units: `2d 4h`, `1h`, `3m 20s`, `45s`."""
    seconds = max(0, round(seconds))
    for unit, length, smaller, part in (("d", DAY, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if seconds >= length:
            rest = seconds % length // part
            return f"{seconds // length}{unit}" + (f" {rest}{smaller}" if rest else "")
    return f"{seconds}s"


def time_text(seconds: float, digits: int = 9) -> str:
    """Write a time that requests take, as objectives do, to so many digits: `0.25ms`, `500ms`, `2.5s`, `2m`."""
    rounded = float(f"{seconds:.{digits}g}")
    if rounded.is_integer() and rounded:
        return duration_text(rounded)
    return f"{rounded:.9g}s" if rounded > 1 else f"{1000 * rounded:.9g}ms"


def measured_text(seconds: float | None) -> str:
    """Write a measured time: `0.35ms`, `12.5ms`, `1.2s`; a dash without one."""
    return "-" if seconds is None else time_text(seconds, 3)


def duration_text(seconds: float) -> str:
    """Write a duration in the largest unit that divides it, as PromQL reads it (never less than 1ms)."""
    milliseconds = max(1, round(seconds * 1000))
    for unit in ("d", "h", "m", "s"):
        if milliseconds % _UNITS_MS[unit] == 0:
            return f"{milliseconds // _UNITS_MS[unit]}{unit}"
    return f"{milliseconds}ms"
