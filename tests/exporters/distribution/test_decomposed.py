"""Test the source `decomposed`: when it feeds a histogram, and that count and sum stay Triton's own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.simulated_traffic import TRAFFIC, Requests, polled
from triton_exporter.catalogue import own, state, triton
from triton_exporter.distribution.buckets import Buckets
from triton_exporter.distribution.distributions import Distributions
from triton_exporter.distribution.estimate.estimator import Estimator
from triton_exporter.distribution.histogram import Interval
from triton_exporter.exposition.parse import Parser
from triton_exporter.snapshot import ModelConfig, ModelVersion, Snapshot

BUCKETS = Buckets(thresholds={"request": (0.05, 0.2)})
M = 'model="m",version="1"'
REQUEST = state.REQUEST_DURATION


class Watched:
    """Distributions that read counters of one model (or several) and estimate every second."""

    def __init__(self, estimator: Estimator | None = None) -> None:
        self.estimator = estimator or Estimator(BUCKETS)
        self.distributions = Distributions(BUCKETS, estimator=self.estimator)
        self.parser = Parser()
        self.observed = -1.0

    def read(self, at: float, *rows: tuple[str, float, float, float, float]) -> None:
        """Labels, requests, executions, request seconds and queue seconds so far."""
        lines = []
        for column, metric, unit in (
            (1, triton.REQUEST_SUCCESS, 1),
            (2, triton.EXEC_COUNT, 1),
            (3, triton.REQUEST_DURATION_US, 1e6),
            (4, triton.QUEUE_DURATION_US, 1e6),
        ):
            lines.append(f"# TYPE {metric} counter")
            lines += [f"{metric}{{{row[0]}}} {row[column] * unit:.0f}" for row in rows]
        page = self.parser.parse("".join(f"{line}\n" for line in lines).encode())
        if at - self.observed >= 1:
            self.observed = at
            self.distributions.observe(page, at)
            self.estimator.poll(at)
        else:
            self.distributions.sample(page, at)

    def shown(self) -> dict[str, float]:
        return {s.series: s.value for family in self.distributions.families(0) for s in family.samples}

    def share(self, threshold: str) -> float:
        shown = self.shown()
        return shown[f'{REQUEST}_bucket{{{M},le="{threshold}"}}'] / shown[f"{REQUEST}_count{{{M}}}"]

    def source(self, signal: str = "request") -> list[str]:
        label = f'{state.DISTRIBUTION_SOURCE}{{{M},signal="{signal}",source="'
        return [
            name.split('source="')[1][:-2]
            for name, value in self.shown().items()
            if name.startswith(label) and value == 1
        ]


def watch(requests: Requests, interval: float = 0.05, batching: bool = False) -> Watched:
    """Read the counters that these requests make, and go on until all are settled."""
    watched, polls = Watched(), polled(requests, interval)
    config = ModelConfig("m", dynamic_batching=batching)
    watched.distributions.observe_snapshot(Snapshot(at=0, configs={ModelVersion("m", "1"): config}))
    count = executions = seconds = waits = 0.0
    watched.read(0.0, (M, 0, 0, 0, 0))
    by_end = {round(end / interval): place for place, end in enumerate(polls.ends)}
    for tick in range(1, round(polls.ends[-1] / interval) + round(9 / interval)):
        if tick in by_end:
            place = by_end[tick]
            count += polls.requests[place]
            executions += polls.executions[place]
            seconds += polls.sums[place]
            waits += polls.waits[place]
        watched.read(tick * interval, (M, count, executions, seconds, waits))
    return watched


@pytest.fixture(scope="module")
def slow_tail() -> tuple[Requests, Watched]:
    requests = TRAFFIC["tail_100_5"].make(np.random.default_rng(3), 60.0).until(60.0)
    return requests, watch(requests)


def test_a_slow_tail_on_a_stock_triton_is_seen(slow_tail: tuple[Requests, Watched]) -> None:
    """100/s of which 5 % take 300 ms: the mean of an interval hides them, or makes them too many."""
    requests, watched = slow_tail

    assert ["decomposed"] == watched.source()
    for threshold in ("0.05", "0.2"):
        assert (requests.took <= float(threshold)).mean() == pytest.approx(watched.share(threshold), abs=0.01)


def test_count_and_sum_stay_tritons_own(slow_tail: tuple[Requests, Watched]) -> None:
    """An estimate decides where a request counts, not whether."""
    requests, watched = slow_tail
    shown = watched.shown()

    assert (
        len(requests.took) == shown[f"{REQUEST}_count{{{M}}}"] == shown[f'{REQUEST}_bucket{{{M},le="+Inf"}}']
    )
    assert requests.took.sum() == pytest.approx(shown[f"{REQUEST}_sum{{{M}}}"], abs=0.01)


def test_guaranteed_bounds_are_true_and_the_error_covers_the_truth(
    slow_tail: tuple[Requests, Watched],
) -> None:
    """The true number within a threshold is between least and most; the stated error covers its share."""
    requests, watched = slow_tail
    shown = watched.shown()
    for threshold in ("0.05", "0.2"):
        labels = f'{M},signal="request",le="{threshold}"'
        within = (requests.took <= float(threshold)).sum()
        least, most = (
            shown[f'{state.REQUESTS_WITHIN}{{{labels},bound="{bound}"}}'] for bound in ("least", "most")
        )
        error = shown[f"{state.DISTRIBUTION_ERROR}{{{labels}}}"]

        assert least <= within <= most
        assert abs(watched.share(threshold) - within / len(requests.took)) <= error <= 0.05


def test_a_reading_between_count_and_time_is_joined_with_the_next() -> None:
    """One request whose time comes a reading later is one request of that time, in both directions."""
    watched = Watched()
    watched.read(0.0, (M, 0, 0, 0, 0))
    watched.read(0.05, (M, 1, 1, 0, 0))
    watched.read(0.1, (M, 1, 1, 0.3, 0.1))
    watched.read(0.15, (M, 1, 1, 0.6, 0.2))
    watched.read(0.2, (M, 2, 2, 0.6, 0.2))
    watched.read(0.25, (M, 2, 2, 0.6, 0.2))
    shown = watched.shown()

    assert 2 == shown[str(own.TORN_READINGS)]
    assert (0, 2) == tuple(shown[f'{REQUEST}_bucket{{{M},le="{le}"}}'] for le in ("0.2", "0.5"))
    assert 0.2 == pytest.approx(shown[f"{state.QUEUE_DURATION}_sum{{{M}}}"])


def test_requests_of_one_batch_count_as_dependent() -> None:
    """Eight requests answered by one execution took the same; without batching they may differ."""
    for batching, expected in ((True, 8), (False, 0)):
        watched = Watched()
        config = ModelConfig("m", dynamic_batching=batching)
        watched.distributions.observe_snapshot(Snapshot(at=0, configs={ModelVersion("m", "1"): config}))
        watched.read(0.0, (M, 0, 0, 0, 0))
        watched.read(0.05, (M, 8, 1, 0.8, 0))

        assert expected == watched.shown()[f'{REQUEST}_bucket{{{M},le="0.1"}}']


def test_models_beyond_the_budget_keep_the_mean_and_report_it() -> None:
    """Memory is bounded: with a budget of one decomposition, the second model's source is the mean."""
    watched = Watched(Estimator(BUCKETS, max_decomposed=1))
    other = 'model="n",version="1"'
    rng = np.random.default_rng(1)
    totals = np.zeros(2)
    for tick in range(400):
        times = rng.choice([0.005, 0.3], 3)
        totals += (3, times.sum())
        row = (totals[0], totals[0], totals[1], 0.0)
        watched.read(tick * 0.05, (M, *row), (other, *row))
    sources = [name for name, value in watched.shown().items() if "source=" in name and value == 1]

    assert f'{state.DISTRIBUTION_SOURCE}{{{M},signal="request",source="decomposed"}}' in sources
    assert f'{state.DISTRIBUTION_SOURCE}{{{other},signal="request",source="sampled_mean"}}' in sources


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 10**6), st.booleans()), max_size=80))
def test_no_series_ever_falls(readings: list[tuple[int, int, bool]]) -> None:
    """Through estimates, torn readings and reloads, counters only grow, and finally contain every request."""
    watched, before = Watched(), dict[str, float]()
    count = seconds = true_count = 0.0
    watched.read(0.0, (M, 0, 0, 0, 0), ('model="n",version="1"', 0, 0, 0, 0))
    at = 0.0
    for requests, micros, reload in readings:
        at += 0.25
        if reload:
            watched.read(at, ('model="n",version="1"', 0, 0, 0, 0))
            count = seconds = 0.0
        else:
            count, seconds = count + requests, seconds + requests * micros / 1e6
            true_count += requests
            watched.read(at, (M, count, count, seconds, 0), ('model="n",version="1"', 0, 0, 0, 0))
        shown = {
            name: value
            for name, value in watched.shown().items()
            if "ratio" not in name and "source" not in name and "quantile" not in name
        }
        assert [] == [name for name in before if shown[name] < before[name] - 1e-9]
        before = shown
    for _ in range(30):
        at += 0.25
        watched.read(at, (M, count, count, seconds, 0), ('model="n",version="1"', 0, 0, 0, 0))

    assert true_count == watched.shown()[f"{REQUEST}_count{{{M}}}"]


def test_the_wait_in_the_queue_is_not_decomposed_with_the_work() -> None:
    """M/M/4, nearly full: the wait that Triton counts is shared by neighbours, and the work is not."""
    requests = TRAFFIC["mm4"].make(np.random.default_rng(5), 60.0).until(60.0)
    watched = watch(requests, 0.1)

    for threshold in ("0.05", "0.2"):
        assert (requests.took <= float(threshold)).mean() == pytest.approx(watched.share(threshold), abs=0.01)


def test_requests_of_one_batch_waited_for_different_times() -> None:
    """A busy server with batches of three, each 20 ms: the waits of one batch are spread over 10 ms and more."""
    requests = TRAFFIC["batches_alike"].make(np.random.default_rng(5), 60.0).until(60.0)
    watched = watch(requests, batching=True)
    shown = watched.shown()
    queue = f"{state.QUEUE_DURATION}_bucket{{{M}"
    share = shown[f'{queue},le="0.01"}}'] / shown[f'{queue},le="+Inf"}}']

    assert (requests.waited <= 0.01).mean() == pytest.approx(share, abs=0.05)


def test_a_histogram_with_few_shared_intervals_is_estimated() -> None:
    """One interval in ten has two requests: the others do not delay the estimate for ever."""
    estimator = Estimator(BUCKETS)
    decomposition = estimator.get(ModelVersion("m", "1"), "request", 0.0, True)
    assert decomposition is not None
    for number in range(300):
        requests = 2.0 if number % 10 == 0 else 1.0
        decomposition.add(Interval(0.2 * number, requests, 0.03 * requests, requests, 0.05))
        if number % 5 == 0:
            estimator.poll(0.2 * number)

    assert decomposition.is_estimated
    assert len(decomposition.errors) == 2
