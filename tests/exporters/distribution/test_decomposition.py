"""Test the distribution recovered from counts and sums, against simulated requests that are known."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from functools import cache
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters.random_traffic import ARRIVALS, Kind, arriving, random_traffic
from support.simulated_traffic import (
    TRAFFIC,
    Requests,
    batched,
    exponential,
    independent,
    lognormal,
    mixture,
    poisson,
    polled,
    queued,
)
from support.thorough import THOROUGH, examples
from triton_exporter.distribution.buckets import DEFAULT_BOUNDS
from triton_exporter.distribution.estimate.decomposition import Decomposition
from triton_exporter.distribution.estimate.density import Density, Sums, estimate
from triton_exporter.distribution.estimate.likeness import in_slow_runs, slow_levels
from triton_exporter.distribution.histogram import Interval, RecentQuantiles, fine_bounds

SECONDS = 60.0
INTERVAL = 0.05
WORST, WORST_WAITS, MEDIAN = 4.0, 2.0, 1.0
"""Percentage points that the share within a threshold may be off."""

SOME = (
    "uniform",
    "tail_100_5",
    "lognormal_100",
    "mm4",
    "slow_tail_one_server",
    "bursts",
    "batches",
    "closed",
    "step",
)
NAMES = list(TRAFFIC if THOROUGH else SOME)


def test_an_impossible_count_is_not_estimated() -> None:
    """A faulty counter that jumps by 1e308 overflows no sum: each warning is an error here."""
    decomposition = Decomposition()
    for number in range(400):
        jump = 1e308 if number == 200 else 10.0
        decomposition.add(Interval(number * INTERVAL, jump, jump * 0.02, jump, INTERVAL))
    decomposition.fit()
    decomposition.update_errors(DEFAULT_BOUNDS)

    assert np.all(np.isfinite(decomposition.shares(400, DEFAULT_BOUNDS)))


def observed(
    requests: Requests,
    bounds: tuple[float, ...],
    interval: float = INTERVAL,
    decomposition: Decomposition | None = None,
) -> np.ndarray:
    """Return the share within each bound that a decomposition shows which settles every second and fits every five.

    One that is passed also states the errors of these shares.
    """
    polls = polled(requests, interval)
    judged = decomposition is not None
    decomposition = decomposition or Decomposition()
    within, pending, settle, fit = np.zeros(len(bounds)), 0, 2.0, 1.0
    for number, end in enumerate(polls.ends):
        decomposition.add(
            Interval(
                end,
                polls.requests[number],
                polls.sums[number],
                polls.executions[number],
                interval,
                waited=polls.waits[number],
                worked=polls.work[number],
            )
        )
        pending += 1
        if end >= fit:
            decomposition.fit()
            if judged:
                decomposition.update_errors(bounds)
            fit = end + (5.0 if end > 20 else 1.0)
        if end >= settle or number == len(polls.ends) - 1:
            counts = polls.requests[number + 1 - pending : number + 1]
            within += counts @ decomposition.shares(pending, bounds)
            pending, settle = 0, end + 1.0
    return within / polls.requests.sum()


def errors(requests: Requests, bounds: tuple[float, ...], interval: float = INTERVAL) -> np.ndarray:
    """In percentage points."""
    truth = np.array([(requests.took <= bound).mean() for bound in bounds])
    return 100 * (observed(requests, bounds, interval) - truth)


@cache
def decomposed(name: str) -> tuple[Requests, np.ndarray]:
    """Return the requests, and the share within each of the bounds from which quantiles are read."""
    traffic = TRAFFIC[name]
    requests = traffic.make(np.random.default_rng(zlib.crc32(name.encode())), SECONDS).until(SECONDS)
    return requests, observed(requests, fine_bounds(traffic.thresholds)[0])


def off_by(name: str) -> tuple[float, ...]:
    requests, shares = decomposed(name)
    thresholds = TRAFFIC[name].thresholds
    truth = [(requests.took <= threshold).mean() for threshold in thresholds]
    return tuple(100 * (shares[list(fine_bounds(thresholds)[1])] - truth))


@pytest.mark.parametrize("name", NAMES)
def test_share_within_a_threshold_is_nearly_true(name: str) -> None:
    """Independent, queued, batched and changing traffic: the share is within a few points of the truth."""
    print(f"{name:22} {TRAFFIC[name].text:60}", *(f"{error:+5.1f}" for error in off_by(name)))

    assert max(map(abs, off_by(name))) <= WORST


@pytest.mark.parametrize(
    "name", ["mm4", pytest.param("slow_tail_one_server", marks=pytest.mark.thorough), "bursts"]
)
def test_share_that_waited_no_longer_is_nearly_true(name: str) -> None:
    """The requests of an interval share a queue, and wait for the work before them."""
    traffic = TRAFFIC[name]
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    requests = traffic.make(rng, SECONDS).until(SECONDS).only_waits()
    deviations = errors(requests, traffic.thresholds)
    print(f"{name:22}", *(f"{error:+5.1f}" for error in deviations))

    assert np.abs(deviations).max() <= (WORST if name == "bursts" else WORST_WAITS)


def test_most_shares_are_true_to_a_point() -> None:
    """Half of all shares are much better than the worst."""
    assert np.median([abs(error) for name in NAMES for error in off_by(name)]) <= MEDIAN


@pytest.mark.parametrize("name", NAMES)
def test_p99_is_nearly_true(name: str) -> None:
    """Within 15 % of the p99, or of what a request more or less in 200 makes of it where few take such times."""
    requests, shares = decomposed(name)
    quantiles = RecentQuantiles(fine_bounds(TRAFFIC[name].thresholds)[0])
    quantiles.add(0, len(requests.took), shares)
    low, true, high = np.quantile(requests.took, [0.985, 0.99, 0.995])
    for p99 in [seconds for level, seconds in quantiles.values() if level == 0.99]:
        print(f"{name:22} p99 {1000 * true:.0f} ms, estimated {1000 * p99:.0f} ms, {p99 / true - 1:+.0%}")

        assert 0.85 * low <= p99 <= 1.15 * high


@pytest.mark.parametrize("seed", range(3 if THOROUGH else 1))
def test_a_change_of_traffic_is_not_taken_for_dependent_intervals(seed: int) -> None:
    """20/s, 1 % and in the second half 20 % slow, a reading every 0.15 s: independent requests before and after."""
    rng = np.random.default_rng(seed)
    arrivals = poisson(rng, 20, 100)
    before, after = mixture(rng, 0.01)(len(arrivals)), mixture(rng, 0.2)(len(arrivals))
    requests = independent(arrivals, np.where(arrivals < 50, before, after)).until(100)
    deviations = errors(requests, (0.05, 0.2), 0.15)
    print(np.round(deviations, 1))

    assert np.abs(deviations).max() <= 3.5


@examples(4, thorough=8)
@given(
    seed=st.integers(0, 2**32 - 1),
    rate=st.floats(5, 300),
    service=st.sampled_from(["exponential", "lognormal", "mixture"]),
    mean=st.floats(0.003, 0.3),
    servers=st.sampled_from([0, 1, 4]),
)
def test_shares_of_random_traffic_are_right_to_twelve_points(
    seed: int, rate: float, service: str, mean: float, servers: int
) -> None:
    """For any traffic and service up to 85 % load, no bucket is off by more than 12 points."""
    rng = np.random.default_rng(seed)
    draw = {
        "exponential": exponential(rng, mean),
        "lognormal": lognormal(rng, mean, 0.7),
        "mixture": mixture(rng, 0.05, mean / 2, mean * 10),
    }[service]
    if servers:
        rate = min(rate, 0.85 * servers / float(draw(10_000).mean()))
    arrivals = poisson(rng, rate, 40)
    took = draw(len(arrivals))
    requests = (queued(arrivals, took, servers) if servers else independent(arrivals, took)).until(40)
    if len(requests.took) < 200:
        return
    bounds = tuple(
        bound for bound in DEFAULT_BOUNDS if np.quantile(requests.took, 0.05) < bound < requests.took.max()
    )

    assert 12.0 >= np.abs(errors(requests, bounds)).max(initial=0)


@cache
def random_waits() -> list[tuple[float, float]]:
    """Return the errors of shares of waits, and the stated ones, for any traffic; in points."""
    pairs: list[tuple[float, float]] = []
    for seed in range(80 if THOROUGH else 1):
        rng = np.random.default_rng(seed)
        how, servers = rng.choice(ARRIVALS), int(rng.choice([1, 2, 4]))
        mean, load = float(np.exp(rng.uniform(np.log(0.004), np.log(0.1)))), rng.uniform(0.2, 0.9)
        service = rng.choice(["exponential", "lognormal", "mixture", "same"])
        draw = {
            "exponential": exponential(rng, mean),
            "lognormal": lognormal(rng, mean, 0.7),
            "mixture": mixture(rng, 0.05, mean / 2, mean * 10),
            "same": lambda count, mean=mean: np.full(count, mean),
        }[service]
        interval = float(rng.choice([0.05, 0.09, 0.15]))
        arrivals = arriving(rng, how, min(300, load * servers / float(draw(10_000).mean())), 60)
        requests = queued(arrivals, draw(len(arrivals)), servers).until(60).only_waits()
        waited = requests.took[requests.took > 0.001]
        if len(requests.took) < 200 or len(waited) < 20:
            continue
        bounds = tuple(np.quantile(waited, [0.3, 0.6, 0.85]))
        decomposition = Decomposition()
        shown = observed(requests, bounds, interval, decomposition)
        off = [
            100 * (share - (requests.took <= bound).mean())
            for share, bound in zip(shown, bounds, strict=True)
        ]
        stated = [100 * error for error in decomposition.errors]
        print(f"{how} {service} {1000 * mean:.0f} ms, {servers} at {load:.2f}, {interval} s", end=" ")
        print(np.round(off, 1), np.round(stated, 1))
        pairs += zip(off, stated, strict=True)
    return pairs


@pytest.mark.timeout(1800)
def test_shares_of_random_waits_are_right_to_a_few_points() -> None:
    """Thresholds among the waits of random queues: half are right to a point, 95 of 100 to three."""
    off = np.abs([error for error, _ in random_waits()])

    assert np.median(off) <= 1
    assert np.quantile(off, 0.95) <= 3


def covered(kind: Kind, seeds: Iterable[int]) -> list[tuple[float, float]]:
    """Return the errors of shares at seven quantiles of random traffic, and the stated ones; in points."""
    pairs: list[tuple[float, float]] = []
    for seed in seeds:
        traffic = random_traffic(kind, seed, 60)
        took = traffic.requests.took
        if len(took) < 200 or np.count_nonzero(took > 0.001) < 50:
            continue
        bounds = tuple(np.unique(np.quantile(took[took > 0.001], [0.1, 0.3, 0.5, 0.7, 0.85, 0.95, 0.99])))
        decomposition = Decomposition()
        shown = observed(traffic.requests, bounds, traffic.interval, decomposition)
        off = [100 * (share - (took <= bound).mean()) for share, bound in zip(shown, bounds, strict=True)]
        stated = [100 * error for error in decomposition.errors]
        print(traffic.text, np.round(off, 1), np.round(stated, 1))
        pairs += zip(off, stated, strict=True)
    return pairs


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[] if kind in ("waits", "batches") else pytest.mark.thorough)
        for kind in get_args(Kind)
    ],
)
def test_the_stated_error_covers_random_traffic(kind: Kind) -> None:
    """However requests arrive and are served; the traffic of a thorough run decided nothing about the estimator."""
    rows = covered(kind, range(2000, 2060) if THOROUGH else range(2))
    off, stated = np.abs(np.array(rows).T)
    print(
        f"{kind}: {len(rows)} shares, covered {np.mean(off <= stated):.1%}, off {np.median(off):.1f} (median), "
        f"stated {np.mean(stated):.1f}, {np.median(stated[off < 1]):.1f} where off by less than 1 (median)"
    )

    assert np.mean(off <= stated) >= (0.9 if THOROUGH else 0.8)


def test_the_stated_error_is_large_inside_a_narrow_group_only() -> None:
    """Ten requests of nearly 50 ms in each interval, and one in twenty of 500: sums do not separate 49 from 51."""
    rng = np.random.default_rng(3)
    arrivals = poisson(rng, 200, 40)
    requests = independent(arrivals, mixture(rng, 0.05, 0.05, 0.5)(len(arrivals))).until(40)
    decomposition = Decomposition()
    observed(requests, (0.05, 0.2), INTERVAL, decomposition)
    inside, beside = decomposition.errors

    assert inside > 0.08
    assert beside < 0.025


def test_the_stated_error_covers_what_a_later_estimate_corrects() -> None:
    """Traffic that changes before the next estimate is entered with the last estimate."""
    rng = np.random.default_rng(3)
    arrivals = poisson(rng, 60, 60)
    took = np.where(arrivals < 30, mixture(rng, 0.02)(len(arrivals)), mixture(rng, 0.6)(len(arrivals)))
    polls = polled(independent(arrivals, took).until(60), INTERVAL)
    decomposition, shown = Decomposition(), 0.0
    for number, end in enumerate(polls.ends):
        decomposition.add(
            Interval(end, polls.requests[number], polls.sums[number], polls.requests[number], INTERVAL)
        )
        shown += polls.requests[number] * decomposition.shares(1, (0.05,))[0, 0]
        if number == len(polls.ends) - 1 or (end < 29 and number % 50 == 49):
            decomposition.fit()
            decomposition.update_errors((0.05,))
    off = shown / polls.requests.sum() - (took <= 0.05).mean()

    assert abs(off) > 0.02
    assert abs(off) <= decomposition.errors[0]


def test_single_requests_leave_no_error() -> None:
    """Each interval is one request, so nothing is estimated."""
    decomposition = Decomposition()
    for number in range(100):
        decomposition.add(Interval(number * INTERVAL, 1, 0.04 + 0.0002 * number, 1, INTERVAL))
    decomposition.fit()
    decomposition.update_errors((0.05,))

    assert decomposition.errors[0] <= 0.0005


def test_the_stated_error_is_not_negative_where_nothing_waits() -> None:
    """Intervals of several requests whose waits are too short for Triton's microseconds."""
    decomposition = Decomposition()
    for number in range(400):
        waited = 0.2 if number % 20 == 0 else 0.0
        decomposition.add(Interval(number * INTERVAL, 4, waited, 4, INTERVAL, worked=0.02))
    decomposition.fit()
    decomposition.update_errors((0.01, 0.1))

    assert min(decomposition.errors) >= 0


@pytest.mark.parametrize("seed", range(24 if THOROUGH else 2))
def test_shares_of_random_batches_are_right_to_a_few_points(seed: int) -> None:
    """A server that is busy with batches, thresholds at the quartiles of its requests and of their waits.

    The traffic depends on the seed alone: examples of hypothesis change with names and constants of the code.
    """
    rng = np.random.default_rng(seed)
    per_execution, base = rng.uniform(1.5, 6), rng.uniform(0.005, 0.05)
    delay, largest = float(rng.choice([0.0, 0.002, 0.01])), int(rng.choice([4, 8, 32]))
    interval = float(rng.choice([0.05, 0.1]))
    arrivals = poisson(rng, min(per_execution / base, 0.7 * largest / (base + largest * 0.001)), 40)
    requests = batched(arrivals, lognormal(rng, base, 0.1), largest, delay, each=0.001).until(40)
    waits = Requests(requests.ended, requests.waited, requests.execution, requests.waited)
    of_requests, of_waits = (
        errors(kind, tuple(np.quantile(kind.took, [0.25, 0.5, 0.75])), interval) for kind in (requests, waits)
    )
    print(
        f"{per_execution:.1f} arrive in {base:.3f} s, {delay} s, {largest} at most, {interval} s",
        np.round([of_requests, of_waits], 1),
    )

    assert np.abs(of_requests).max() <= 6
    assert np.abs(of_waits).max() <= 8


@pytest.mark.parametrize("seed", range(3 if THOROUGH else 1))
def test_the_stated_error_covers_batches_that_take_longer_the_larger_they_are(seed: int) -> None:
    """8 ms for each request of a batch, and a threshold between those of one and those of two."""
    rng = np.random.default_rng(seed)
    arrivals = poisson(rng, 40, 60)
    requests = batched(arrivals, lambda count: np.zeros(count), 8, delay=0.005, each=0.008).until(60)
    decomposition = Decomposition()
    (shown,) = observed(requests, (0.02,), 0.1, decomposition)
    print(shown - (requests.took <= 0.02).mean(), decomposition.errors)

    assert abs(shown - (requests.took <= 0.02).mean()) <= decomposition.errors[0] <= 0.12


def test_the_first_request_of_a_batch_waits_for_the_delay() -> None:
    """12 ms for each batch, 20 ms after its first request: thresholds a little below and above these times."""
    rng = np.random.default_rng(7)
    requests = batched(poisson(rng, 60, 60), lambda count: np.full(count, 0.012), 8, delay=0.02).until(60)
    waits = Requests(requests.ended, requests.waited, requests.execution, requests.waited)
    measured = [*errors(requests, (0.03, 0.035)), *errors(waits, (0.019, 0.022))]
    print(np.round(measured, 1))

    assert np.abs(measured).max() <= 3


def test_sums_show_how_requests_were_divided_over_executions_that_take_longer_for_more() -> None:
    """9 ms for one request of a batch and 17 ms for two: thresholds between these times with their waits."""
    rng = np.random.default_rng(7)
    requests = batched(
        poisson(rng, 40, 60), lambda count: np.full(count, 0.001), 8, delay=0.005, each=0.008
    ).until(60)
    deviations = errors(requests, (0.02, 0.025))
    print(np.round(deviations, 1))

    assert np.abs(deviations).max() <= 2


def test_a_single_request_is_exact() -> None:
    """An interval with one request is that request, and so is one of a batch that took the same."""
    decomposition = Decomposition()
    decomposition.add(Interval(1.0, 1, 0.0499, 1, 0.05))
    decomposition.add(Interval(1.05, 1, 0.0501, 1, 0.05))
    decomposition.add(Interval(1.1, 4, 0.4, 1, 0.05))

    assert [[1, 1], [0, 1], [0, 1]] == decomposition.shares(3, [0.05, 0.1]).tolist()


def test_shares_keep_the_mean_of_each_interval() -> None:
    """What an interval took in all stays: the spread of its requests has its mean."""
    rng = np.random.default_rng(1)
    units = rng.integers(1, 8, 2000).astype(float)
    seconds = np.array([mixture(rng, 0.1)(int(count)).sum() for count in units])
    density = estimate(Sums(units, seconds, units))
    bounds = np.linspace(0, 3, 6001)
    some = Sums(units[:50], seconds[:50], units[:50])
    mass = np.diff(density.posterior(some, np.tile(bounds, (50, 1)), np.zeros((50, 6001))), axis=1, prepend=0)

    assert (mass * (bounds - 0.00025)).sum(axis=1) == pytest.approx(some.means, abs=0.002)


def test_a_sum_that_the_estimate_does_not_allow_is_left_to_its_mean() -> None:
    """A request far beyond all that were seen is not forced into the known distribution."""
    density = Density(0.001, np.eye(64)[5])
    mean = density.posterior(Sums(*np.array([[2.0], [9.0], [2.0]])), np.array([[1.0]]), np.zeros((1, 1)))

    assert np.isnan(mean).all()


def test_a_run_of_slow_intervals_is_found_and_a_single_one_is_not() -> None:
    """Four intervals in a row beyond 98 of 100 are a disturbance; slow ones here and there are the traffic."""
    means = np.full(400, 0.005)
    means[[50, 90, 91, 130]] = 0.3
    means[200:204] = 0.5

    assert [200, 201, 202, 203] == np.flatnonzero(in_slow_runs(means, slow_levels(means))).tolist()


def test_stored_intervals_are_bounded() -> None:
    """A model that is always busy keeps the intervals of some minutes, however long it runs."""
    decomposition = Decomposition()
    for number in range(20_000):
        decomposition.add(Interval(number * 0.05, 3, 0.1, 3, 0.05))

    assert decomposition.interval_count <= 3000
