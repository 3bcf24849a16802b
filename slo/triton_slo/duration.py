"""Durations as people write them (`100ms`, `1h30m`, `30d`) and as Prometheus reads them."""

from __future__ import annotations

import re

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_WHOLE = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d|w))+")


def parse_seconds(text: str) -> float:
    """Read `100ms`, `0.5s`, `1h30m`, `30d`; in seconds. Raises ValueError on anything else, and on zero."""
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration such as 100ms, 5m, 1h or 30d")
    milliseconds = sum(float(number) * _UNITS_MS[unit] for number, unit in _PART.findall(text))
    if milliseconds <= 0:
        raise ValueError("a duration must be longer than zero")
    return milliseconds / 1000


def render(seconds: float) -> str:
    """Write a duration in the largest unit that holds it whole, as PromQL reads it (never less than 1ms)."""
    milliseconds = max(1, round(seconds * 1000))
    for unit in ("d", "h", "m", "s"):
        if milliseconds % _UNITS_MS[unit] == 0:
            return f"{milliseconds // _UNITS_MS[unit]}{unit}"
    return f"{milliseconds}ms"
