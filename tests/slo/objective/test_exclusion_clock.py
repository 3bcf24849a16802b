"""Test exclusions on the clock: `time()` in a real Prometheus against Python's."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
import requests

from support import history
from support.tools import newest, prometheuses
from triton_slo.artifact import Options
from triton_slo.objective.exclusion import active_exclusions
from triton_slo.objective.model import Objective
from triton_slo.plan import Plan

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
    """Return the moments by Python's own calendar."""
    end = start + days * 86_400
    spans = [
        span
        for exclusion in about.objective.exclusions
        for span in exclusion.spans(start - 86_400, end + STEP)
    ]
    times = [start + STEP * number for number in range(int((end - start) // STEP) + 1)]
    return {at for at in times if any(low <= at < high for low, high in spans)}


@pytest.mark.real
@pytest.mark.parametrize(
    ("days", "opens", "closes"),
    [
        (["sunday"], "01:30", "03:30"),
        (["monday", "friday"], "22:17", "02:00"),
        ("all", "23:59", "00:30"),
        (["wednesday", "sunday"], "00:00", "00:00"),
    ],
)
def test_the_clock_shows_to_prometheus_what_it_shows_here(
    prometheus: str, days: object, opens: str, closes: str
) -> None:
    """Over a week and a day, across the end of a year; 7 s beside the minute, where no bound is."""
    about = plan({"reason": "r", "days": days, "start": opens, "end": closes})
    start = datetime(2027, 12, 28, tzinfo=UTC).timestamp() - 7

    assert expected(about, start, 8) == excluded(prometheus, about, start, 8) != set()


@pytest.mark.real
def test_one_time_and_expressions(prometheus: str) -> None:
    """From one moment to another, and while PromQL has a result; a reason may be any text."""
    start = datetime(2026, 12, 24, 20, tzinfo=ZoneInfo("Europe/Berlin")).timestamp()
    once = plan(
        {"reason": 'move "$1" {{ x }}\n', "start": "2026-12-24T20:00+01:00", "end": "2026-12-24T22:00+01:00"}
    )
    shown = plan({"reason": "r", "promql": "hour() == 19"})

    for about in (once, shown):
        actual = excluded(prometheus, about, start - 7207, 0.3)
        hours = 2 if about is once else 1
        assert start - 7 + STEP == min(actual)
        assert hours * 3600 - 2 * STEP < max(actual) - start < hours * 3600
