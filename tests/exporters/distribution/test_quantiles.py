"""Test the quantiles of the last minutes: which source states them, over which time, and at which cost."""

from __future__ import annotations

from itertools import pairwise

import pytest

from triton_exporter.distribution.buckets import DEFAULT_BOUNDS
from triton_exporter.distribution.histogram import QuantilePool, RecentQuantiles, fine_bounds

BOUNDS = fine_bounds(DEFAULT_BOUNDS)[0]


def filled(*times: float, at: float = 0.0) -> RecentQuantiles:
    quantiles = RecentQuantiles(BOUNDS)
    for seconds in times:
        quantiles.add_alike(at, 1, seconds)
    return quantiles


def test_bounds_are_at_most_8_percent_apart_and_contain_those_of_the_histogram() -> None:
    """From half a millisecond to two minutes."""
    bounds, places = fine_bounds(DEFAULT_BOUNDS)

    assert list(DEFAULT_BOUNDS) == [bounds[place] for place in places]
    assert max(high / low for low, high in pairwise(bounds)) <= 1.0801
    assert (0.0005, 110.0) <= (bounds[0], bounds[-1])


def test_each_level_is_read_to_a_few_percent() -> None:
    """The bucket that contains the request decides, and requests are spread over it."""
    times = [0.01 * 1.005**number for number in range(1000)]
    values = dict(filled(*times).values())

    assert {level: pytest.approx(times[int(1000 * level)], rel=0.02) for level in (0.5, 0.95, 0.99)} == values


@pytest.mark.parametrize(("requests", "levels"), [(3, []), (4, [0.5]), (40, [0.5, 0.95]), (199, [0.5, 0.95])])
def test_a_quantile_with_fewer_than_two_requests_beyond_it_is_absent(
    requests: int, levels: list[float]
) -> None:
    """A single request would determine such a quantile."""
    assert levels == [level for level, _ in filled(*[0.1] * requests).values()]


def test_requests_older_than_two_and_a_half_minutes_are_left_out() -> None:
    """Requests of the last two minutes count; when none is left, the memory is released."""
    quantiles = filled(*[1.0] * 100, at=15)
    for _ in range(100):
        quantiles.add_alike(135, 1, 0.01)

    assert quantiles.forget(135)
    assert dict(quantiles.values())[0.95] == pytest.approx(1.0, rel=0.08)
    assert quantiles.forget(165)
    assert dict(quantiles.values())[0.95] == pytest.approx(0.01, rel=0.08)
    assert not quantiles.forget(286)


def test_stored_values_are_bounded_without_scrapes() -> None:
    """Old requests are dropped when new ones come, even if the quantiles are not read."""
    quantiles = filled(*[1.0] * 100)
    quantiles.add_alike(600, 100, 0.01)

    assert dict(quantiles.values())[0.95] == pytest.approx(0.01, rel=0.08)


def test_too_many_requests_at_the_mean_of_several_hide_the_quantiles() -> None:
    """A mean contains no tail; a few means, at a start, do no harm."""
    quantiles = filled(*[0.1] * 100)
    quantiles.doubt(0, 20)
    shown = [level for level, _ in quantiles.values()]
    quantiles.doubt(0, 1)

    assert [0.5, 0.95] == shown
    assert [] == list(quantiles.values())


def test_the_number_of_histograms_with_quantiles_is_bounded() -> None:
    """A place is free again when its histogram has gone."""
    pool = QuantilePool(max_used=1)
    first = pool.get(BOUNDS)

    assert first is not None
    assert None is pool.get(BOUNDS)
    del first
    assert pool.get(BOUNDS) is not None
