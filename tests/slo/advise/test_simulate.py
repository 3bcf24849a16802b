"""Test the simulation of a model's queue against formulas, and batches worked out by hand."""

from __future__ import annotations

from math import factorial
from statistics import median

import pytest

from slo.advise.workload import plan
from triton_slo.advise import simulate as module
from triton_slo.advise.simulate import Service, Setting, simulate

MANY = 200_000


@pytest.mark.parametrize("load", [0.3, 0.7, 0.9])
def test_constant_times_wait_as_in_a_queue_of_one_server(load: float) -> None:
    """M/D/1 (Pollaczek-Khinchine): the mean wait is load * seconds / 2 / (1 - load)."""
    outcome = simulate(Setting(), Service(0.02), load / 0.02, requests=MANY)

    assert load * 0.02 / 2 / (1 - load) == pytest.approx(outcome.mean_wait, rel=0.05)


def test_varying_times_wait_longer() -> None:
    """M/G/1: a squared variation of 0.5 makes the wait half as long again."""
    outcome = simulate(Setting(), Service(0.02, cv2=0.5), 35, requests=MANY)

    assert 1.5 * 0.7 * 0.02 / 2 / 0.3 == pytest.approx(outcome.mean_wait, rel=0.05)


def erlang_wait(servers: int, seconds: float, rate: float) -> float:
    """Mean wait of M/M/c by Erlang's formula C."""
    offered = rate * seconds
    last = offered**servers / factorial(servers) * servers / (servers - offered)
    waits = last / (sum(offered**k / factorial(k) for k in range(servers)) + last)
    return waits * seconds / (servers - offered)


@pytest.mark.parametrize("instances", [2, 5])
def test_several_instances_wait_as_erlang_says(instances: int) -> None:
    """M/M/c with exponential times, at 80 % load."""
    rate = 0.8 * instances / 0.02
    outcome = simulate(Setting(instances), Service(0.02, cv2=1), rate, requests=MANY)

    assert erlang_wait(instances, 0.02, rate) == pytest.approx(outcome.mean_wait, rel=0.06)


def test_bursts_wait_for_those_of_their_own() -> None:
    """At almost no load, the requests of a burst of four wait 0, 1, 2 and 3 times the seconds of one."""
    outcome = simulate(Setting(), Service(0.02), 0.1, burst=4, requests=4_000)

    assert 1.5 * 0.02 == pytest.approx(outcome.mean_wait, rel=0.02)


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """Return what requests meet that come at given times, to an execution of `fixed` 10 s and `each` 1 s."""

    def played(setting: Setting, *times: float) -> module.Outcome:
        monkeypatch.setattr(module, "_arrivals", lambda *_: times)
        return simulate(setting, Service(10, 1), 1)

    return played


def test_a_free_instance_takes_what_waits_up_to_a_batch(at) -> None:  # type: ignore[no-untyped-def]
    """The first goes alone until 11; then four of the five that wait, until 25; then the last."""
    outcome = at(Setting(max_batch=4), 0, 1, 2, 3, 4, 5)

    assert [0, 10, 9, 8, 7, 20] == outcome.waits
    assert 3 == outcome.executions


def test_a_group_closes_when_the_delay_of_its_first_request_ends(at) -> None:  # type: ignore[no-untyped-def]
    """At 5 three go, until 18; of those that came at 6 and 17, the second one's delay has not ended then."""
    outcome = at(Setting(max_batch=4, delay=5), 0, 1, 4, 6, 17)

    assert [5, 4, 1, 12, 12] == outcome.waits


def test_what_comes_while_a_group_is_ready_goes_into_the_next(at) -> None:  # type: ignore[no-untyped-def]
    """The first goes at 4 until 15; the group of 6 and 7, ready at 10, goes alone until 27, though 10.5 is late too."""
    outcome = at(Setting(max_batch=8, delay=4), 0, 6, 7, 10.5, 14.9)

    assert [4, 9, 8, 16.5] == outcome.waits[:4]
    assert 3 == outcome.executions
    assert pytest.approx(12.1) == outcome.waits[4]


def test_a_full_batch_does_not_wait_for_the_delay(at) -> None:  # type: ignore[no-untyped-def]
    """Two fill a batch of two."""
    assert [1, 0] == at(Setting(max_batch=2, delay=50), 0, 1).waits


def test_a_full_queue_refuses(at) -> None:  # type: ignore[no-untyped-def]
    """Two wait while the first is executed; the fourth and fifth are refused; at 11 both that wait go."""
    outcome = at(Setting(max_batch=4, limit=2), 0, 1, 2, 3, 4, 12)

    assert [0, 10, 9, 11] == outcome.waits
    assert 2 == outcome.refused


def test_with_a_limit_an_instance_takes_also_those_whose_delay_has_not_ended(at) -> None:  # type: ignore[no-untyped-def]
    """The queue holds requests back until an instance is free: at 16, also the one that came at 15."""
    outcome = at(Setting(max_batch=4, delay=5, limit=9), 0, 6, 15)

    assert [5, 10, 1] == outcome.waits


@pytest.mark.parametrize(
    ("setting", "service", "rate", "measured"),
    [
        *(
            (Setting(max_batch=6, delay=0.02), Service(0.0207, 0.006), rate, wait)
            for rate, wait in ((35, 0.0208), (45, 0.0234), (55, 0.0270), (65, 0.0335))
        ),
        *(
            (Setting(max_batch=4, limit=12), Service(0.0106, 0.004), rate, wait)
            for rate, wait in ((80, 0.0087), (100, 0.0118))
        ),
        (Setting(max_batch=16, delay=0.003), Service(0.0158, 0.0015), 164, 0.0179),
    ],
)
def test_requests_wait_as_in_a_real_triton(
    monkeypatch: pytest.MonkeyPatch, setting: Setting, service: Service, rate: float, measured: float
) -> None:
    """The mean wait of the same 40 s of requests in Triton 2.51, by its statistics, with a model that sleeps."""
    monkeypatch.setattr(module, "_arrivals", lambda *_: [at * rate for at in plan(rate, 40, seed=3)])
    waits = [simulate(setting, service, rate, seed=seed).mean_wait for seed in range(5)]

    assert measured == pytest.approx(median(waits), rel=0.06)
