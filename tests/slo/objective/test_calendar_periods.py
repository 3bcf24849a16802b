"""Test calendar periods against zoneinfo."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal, get_args
from zoneinfo import ZoneInfo

from hypothesis import example, given
from hypothesis import strategies as st

from triton_slo.objective.model import CalendarWindow, period_at

Kind = Literal["week", "month", "quarter"]
KINDS: tuple[Kind, ...] = get_args(Kind)
ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/Havana",
    "America/Santiago",
    "America/Sao_Paulo",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "Africa/Cairo",
    "Asia/Beirut",
    "Asia/Kolkata",
    "Pacific/Kiritimati",
)


def in_zone(at: float, kind: str, zone: str) -> object:
    """Return what distinguishes a period from the others."""
    local = datetime.fromtimestamp(at, ZoneInfo(zone))
    if kind == "week":
        return local.isocalendar()[:2]
    return local.year, local.month if kind == "month" else (local.month - 1) // 3


instants = st.integers(
    int(datetime(2025, 4, 1, tzinfo=UTC).timestamp()), int(datetime(2040, 1, 1, tzinfo=UTC).timestamp())
)


def assert_period(start: float, end: float, at: float, kind: str, zone: str) -> None:
    assert in_zone(at, kind, zone) == in_zone(start, kind, zone) == in_zone(end - 1, kind, zone)
    assert in_zone(start - 1, kind, zone) != in_zone(at, kind, zone) != in_zone(end, kind, zone)
    assert start <= at < end <= start + 92 * 86_400 + 7200


@example(1_793_511_000, "America/Havana", "month")
@given(instants, st.sampled_from(ZONES), st.sampled_from(KINDS))
def test_a_period_is_every_second_of_its_local_time(at: int, zone: str, kind: Kind) -> None:
    """A period has its local week, month or quarter from the first second to the last, and no other's."""
    period = period_at(CalendarWindow(calendar=kind, timezone=zone), at)

    assert_period(period.start, period.end, at, kind, zone)
