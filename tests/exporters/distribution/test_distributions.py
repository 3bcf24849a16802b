"""Test histograms made of Triton's counters alone: what stays exact through resets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_exporter.catalogue import state, triton
from triton_exporter.distribution.buckets import Buckets
from triton_exporter.distribution.distributions import MAX_GONE, MEMORY_SECONDS, Distributions
from triton_exporter.exposition.parse import parse

Row = tuple[str, float, float, float]
"""Labels, requests, request microseconds, queue microseconds."""


def body(*rows: Row) -> bytes:
    lines = []
    for column, metric in enumerate(
        (triton.REQUEST_SUCCESS, triton.REQUEST_DURATION_US, triton.QUEUE_DURATION_US), 1
    ):
        lines.append(f"# TYPE {metric} counter")
        lines += [f"{metric}{{{row[0]}}} {row[column]}" for row in rows]
    return "".join(f"{line}\n" for line in lines).encode()


def shown(distributions: Distributions, now: float = 0.0) -> dict[str, float]:
    return {s.series: s.value for family in distributions.families(now) for s in family.samples}


def fed(*bodies: bytes, buckets: Buckets | None = None) -> dict[str, float]:
    distributions = Distributions(buckets)
    for second, body in enumerate(bodies):
        distributions.observe(parse(body), float(second))
    return shown(distributions)


M = 'model="m",version="1"'
REQUEST, QUEUE = state.REQUEST_DURATION, state.QUEUE_DURATION


def test_each_interval_is_observed_at_its_mean() -> None:
    """For an interval with n new requests of mean m, m is observed n times."""
    series = fed(
        body((M, 100, 5e6, 1e6)),
        body((M, 110, 5.04e6, 1e6)),  # 10 requests of 4 ms that did not queue
        body((M, 112, 5.64e6, 1.2e6)),  # 2 requests of 300 ms that queued 100 ms
    )

    assert 12 == series[f"{REQUEST}_count{{{M}}}"]
    assert 0.64 == pytest.approx(series[f"{REQUEST}_sum{{{M}}}"])
    assert [0, 10, 10, 12, 12] == [
        series[f'{REQUEST}_bucket{{{M},le="{le}"}}'] for le in ("0.002", "0.005", "0.2", "0.5", "+Inf")
    ]
    assert [10, 10, 12] == [series[f'{QUEUE}_bucket{{{M},le="{le}"}}'] for le in ("0.001", "0.05", "0.1")]


def test_requests_before_the_start_of_the_exporter_do_not_count() -> None:
    """What Triton counted before the exporter started is not counted as new; the series stand at 0."""
    series = fed(body((M, 100, 5e6, 1e6)))

    assert (0, 0) == (series[f"{REQUEST}_count{{{M}}}"], series[f"{REQUEST}_sum{{{M}}}"])


def test_requests_since_the_last_load_count() -> None:
    """Unloading removes the counters and loading starts them at 0: what came since the load counts."""
    other = ('model="n",version="1"', 1, 1, 1)
    series = fed(body((M, 240, 24e6, 0), other), body(other), body((M, 250, 25e6, 0), other))

    assert 250 == series[f"{REQUEST}_count{{{M}}}"]
    assert 25 == pytest.approx(series[f"{REQUEST}_sum{{{M}}}"])


def test_reset_between_two_bodies() -> None:
    """A counter smaller than before was reset: its whole value is new."""
    series = fed(body((M, 240, 24e6, 0)), body((M, 5, 1e6, 0)))

    assert (5, 1) == (series[f"{REQUEST}_count{{{M}}}"], series[f"{REQUEST}_sum{{{M}}}"])


def test_a_series_that_a_damaged_body_lacks_does_not_restart_at_zero() -> None:
    """A series that a damaged body lacks has not restarted at 0 when it is there again."""
    damaged = body(('model="n",version="1"', 1, 1, 1)) + f"{triton.REQUEST_SUCCESS}{{".encode()
    series = fed(body((M, 240, 24e6, 0)), damaged, body((M, 250, 25e6, 0)))

    assert (10, 1) == (series[f"{REQUEST}_count{{{M}}}"], series[f"{REQUEST}_sum{{{M}}}"])


def test_gpus_and_tags_add_up() -> None:
    """Series of one model version on several GPUs, or with custom tags, make one histogram."""
    on_gpu = 'gpu_uuid="GPU-1",model="m",version="1"'
    tagged = '_team="search",model="t",version="1"'
    series = fed(
        body((M, 0, 0, 0), (on_gpu, 10, 1e6, 0), (tagged, 0, 0, 0)),
        body((M, 1, 1e5, 0), (on_gpu, 12, 1.2e6, 0), (tagged, 3, 3e6, 0)),
    )

    assert 3 == series[f"{REQUEST}_count{{{M}}}"]
    assert 3 == series[f'{REQUEST}_count{{model="t",version="1"}}']
    assert not [name for name in series if "gpu_uuid" in name or "_team" in name]


def test_time_without_its_request() -> None:
    """Time that Triton added before it added the request joins the next interval."""
    series = fed(body((M, 0, 0, 0)), body((M, 0, 2e5, 0)), body((M, 1, 2e5, 0)))

    assert 1 == series[f"{REQUEST}_count{{{M}}}"]
    assert 0.2 == pytest.approx(series[f"{REQUEST}_sum{{{M}}}"])


def test_a_time_below_zero_is_left_out() -> None:
    """An unsigned time that fell below zero is left out; later values are unaffected."""
    series = fed(body((M, 0, 0, 0)), body((M, 3, 1.8446744e16, 0)), body((M, 4, 1.8446744e16 + 1e6, 0)))

    assert (1, 1) == (series[f"{REQUEST}_count{{{M}}}"], series[f"{REQUEST}_sum{{{M}}}"])
    assert 4 == series[f"{QUEUE}_count{{{M}}}"]


def test_each_histogram_names_its_source() -> None:
    """Each histogram states that it is made of sampled means."""
    series = fed(body((M, 0, 0, 0)))

    for signal in ("request", "queue"):
        assert 1 == series[f'{state.DISTRIBUTION_SOURCE}{{{M},signal="{signal}",source="sampled_mean"}}']


def test_a_model_that_is_gone_is_forgotten_after_a_while() -> None:
    """A model that Triton stopped showing is forgotten after a while, not at once."""
    distributions = Distributions()
    other = ('model="n",version="1"', 1, 1, 1)
    distributions.observe(parse(body((M, 1, 1, 1), other)), 0)
    distributions.observe(parse(body(other)), MEMORY_SECONDS - 10)
    soon = shown(distributions)
    distributions.observe(parse(body(other)), MEMORY_SECONDS + 10)

    assert f"{REQUEST}_count{{{M}}}" in soon
    assert f"{REQUEST}_count{{{M}}}" not in shown(distributions)


def test_forgets_the_oldest_of_many() -> None:
    """Models that come and go faster than they are forgotten do not make the page grow without end."""
    distributions = Distributions()
    for second in range(300):
        distributions.observe(parse(body((f'model="m{second}",version="1"', 1, 1, 1))), second)
    counts = [name for name in shown(distributions) if name.startswith(f"{REQUEST}_count")]

    assert MAX_GONE + 1 == len(counts)
    assert f'{REQUEST}_count{{model="m299",version="1"}}' in counts
    assert f'{REQUEST}_count{{model="m0",version="1"}}' not in counts


def test_a_hostile_name_is_relayed_with_its_escapes() -> None:
    """A model's name may contain any character; it is relayed with the same escapes."""
    hostile = r'model="a\"b\\c\n}",version="1"'

    assert f"{REQUEST}_count{{{hostile}}}" in fed(body((hostile, 0, 0, 0)))


@pytest.mark.parametrize("junk", [b"", b"\xff\x00", b"<html>", b"nv_inference_request_success one\n"])
def test_any_body_leaves_known_values_as_they_are(junk: bytes) -> None:
    """For any body, observing goes on and no known value is lost."""
    series = fed(body((M, 1, 1e6, 0)), junk, body((M, 2, 2e6, 0)))

    assert 1 == series[f"{REQUEST}_count{{{M}}}"]


def test_a_bucket_ends_at_every_threshold() -> None:
    """A bucket ends at every threshold, so the share within it needs no guess."""
    buckets = Buckets(per_model={"m": (0.1, 1)}, thresholds={"request": (0.123,), "queue": (0.045,)})
    series = fed(body((M, 0, 0, 0)), buckets=buckets)

    ends = [name.split('le="')[1][:-2] for name in series if name.startswith(f"{REQUEST}_bucket")]
    assert ["0.1", "0.123", "1.0", "+Inf"] == ends
    assert f'{QUEUE}_bucket{{{M},le="0.045"}}' in series


steps = st.lists(
    st.one_of(
        st.tuples(st.just("run"), st.integers(0, 50), st.integers(0, 10**7), st.integers(0, 10**6)),
        st.tuples(st.sampled_from(["reload", "gap"]), st.just(0), st.just(0), st.just(0)),
    ),
    max_size=30,
)


@given(steps)
def test_sum_and_count_stay_exact(steps: list[tuple[str, int, int, int]]) -> None:
    """Through traffic, reloads and missed samples, no series goes back, and count and sum are Triton's."""
    distributions, other = Distributions(), ('model="n",version="1"', 0, 0, 0)
    now, true_count, true_micros = 0.0, 0, 0
    count, micros, queue = 0, 0, 0
    before: dict[str, float] = {}
    distributions.observe(parse(body((M, 0, 0, 0), other)), now)
    for event, requests, request_us, queue_us in steps:
        now += 1
        if event == "reload":
            count = micros = queue = 0
            distributions.observe(parse(body(other)), now)
        elif requests:
            count, micros, queue = count + requests, micros + request_us, queue + queue_us
            true_count, true_micros = true_count + requests, true_micros + request_us
        if event != "gap":
            distributions.observe(parse(body((M, count, micros, queue), other)), now)
        series = shown(distributions)
        assert [] == [name for name in before if series[name] < before[name] - 1e-9]
        before = series
    distributions.observe(parse(body((M, count, micros, queue), other)), now + 1)
    series = shown(distributions)

    assert true_count == series[f"{REQUEST}_count{{{M}}}"]
    assert true_count == series[f'{REQUEST}_bucket{{{M},le="+Inf"}}']
    assert true_micros / 1e6 == pytest.approx(series[f"{REQUEST}_sum{{{M}}}"])
