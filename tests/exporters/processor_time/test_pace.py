"""Test how often Triton's counters are read: the cost of a reading decides."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from triton_exporter.processor_time import SAMPLING_PART, TRITON_PART, Pace


def spent(
    pace: Pace, reading_cpu_seconds: float, seconds: float, other_work_share: float = 0.0
) -> tuple[float, list[float]]:
    """Return the share of a core that reading takes, beside `other_work_share`, and the intervals."""
    at, cost, process_cpu_seconds, intervals = 0.0, 0.0, 0.0, []
    while at < seconds:
        process_cpu_seconds += reading_cpu_seconds
        pace.note_reading(reading_cpu_seconds, process_cpu_seconds + other_work_share * at, at)
        cost += reading_cpu_seconds * (1 + TRITON_PART)
        intervals.append(pace.next_interval())
        at += intervals[-1]
    return cost / at, intervals


def test_a_cheap_page_is_read_twenty_times_a_second() -> None:
    """Never more often, however cheap it is."""
    assert {0.05} == set(spent(Pace(), 0.0002, 10)[1][20:])


@pytest.mark.parametrize("reading_cpu_seconds", [0.0005, 0.002, 0.01, 0.06])
@pytest.mark.parametrize("budget", [0.02, 0.005])
def test_reading_keeps_to_its_part_of_the_budget(reading_cpu_seconds: float, budget: float) -> None:
    """Steadily, in bursts, and for a thousand models."""
    share, _ = spent(Pace(budget, draw=random.Random(1).random), reading_cpu_seconds, 3000)

    assert share <= 0.95 * budget


def test_what_the_rest_of_the_exporter_takes_is_left_to_it() -> None:
    """Requests for the state of models, and scrapes, take 0.3 % of a core: readings take what is left of 2 %."""
    share, _ = spent(Pace(), 0.002, 600, other_work_share=0.003)

    assert 0.0145 <= share <= 0.0155


def test_reading_keeps_most_of_the_budget() -> None:
    """Estimates that take 2 % of a core alone do not stop the readings that they are made from."""
    share, _ = spent(Pace(), 0.002, 600, other_work_share=0.02)

    assert share == pytest.approx(0.014, rel=0.05)


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
    assert 3 < intervals[-1] < 5


def test_a_fixed_interval_is_used() -> None:
    """The cost of a reading does not change it."""
    assert {0.5} == set(spent(Pace(fixed=0.5), 0.1, 20)[1])


def test_a_triton_that_does_not_answer_is_asked_once_a_second() -> None:
    """Asking faster would only count more failures."""
    pace = Pace()
    spent(pace, 0.0002, 5)
    pace.note_failure()

    assert 1.0 == pace.next_interval()


def test_an_idle_triton_is_read_twice_a_second() -> None:
    """Once nothing has moved for ten seconds; with the first request it is read at the full pace again."""
    pace = Pace()

    def interval(now: float, *, moved: bool) -> float:
        pace.note_reading(0.0002, 0.0, now, moved=moved)
        return pace.next_interval()

    assert [0.05, 0.05, 0.5, 0.05] == [
        interval(100.0, moved=True),
        interval(109.0, moved=False),
        interval(111.0, moved=False),
        interval(111.5, moved=True),
    ]


def test_readings_of_an_idle_triton_take_a_quarter_of_the_budget() -> None:
    """With a thousand models a reading costs so much that twice a second would be more."""
    pace = Pace(budget=0.02)
    for now in (100.0, 111.0):
        pace.note_reading(0.01, 0.0, now, moved=now == 100.0)

    assert pytest.approx(0.01 * (1 + TRITON_PART) / (SAMPLING_PART * 0.02 / 4)) == pace.next_interval()
