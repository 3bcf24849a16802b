"""Test the two-sample test: how often it is wrong, measured by simulation, and the effect of bursts."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_slo.canary import EventCount, compare, dispersion, wilson

ROUNDS = 300
EVENTS = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda x: EventCount(float(min(x)), float(max(x)))),
    min_size=1,
    max_size=8,
)


def drawn(random: np.random.Generator, events: int, ratio: float, slices: int = 12) -> list[EventCount]:
    """Independent events of one version."""
    each = events // slices
    return [EventCount(float(random.binomial(each, ratio)), float(each)) for _ in range(slices)]


@pytest.mark.parametrize("ratio", [0.001, 0.01, 0.1, 0.4])
@pytest.mark.parametrize("events", [60, 600, 6000])
def test_equal_versions_are_seldom_called_worse(events: int, ratio: float) -> None:
    """At 95 % confidence a canary that is as good is rolled back in at most about 5 % of the cases."""
    random = np.random.default_rng(7)
    wrong = sum(
        compare(drawn(random, events, ratio), drawn(random, events, ratio), margin=0.0).verdict == "rollback"
        for _ in range(ROUNDS)
    )

    assert wrong / ROUNDS <= 0.08


@pytest.mark.parametrize("ratio", [0.001, 0.01, 0.1])
@pytest.mark.parametrize("events", [600, 6000])
def test_a_canary_worse_than_the_margin_is_seldom_promoted(events: int, ratio: float) -> None:
    """At 95 % confidence a canary just as much worse as the margin is promoted in at most about 5 %."""
    random = np.random.default_rng(8)
    wrong = sum(
        compare(drawn(random, events, ratio + 0.05), drawn(random, events, ratio), margin=0.05).verdict
        == "promote"
        for _ in range(ROUNDS)
    )

    assert wrong / ROUNDS <= 0.08


def test_bursts_lower_confidence_instead_of_faking_it() -> None:
    """Failures in whole slices are few events, not many: equal bursty versions are seldom called worse."""
    random = np.random.default_rng(9)

    def bursty() -> list[EventCount]:
        return [EventCount(200.0 * (random.random() < 0.2), 200.0) for _ in range(24)]

    pairs = [(bursty(), bursty()) for _ in range(ROUNDS)]
    wrong = sum(compare(a, b, margin=0.0).worse >= 0.95 for a, b in pairs)
    naive = sum(compare([_sum(a)], [_sum(b)], margin=0.0).worse >= 0.95 for a, b in pairs)
    assert wrong / ROUNDS <= 0.1
    assert naive / ROUNDS >= 0.3  # the result of the same counts when taken for independent


def test_a_clear_difference_is_found() -> None:
    """Three times the errors in an hour of traffic is not missed."""
    random = np.random.default_rng(10)
    actual = sum(
        compare(drawn(random, 3000, 0.03), drawn(random, 3000, 0.01), margin=0.001).verdict == "rollback"
        for _ in range(ROUNDS)
    )

    assert actual / ROUNDS >= 0.95


@given(EVENTS, EVENTS, st.floats(0, 0.5), st.floats(0.6, 0.999))
def test_a_comparison_is_coherent(
    canary: list[EventCount], baseline: list[EventCount], margin: float, confidence: float
) -> None:
    """Confidences are shares, bounds include the difference, and swapping the versions mirrors the result."""
    comparison = compare(canary, baseline, margin=margin, confidence=confidence)
    other = compare(baseline, canary, margin=margin, confidence=confidence)

    assert 0 <= comparison.worse <= 1
    assert 0 <= comparison.acceptable <= 1
    assert comparison.low <= comparison.high
    assert pytest.approx((-other.high, -other.low)) == (comparison.low, comparison.high)
    if comparison.canary.total and comparison.baseline.total:
        difference = (
            comparison.canary.bad / comparison.canary.total
            - comparison.baseline.bad / comparison.baseline.total
        )
        assert comparison.low - 1e-9 <= difference <= comparison.high + 1e-9
        # Sure to be worse at the asked confidence is the same as a lower bound above zero.
        assert (comparison.worse > confidence + 1e-6) <= (comparison.low > -1e-9)
    else:
        assert "hold" == comparison.verdict


@given(st.integers(1, 500), st.data())
def test_wilson_bounds_are_the_roots_of_the_score_test(total: int, data: st.DataObject) -> None:
    """At each bound the observed ratio is exactly z standard errors away (that is what defines it)."""
    bad = data.draw(st.integers(0, total))
    z = NormalDist().inv_cdf(0.95)

    for bound in wilson(bad, total, z):
        if 1e-9 < bound < 1 - 1e-9:
            distance = abs(bad / total - bound) / math.sqrt(bound * (1 - bound) / total)
            assert pytest.approx(z, rel=1e-6) == distance


def test_dispersion_distinguishes_even_from_bursty() -> None:
    """Even slices have none, whole failed slices much, and nothing to compare none."""
    even, bursty = [EventCount(2.0, 100.0)] * 10, [EventCount(100.0, 100.0), *[EventCount(0.0, 100.0)] * 9]

    assert 1.0 == dispersion(even)
    assert pytest.approx(1000 / 9) == dispersion(bursty)
    assert 1.0 == dispersion([EventCount(0.0, 0.0), EventCount(1.0, 2.0)]) == dispersion([])


def _sum(slices: list[EventCount]) -> EventCount:
    return EventCount(sum(tile.bad for tile in slices), sum(tile.total for tile in slices))


@pytest.mark.parametrize(
    ("canary", "named"), [(EventCount(0, 0), "canary"), (EventCount(1, 100), "baseline")]
)
def test_a_side_without_events_promotes_nothing_at_any_minimum(canary: EventCount, named: str) -> None:
    """With `--min-events 0` a side without any event is a reason for `hold`, not a division by zero."""
    actual = compare([canary], [EventCount(0, 0)], margin=0.01, minimum_events=0)

    assert ("hold", f"the {named} has no events") == (actual.verdict, actual.reason)
