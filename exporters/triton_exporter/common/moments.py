"""Moments (Unix times) as text: one form for people, one for programs."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo


def utc_text(at: float) -> str:
    """Write a moment for people: 2026-10-01 00:00:00 UTC."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"


def local_text(at: float, timezone: str = "UTC") -> str:
    """Write a moment on the clocks of a zone that the text around it names: 2026-10-01 00:00."""
    return f"{datetime.fromtimestamp(at, ZoneInfo(timezone)):%Y-%m-%d %H:%M}"


def rfc3339(at: float, unit: str = "seconds") -> str:
    """Write a moment for programs and for arguments of commands: 2026-10-01T00:00:00Z."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec=unit).replace("+00:00", "Z")
