"""Test the shapes of distributions, and the histogram that adds them up."""

from __future__ import annotations

from collections import Counter
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_exporter.catalogue import state
from triton_exporter.distribution.histogram import (
    Binned,
    Curve,
    Guarantee,
    Histogram,
    Interval,
    Observed,
    Point,
    QuantilePool,
    Shape,
)
from triton_exporter.distribution.observations import Observations, Trace, TracedIntervals
from triton_exporter.snapshot import ModelVersion

BOUNDS = (0.01, 0.1, 1.0)


def histogram() -> Histogram:
    return Histogram(state.REQUEST_DURATION, ModelVersion("m", "1"), BOUNDS)


def test_a_point_counts_at_bounds_equal_to_the_mean() -> None:
    """All requests are at the mean; a bound includes the values equal to it."""
    assert [0, 1, 1] == Point(0.1).shares(BOUNDS)


def test_single_requests_count_at_or_below_each_bound() -> None:
    """Single requests are counted at or below each bound."""
    assert [0.25, 0.75, 0.75] == Observed([0.001, 0.1, 0.1, 7], [1] * 4).shares(BOUNDS)


def test_binned_at_its_own_bounds() -> None:
    """Another histogram is exact where its bounds are ours."""
    assert [0.5, 0.8, 0.9] == Binned([0.01, 0.1, 1, inf], [5, 8, 9, 10]).shares(BOUNDS)


def test_binned_between_its_bounds() -> None:
    """Between its bounds another histogram's requests are spread evenly; beyond its last they stay beyond."""
    shape = Binned([0.02, 0.2, inf], [10, 20, 40])

    assert [0.125, 0.25 + 0.25 * 0.08 / 0.18, 0.5] == pytest.approx(shape.shares(BOUNDS))


def test_curve_with_two_modes() -> None:
    """95 % at 5 ms and 5 % at 500 ms: the mean shows which side of the gap the 95th percentile hides."""
    points = [(0.5, 0.005), (0.9, 0.005), (0.95, 0.5), (0.99, 0.5)]
    shape = Curve(points, mean=0.95 * 0.005 + 0.05 * 0.5)

    assert 0.95 == pytest.approx(shape.shares([0.1])[0], abs=0.006)


def test_curve_beyond_its_last_quantile() -> None:
    """Above the highest quantile all requests are in."""
    assert 1 == pytest.approx(Curve([(0.5, 0.01), (0.99, 0.2)], mean=0.1).shares([0.2])[0])


seconds = st.floats(0, 100)
observed = (
    st.lists(seconds, min_size=1, max_size=30)
    .map(sorted)
    .map(lambda times: Observed(times, range(1, 1 + len(times))))
)
points = seconds.map(Point)


@st.composite
def binned(draw: st.DrawFn) -> Binned:
    bounds = draw(st.lists(st.floats(0.001, 50), min_size=1, max_size=6, unique=True).map(sorted))
    grown = draw(st.lists(st.integers(0, 20), min_size=len(bounds) + 1, max_size=len(bounds) + 1))
    grown[-1] += 1
    return Binned([*bounds, inf], [sum(grown[: end + 1]) for end in range(len(grown))])


@st.composite
def curves(draw: st.DrawFn) -> Curve:
    quantiles = sorted(draw(st.sets(st.floats(0.01, 0.999), min_size=1, max_size=6)))
    values = sorted(draw(st.lists(seconds, min_size=len(quantiles), max_size=len(quantiles))))
    return Curve(list(zip(quantiles, values, strict=True)), draw(seconds))


shapes: st.SearchStrategy[Shape] = st.one_of(points, observed, binned(), curves())
bounds_lists = st.lists(st.floats(0.0001, 200), min_size=1, max_size=8, unique=True).map(sorted)


@given(shapes, bounds_lists)
def test_shares_never_fall(shape: Shape, bounds: list[float]) -> None:
    """For any shape, shares are between 0 and 1 and never fall as the bound rises."""
    shares = shape.shares(bounds)

    assert shares == sorted(shares)
    assert all(0 <= share <= 1 for share in shares)


@given(st.lists(st.tuples(st.integers(1, 1000), seconds, shapes), max_size=20))
def test_histogram_only_grows(additions: list[tuple[int, float, Shape]]) -> None:
    """For any sources, buckets are whole, ascend, never fall, and end at the true count."""
    growing = histogram()
    before = [0.0] * (len(BOUNDS) + 1)
    for requests, took, shape in additions:
        growing.add(requests, took, shape)
        now = growing.cumulative()
        assert now == sorted(now)
        assert all(new >= old for new, old in zip(now, before, strict=True))
        assert all(value == int(value) for value in now)
        before = now

    assert sum(requests for requests, _, _ in additions) == growing.count == growing.cumulative()[-1]
    assert sum(took for _, took, _ in additions) == pytest.approx(growing.sum)


@given(st.lists(st.tuples(st.integers(1, 50), shapes), min_size=1, max_size=60))
def test_no_bucket_grows_by_more_than_one_above_it(additions: list[tuple[int, Shape]]) -> None:
    """So histogram_quantile() finds nothing to fix in rates, whenever Prometheus scrapes; little is owed."""
    growing = histogram()
    before = growing.cumulative()
    true = [0.0] * len(before)
    for requests, shape in additions:
        growing.add(requests, 1.0, shape)
        now = growing.cumulative()
        grown = [new - old for new, old in zip(now, before, strict=True)]
        assert grown == sorted(grown)
        assert [sample.value for sample in growing.samples()][: len(now)] == now
        written = [float(line.split()[-1]) for line in growing.lines().splitlines()]
        assert [*now, now[-1]] == written[:-1]
        shares = (*shape.shares(BOUNDS), 1.0)
        true = [count + requests * share for count, share in zip(true, shares, strict=True)]
        assert all(-3 < shown - count < 1e-5 for shown, count in zip(now, true, strict=True))
        before = now


def test_small_shares_are_not_lost() -> None:
    """1 % of one request a second is one request after 100 seconds."""
    growing = histogram()
    for _ in range(100):
        growing.add(1, 0.1, Observed([0.001] * 99 + [0.5], [1] * 100))

    assert [99, 99, 100, 100] == growing.cumulative()


def new_observations() -> tuple[Observations, Counter[str]]:
    lost: Counter[str] = Counter()
    return Observations(
        histogram(),
        Guarantee(ModelVersion("m", "1"), "request", ()),
        TracedIntervals(lambda reason, count: lost.update({reason: count}), closed=0.0),
        QuantilePool(),
    ), lost


def interval(end: float, requests: float, took: float) -> Interval:
    return Interval(end, requests, took)


def test_traces_give_the_shape() -> None:
    """An interval that waits gets the shape of its traces once a later trace proves them complete."""
    observations, lost = new_observations()
    observations.count(interval(10, 100, 3), wait=True)
    for ended, took in ((9.2, 0.005), (9.5, 0.005), (9.7, 0.005), (9.9, 0.5)):
        observations.traced.add_trace(Trace(ended, took, f"trace-{ended}"))
    observations.close(now=10, watermark=9.9)
    assert 0 == observations.histogram.count
    observations.close(now=15, watermark=14)

    assert [75, 75, 100, 100] == observations.histogram.cumulative()
    assert ("trace", 100, 3) == (
        observations.source,
        observations.histogram.count,
        observations.histogram.sum,
    )
    assert ["trace-9.7", "trace-9.9"] == [
        sample.exemplar.trace_id for sample in observations.histogram.samples() if sample.exemplar
    ]
    assert {} == lost


def test_untraced_interval_joins_the_next_traced_one() -> None:
    """With every Nth request traced, the traced one represents those since the one before."""
    observations, _ = new_observations()
    observations.count(interval(1, 40, 0.2), wait=True)
    observations.count(interval(2, 60, 0.3), wait=True)
    observations.traced.add_trace(Trace(1.5, 0.05, "a"))
    observations.close(now=4, watermark=4)

    assert [0, 100, 100, 100] == observations.histogram.cumulative()


def test_an_interval_without_a_trace() -> None:
    """Without a trace in time, the interval's own mean is taken, and nothing stays behind."""
    observations, _ = new_observations()
    observations.count(interval(1, 2, 0.01), wait=True)
    observations.close(now=40, watermark=0)
    assert 0 == observations.histogram.count
    observations.close(now=47, watermark=0)

    assert [2, 2, 2, 2] == observations.histogram.cumulative()
    assert "sampled_mean" == observations.source


def test_a_trace_of_a_closed_interval_is_counted_as_lost() -> None:
    """A trace whose interval is closed is counted as lost, not observed."""
    observations, lost = new_observations()
    observations.count(interval(1, 2, 0.01), wait=True)
    observations.traced.add_trace(Trace(0.9, 0.005, "a"))
    observations.close(now=5, watermark=5)
    observations.traced.add_trace(Trace(0.5, 0.005, "b"))

    assert {"late": 1} == lost
    assert 2 == observations.histogram.count


def test_traces_of_uncounted_requests_do_not_accumulate() -> None:
    """Traces of requests that no counter counts do not pile up."""
    observations, _ = new_observations()
    for second in range(100):
        observations.traced.add_trace(Trace(second, 0.1, "a"))
        observations.close(now=second, watermark=second)

    assert len(observations.traced._traces) <= 46


@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.booleans(), st.booleans(), st.lists(st.floats(-3, 1), max_size=4)),
        max_size=40,
    )
)
def test_every_request_enters_once(steps: list[tuple[int, bool, bool, list[float]]]) -> None:
    """For any order of sources, each counted request enters the histogram exactly once."""
    observations, _ = new_observations()
    now = 0.0
    for requests, wait, tracing, offsets in steps:
        now += 1
        observations.count(interval(now, requests, requests * 0.02), wait)
        for offset in offsets:
            observations.traced.add_trace(Trace(now + offset, 0.05, "t"))
        observations.close(now, now if tracing else 0)
        assert observations.histogram.count <= sum(step[0] for step in steps)
    observations.close(now + 100, 0)

    assert sum(step[0] for step in steps) == observations.histogram.count
    assert sum(step[0] for step in steps) * 0.02 == pytest.approx(observations.histogram.sum)
