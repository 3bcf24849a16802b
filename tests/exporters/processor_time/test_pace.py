"""Test how often Triton's counters are read: the cost of a reading decides."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from triton_exporter.processor_time import TRITON_PART, Pace


def spent(pace: Pace, reading_cpu_seconds: float, seconds: float) -> tuple[float, list[float]]:
    """Return the share of a core that reading takes, and the intervals."""
    at, cost, intervals = 0.0, 0.0, []
    while at < seconds:
        pace.note_reading(reading_cpu_seconds, at)
        cost += reading_cpu_seconds * (1 + TRITON_PART)
        intervals.append(pace.next_interval())
        at += intervals[-1]
    return cost / at, intervals


def test_a_cheap_page_is_read_twenty_times_a_second() -> None:
    """Never more often, however cheap it is."""
    assert {0.05} == set(spent(Pace(), 0.0002, 10)[1][20:])


@pytest.mark.parametrize("reading_cpu_seconds", [0.0005, 0.002, 0.01, 0.06])
@pytest.mark.parametrize("budget", [0.02, 0.005])
def test_reading_keeps_to_its_budget(reading_cpu_seconds: float, budget: float) -> None:
    """Steadily, in bursts that come by chance, and for a thousand models."""
    share, _ = spent(Pace(budget, draw=random.Random(1).random), reading_cpu_seconds, 3000)

    assert share <= 1.1 * budget


def test_where_a_steady_pace_costs_too_much_there_are_bursts() -> None:
    """A hundred models: some readings are close together, for two seconds, and most are far apart."""
    _, intervals = spent(Pace(draw=random.Random(1).random), 0.006, 600)
    bursts = [interval for interval in intervals if interval < 0.05]

    assert {0.025} == {round(burst, 3) for burst in bursts} or max(bursts) < 0.02
    assert 0.2 < sum(bursts) / 2.0 / 10 < 5
    assert sum(before < 0.05 and other < 0.05 for before, other in pairwise(intervals)) > 0.9 * len(bursts)


def test_a_thousand_models_are_read_steadily() -> None:
    """A burst would cost more than its samples are worth."""
    _, intervals = spent(Pace(), 0.06, 600)

    assert 0 == len({round(interval, 6) for interval in intervals[20:]} - {round(intervals[-1], 6)})
    assert 5 < intervals[-1] < 6


def test_a_fixed_interval_is_used() -> None:
    """The cost of a reading does not change it."""
    assert {0.5} == set(spent(Pace(fixed=0.5), 0.1, 20)[1])


def test_a_triton_that_does_not_answer_is_asked_once_a_second() -> None:
    """Asking faster would only count more failures."""
    pace = Pace()
    spent(pace, 0.0002, 5)
    pace.note_failure()

    assert 1.0 == pace.next_interval()


def test_an_idle_triton_is_read_once_a_second() -> None:
    """Once nothing has moved for ten seconds; with the first request it is read at the full pace again."""
    pace = Pace()

    def interval(now: float, *, moved: bool) -> float:
        pace.note_reading(0.0002, now, moved=moved)
        return pace.next_interval()

    assert [0.05, 0.05, 1.0, 0.05] == [
        interval(100.0, moved=True),
        interval(109.0, moved=False),
        interval(111.0, moved=False),
        interval(112.0, moved=True),
    ]


def test_readings_of_an_idle_triton_take_a_quarter_of_the_budget() -> None:
    """With a thousand models a reading costs so much that once a second would be more."""
    pace = Pace(budget=0.02)
    for now in (100.0, 111.0):
        pace.note_reading(0.01, now, moved=now == 100.0)

    assert pytest.approx(0.01 * (1 + TRITON_PART) / (0.02 / 4)) == pace.next_interval()
