"""Test exclusions on the clock: `time()` in a real Prometheus against zoneinfo."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import pytest
import requests
from hypothesis import example, given
from hypothesis import strategies as st

from support import history
from support.tools import newest, prometheuses
from triton_slo.artifact import Options
from triton_slo.objective.exclusion import DAYS, active_exclusions, clock_rule
from triton_slo.objective.model import Objective
from triton_slo.plan import Plan

IRREGULAR = {"Africa/Casablanca", "Africa/El_Aaiun", "Asia/Gaza", "Asia/Hebron"}
"""Zones whose law follows the moon, or is made anew each year."""
REGULAR = sorted(available_timezones() - IRREGULAR - {"localtime", "Factory"})
CHANGING = (
    "Europe/Berlin",
    "Europe/Dublin",
    "America/New_York",
    "America/Santiago",
    "America/Godthab",
    "Asia/Jerusalem",
    "Australia/Sydney",
    "Australia/Lord_Howe",
    "Africa/Cairo",
    "Atlantic/Azores",
)
"""Zones whose clocks change, in many ways."""
STEP = 600


@pytest.fixture(scope="module", params=newest(prometheuses()), ids=str)
def prometheus(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One without any data: the clock is all that is asked."""
    with history.serve("", tmp_path_factory.mktemp("prometheus"), server=request.param) as url:
        yield url


def plan(*exclusions: dict[str, object], indicator: str = "errors") -> Plan:
    """Return an objective that leaves these out."""
    return Plan(
        Objective.model_validate(
            {"name": "o", "target": "99%", "indicator": indicator, "exclusions": list(exclusions)}
        ),
        Options(),
    )


def excluded(prometheus: str, about: Plan, start: float, days: float) -> set[float]:
    """Return times at which the recorded series would be there."""
    asked = {
        "query": active_exclusions(about.objective.exclusions),
        "start": start,
        "end": start + days * 86_400,
        "step": STEP,
    }
    answer = requests.post(f"{prometheus}/api/v1/query_range", data=asked, timeout=30).json()
    assert "success" == answer["status"], answer
    return {float(at) for series in answer["data"]["result"] for at, _ in series["values"]}


def expected(about: Plan, start: float, days: float) -> set[float]:
    """Return the moments by zoneinfo."""
    end = start + days * 86_400
    spans = [
        span
        for exclusion in about.objective.exclusions
        for span in exclusion.spans(start - 86_400, end + STEP)
    ]
    times = [start + STEP * number for number in range(int((end - start) // STEP) + 1)]
    return {at for at in times if any(low <= at < high for low, high in spans)}


zones = st.one_of(st.sampled_from(CHANGING), st.sampled_from(REGULAR))
clock = st.builds("{:02}:{:02}".format, st.integers(0, 23), st.sampled_from((0, 1, 17, 30, 59)))


@st.composite
def cases(draw: st.DrawFn) -> tuple[dict[str, object], float]:
    """Draw a recurring exclusion, and a start shortly before the clocks of its zone change, or anywhere."""
    zone = draw(zones)
    days = draw(st.lists(st.sampled_from(DAYS), min_size=1, max_size=6, unique=True))
    times = {"start": draw(clock), "end": draw(clock), "timezone": zone}
    exclusion: dict[str, object] = {"reason": "r", "days": days, **times}
    year, rule = draw(st.integers(2024, 2060)), clock_rule(zone)
    change = draw(st.sampled_from((rule.begins, rule.ends)))
    if change is None or draw(st.integers(0, 3)) == 0:
        day = datetime(year, 1, 1, tzinfo=UTC) + timedelta(days=draw(st.sampled_from((0, 59, 364, 200))))
    else:
        day = datetime(year, change.month, change.first, tzinfo=UTC)
    # 7 s beside the minute: whether a bound is in or out is of no use to anybody.
    return exclusion, day.timestamp() - 86_400 - 7


@pytest.mark.real
@example(case=({"reason": "r", "days": ["sunday"], "start": "01:30", "end": "03:30", "timezone": "Europe/Berlin"},
               datetime(2026, 3, 27, tzinfo=UTC).timestamp() - 7))  # fmt: skip
@example(case=({"reason": "r", "days": ["sunday"], "start": "02:00", "end": "03:00", "timezone": "Europe/Berlin"},
               datetime(2026, 10, 23, tzinfo=UTC).timestamp() - 7))  # fmt: skip
@example(case=({"reason": "r", "days": "all", "start": "23:30", "end": "00:30", "timezone": "America/New_York"},
               datetime(2027, 12, 29, tzinfo=UTC).timestamp() - 7))  # fmt: skip
@given(case=cases())
def test_clocks_show_to_prometheus_what_they_show_to_zoneinfo(
    prometheus: str, case: tuple[dict[str, object], float]
) -> None:
    """Days around every kind of change, in any zone, at any time of the day."""
    exclusion, start = case
    about = plan(exclusion)

    assert expected(about, start, 5) == excluded(prometheus, about, start, 5)


@pytest.mark.real
def test_an_hour_that_clocks_skip_or_show_twice_is_excluded_as_often(prometheus: str) -> None:
    """02:00 to 03:00 in Berlin: not at all in March, two hours in October, one on any other Sunday."""
    about = plan(
        {"reason": "r", "days": ["sunday"], "start": "02:00", "end": "03:00", "timezone": "Europe/Berlin"}
    )
    berlin = ZoneInfo("Europe/Berlin")
    beside = [
        len(excluded(prometheus, about, datetime(2026, *day, tzinfo=berlin).timestamp(), 1))
        for day in ((3, 29), (6, 28), (10, 25))
    ]

    assert [0, 3600 // STEP, 7200 // STEP] == beside


@pytest.mark.real
def test_one_time_and_expressions(prometheus: str) -> None:
    """From one moment to another in a zone's own time, and while PromQL has a result; a reason may be any text."""
    start = datetime(2026, 12, 24, 20, tzinfo=ZoneInfo("Europe/Berlin")).timestamp()
    once = plan({"reason": 'move "$1" {{ x }}\n', "start": "2026-12-24T20:00", "end": "2026-12-24T22:00",
                 "timezone": "Europe/Berlin"})  # fmt: skip
    shown = plan({"reason": "r", "promql": "hour() == 19"})

    for about in (once, shown):
        actual = excluded(prometheus, about, start - 7207, 0.3)
        hours = 2 if about is once else 1
        assert start - 7 + STEP == min(actual)
        assert hours * 3600 - 2 * STEP < max(actual) - start < hours * 3600


def test_irregular_clocks_are_refused() -> None:
    """PromQL knows no moon: such a time must be given in UTC."""
    for zone in sorted(IRREGULAR):
        with pytest.raises(ValueError, match="change by no fixed rule; write the times in UTC"):
            clock_rule(zone)
