"""Test how often Triton's counters are read: the cost of a reading decides."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from triton_exporter.processor_time import TRITON_PART, Pace


def spent(
    pace: Pace, reading_cpu_seconds: float, seconds: float, observing: float = 1.0
) -> tuple[float, list[float]]:
    """Return the share of a core that reading takes, and the intervals.

    A reading that all observers get, once a second at most, costs `observing` times as much.
    """
    at, cost, intervals, observed_at = 0.0, 0.0, list[float](), -1.0
    while at < seconds:
        reading = reading_cpu_seconds
        if at - observed_at >= 1:
            observed_at, reading = at, observing * reading_cpu_seconds
        pace.note_reading(reading, at)
        cost += reading * (1 + TRITON_PART)
        intervals.append(pace.next_interval())
        at += intervals[-1]
    return cost / at, intervals


def test_a_cheap_page_is_read_twenty_times_a_second() -> None:
    """Never more often, however cheap it is."""
    assert {0.05} == set(spent(Pace(), 0.0002, 10)[1][20:])


@pytest.mark.parametrize("reading_cpu_seconds", [0.0005, 0.002, 0.01, 0.06])
@pytest.mark.parametrize("budget", [0.02, 0.005])
@pytest.mark.parametrize("observing", [1, 3])
def test_reading_keeps_to_its_budget(reading_cpu_seconds: float, budget: float, observing: float) -> None:
    """Steadily, in bursts that come by chance, and for a thousand models."""
    pace = Pace(budget, draw=random.Random(1).random)

    assert spent(pace, reading_cpu_seconds, 3000, observing)[0] <= 1.1 * budget


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
    assert 4 < intervals[-1] < 5


def test_the_first_reading_does_not_set_the_pace() -> None:
    """With a thousand models it takes ten times as long as those that follow: in it every series is new."""
    pace = Pace(draw=lambda: 0.0)  # bursts as often as there can be any
    intervals = []
    for at, cost in enumerate((0.6, 0.06, 0.06)):
        pace.note_reading(cost, float(at))
        intervals.append(pace.next_interval())

    assert [1.0, 4.35, 4.35] == pytest.approx(intervals)


def test_a_fixed_interval_is_used() -> None:
    """The cost of a reading does not change it."""
    assert {0.5} == set(spent(Pace(fixed=0.5), 0.1, 20)[1])


def test_a_triton_that_does_not_answer_is_asked_once_a_second() -> None:
    """Asking faster would only count more failures."""
    pace = Pace()
    spent(pace, 0.0002, 5)
    pace.note_failure()

    assert 1.0 == pace.next_interval()


def test_an_idle_triton_is_read_once_a_second_and_so_is_one_that_tells_all() -> None:
    """Once nothing has moved for a minute; with the first request it is read at the full pace again."""
    pace = Pace()

    def interval(now: float, *, moved: bool, is_told: bool = False) -> float:
        pace.note_reading(0.0002, now, moved, is_told)
        return pace.next_interval()

    assert [0.05, 0.05, 1.0, 0.05, 1.0] == [
        interval(100.0, moved=True),
        interval(159.0, moved=False),
        interval(161.0, moved=False),
        interval(162.0, moved=True),
        interval(163.0, moved=True, is_told=True),
    ]


def test_readings_of_an_idle_triton_take_a_tenth_of_the_budget() -> None:
    """With a thousand models a reading costs so much that once a second would be more."""
    pace = Pace(budget=0.02)
    for now in (100.0, 161.0):
        pace.note_reading(0.01, now, moved=now == 100.0)

    assert pytest.approx(0.01 * (1 + TRITON_PART) / (0.02 / 10)) == pace.next_interval()


def test_a_burst_ends_where_triton_rests() -> None:
    """A burst that had begun teaches nothing about cost; that of readings at rest decides how often there are any."""
    pace = Pace(budget=0.02, draw=lambda: 0.0)
    for now in range(200):
        pace.note_reading(0.006 if now < 100 else 0.01, float(now), moved=now < 2)
        pace.next_interval()

    assert pytest.approx(0.01 * (1 + TRITON_PART) / (0.02 / 10)) == pace.interval
