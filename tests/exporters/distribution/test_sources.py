"""Test which source feeds a histogram, and that a change of source only adds."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards.fleet import exposition
from triton_exporter.catalogue import state, triton
from triton_exporter.distribution.buckets import SIGNALS, Buckets
from triton_exporter.distribution.distributions import Distributions
from triton_exporter.distribution.estimate.estimator import Estimator
from triton_exporter.exposition.parse import parse
from triton_exporter.snapshot import ModelConfig, ModelVersion, Snapshot
from triton_exporter.tracing.trace import Mailbox, TracedRequest

M = 'model="m",version="1"'
REQUEST, QUEUE, NATIVE = state.REQUEST_DURATION, state.QUEUE_DURATION, triton.FIRST_RESPONSE_MS
BOUNDS = Buckets(default=(0.01, 0.1, 1.0), thresholds={"request": (0.1,)})


def counters(requests: float, seconds: float, queue: float = 0.0) -> str:
    return "".join(
        f"# TYPE {metric} counter\n{metric}{{{M}}} {value!r}\n"
        for metric, value in (
            (triton.REQUEST_SUCCESS, requests),
            (triton.REQUEST_DURATION_US, seconds * 1e6),
            (triton.QUEUE_DURATION_US, queue * 1e6),
        )
    )


def native(counts: dict[str, float], milliseconds: float) -> str:
    lines = [f'{NATIVE}_bucket{{{M},le="{end}"}} {count}' for end, count in counts.items()]
    lines += [f"{NATIVE}_count{{{M}}} {counts['+Inf']}", f"{NATIVE}_sum{{{M}}} {milliseconds}"]
    return f"# TYPE {NATIVE} histogram\n" + "".join(f"{line}\n" for line in lines)


def summary(requests: float, seconds: float, quantiles: Sequence[tuple[float, float]]) -> str:
    metric = triton.REQUEST_SUMMARY_US
    lines = [f"{metric}_count{{{M}}} {requests}", f"{metric}_sum{{{M}}} {seconds * 1e6!r}"]
    lines += [f'{metric}{{{M},quantile="{q}"}} {value * 1e6!r}' for q, value in quantiles]
    return f"# TYPE {metric} summary\n" + "".join(f"{line}\n" for line in lines)


def knowing(distributions: Distributions, streams: bool) -> Distributions:
    config = ModelConfig("m", decoupled=streams)
    distributions.observe_snapshot(Snapshot(at=0, configs={ModelVersion("m", "1"): config}))
    return distributions


def shown(distributions: Distributions) -> dict[str, float]:
    return {s.series: s.value for family in distributions.families(0) for s in family.samples}


def buckets(series: dict[str, float]) -> list[float]:
    return [series[f'{REQUEST}_bucket{{{M},le="{end}"}}'] for end in ("0.01", "0.1", "1.0", "+Inf")]


def source(series: dict[str, float], signal: str = "request") -> list[str]:
    known = ("histogram", "trace", "summary", "sampled_mean")
    names = {kind: f'{state.DISTRIBUTION_SOURCE}{{{M},signal="{signal}",source="{kind}"}}' for kind in known}
    return [kind for kind, name in names.items() if series.get(name) == 1]


def feed(distributions: Distributions, *bodies: str, start: float = 0.0) -> dict[str, float]:
    for second, body in enumerate(bodies):
        distributions.observe(parse(body.encode()), start + second)
    return shown(distributions)


UNLOADED = f"# TYPE {triton.REQUEST_FAILURE} counter\n"
NONE = native({"10": 0, "100": 0, "1000": 0, "+Inf": 0}, 0)
SOME = native({"10": 90, "100": 95, "1000": 100, "+Inf": 100}, 2_500)


def test_tritons_histogram_is_best() -> None:
    """Triton's own histogram gives the spread; count and sum are its counters', to the microsecond."""
    series = feed(knowing(Distributions(BOUNDS), False), counters(0, 0) + NONE, counters(100, 2.55) + SOME)

    assert [90, 95, 100, 100] == buckets(series)
    assert (100, 2.55) == (series[f"{REQUEST}_count{{{M}}}"], pytest.approx(series[f"{REQUEST}_sum{{{M}}}"]))
    assert (["histogram"], ["sampled_mean"]) == (source(series), source(series, "queue"))


def quantiles(series: dict[str, float]) -> dict[str, float]:
    """Those of requests, by level."""
    start = f'{state.REQUEST_QUANTILE}{{{M},quantile="'
    return {name[len(start) : -2]: value for name, value in series.items() if name.startswith(start)}


def test_quantiles_of_tritons_histogram_are_as_fine_as_its_buckets() -> None:
    """90 of 100 within 10 ms, and five more within 100 ms: p95 is there, and with 100 requests there is no p99."""
    series = feed(Distributions(BOUNDS), counters(0, 0) + NONE, counters(100, 2.55) + SOME)

    assert {"0.5": pytest.approx(0.00556, rel=0.02), "0.95": pytest.approx(0.1, rel=0.01)} == quantiles(
        series
    )


def test_quantiles_of_summaries_are_tritons_own() -> None:
    """Where Triton keeps the level; they are of its last minute."""
    rows = [(0.5, 0.005), (0.95, 0.06), (0.99, 0.2), (0.999, 0.3)]
    bodies = [
        counters(count, 0.015 * count) + summary(count, 0.015 * count, rows) for count in range(0, 1201, 100)
    ]
    actual = quantiles(feed(Distributions(BOUNDS), *bodies))

    assert {"0.5": 0.005, "0.95": 0.06, "0.99": 0.2} == pytest.approx(actual, rel=0.08)


def test_what_triton_summarises_is_not_estimated_too() -> None:
    """Readings close to each other would have it estimated, which costs 17 MiB of numpy and 0.3 MB a model."""
    estimator = Estimator(BOUNDS)
    distributions = Distributions(BOUNDS, estimator=estimator)
    for tick in range(1, 30):
        requests, seconds = 10.0 * tick, 0.1 * tick
        body = counters(requests, seconds, seconds) + summary(requests, seconds, [(0.5, 0.005), (0.99, 0.2)])
        distributions.observe(parse(body.encode()), 0.4 * tick)

    assert ["summary"] == source(shown(distributions))
    version = ModelVersion("m", "1")
    places = [estimator.get(version, signal, 12.0, needed=False) for signal in SIGNALS]
    assert [True, False] == [place is None for place in places]


def test_summaries_of_all_models_tell_what_more_readings_would() -> None:
    """A model with a response cache has none of its requests."""
    every = exposition(2, 0)
    cached = re.sub(rb'nv_inference_request_summary_us.*model="model_1".*\n', b"", every)
    for body, is_told in ((every, True), (cached, False)):
        distributions = Distributions()
        distributions.observe(parse(body), 0.0)
        assert is_told is distributions.is_told


def test_a_sampled_mean_has_no_quantiles() -> None:
    """The mean of a second does not contain its slowest request."""
    bodies = [counters(100 * second, 2.5 * second) for second in range(60)]

    assert {} == quantiles(feed(Distributions(BOUNDS), *bodies))


@pytest.mark.parametrize(("streams", "signal"), [(False, "queue"), (True, "request"), (True, "queue")])
def test_what_tritons_histogram_does_not_time_is_sampled_at_every_reading(streams: bool, signal: str) -> None:
    """It times the first response of a stream, and no waits: single requests are exact, joined they take 0.13 s."""
    distributions = knowing(Distributions(BOUNDS), streams)
    distributions.observe(parse((counters(0, 0) + NONE).encode()), 0.0)
    for count in range(1, 20):
        took = 0.02 * count + 0.5 * (count // 4)
        body = counters(count, took + 0.001, took) + (SOME if count == 19 else "")
        (distributions.observe if count == 19 else distributions.sample)(parse(body.encode()), 0.05 * count)
    series = shown(distributions)
    bucket = f"triton_model_{signal}_duration_seconds_bucket"

    assert [15, 19] == [series[f'{bucket}{{{M},le="{end}"}}'] for end in ("0.1", "1.0")]


def test_tritons_histogram_is_not_lost_while_curves_wait() -> None:
    """It is entered at each full reading; quantile curves are read at every fifth."""
    points = [(0.5, 0.005), (0.99, 0.5)]
    bodies = [counters(0, 0) + NONE + summary(0, 0, points)]
    bodies += [counters(100, 2.55) + SOME + summary(100, 2.55, points)] * 6

    assert [90, 95, 100, 100] == buckets(feed(knowing(Distributions(BOUNDS), False), *bodies))


@pytest.mark.parametrize(("seconds", "expected"), [(2.55, "histogram"), (9.0, "sampled_mean")])
def test_without_a_configuration_the_sum_decides_the_histogram(seconds: float, expected: str) -> None:
    """Without the model's configuration, the histogram is used where its sum is the requests' time."""
    series = feed(Distributions(BOUNDS), counters(0, 0) + NONE, counters(100, seconds) + SOME)

    assert [expected] == source(series)


def test_useless_buckets_come_after_summaries() -> None:
    """A histogram without a bucket at the threshold is worse than a quantile curve, better than a mean."""
    coarse = [native({"500": 0, "+Inf": 0}, 0), native({"500": 90, "+Inf": 100}, 5_000)]
    points = [(0.5, 0.005), (0.95, 0.005), (0.99, 0.5)]
    bare = [counters(0, 0) + coarse[0], counters(100, 5) + coarse[1]]
    curve = [counters(0, 0) + coarse[0] + summary(0, 0, points)]
    curve += [counters(100, 5) + coarse[1] + summary(100, 5, points)] * 5

    assert ["histogram"] == source(feed(knowing(Distributions(BOUNDS), False), *bare))
    assert ["summary"] == source(feed(knowing(Distributions(BOUNDS), False), *curve))


def test_summary_shows_a_tail() -> None:
    """The share within a threshold is read off the quantile curve."""
    points = [(0.5, 0.005), (0.9, 0.005), (0.95, 0.5), (0.99, 0.5)]
    bodies = [counters(100 * n, 2.975 * n) + summary(100 * n, 2.975 * n, points) for n in range(11)]
    series = feed(Distributions(BOUNDS), *bodies)

    assert ["summary"] == source(series)
    assert 0.95 == pytest.approx(buckets(series)[1] / buckets(series)[3], abs=0.01)


def test_a_quantile_that_is_nan_is_replaced_by_the_mean() -> None:
    """Triton's Nan of an idle minute is not a quantile: the mean is taken."""
    nan = float("nan")
    bodies = [
        counters(0, 0) + summary(0, 0, [(0.5, nan)]),
        *[counters(2, 1) + summary(2, 1, [(0.5, nan)])] * 5,
    ]
    series = feed(Distributions(BOUNDS), *bodies)

    assert (["sampled_mean"], 2) == (source(series), buckets(series)[3])


def test_counters_that_are_off() -> None:
    """With counter_latencies=false the counters stand at 0, and the summaries count."""
    points = [(0.5, 0.005), (0.99, 0.5)]
    bodies = [counters(0, 0) + summary(7, 1, points), *[counters(0, 0) + summary(9, 1.5, points)] * 5]
    series = feed(Distributions(BOUNDS), *bodies)

    assert (2, 0.5) == (series[f"{REQUEST}_count{{{M}}}"], pytest.approx(series[f"{REQUEST}_sum{{{M}}}"]))


def test_requests_that_wait_for_a_curve_survive_an_unload() -> None:
    """Requests that wait for their turn with the curve are not lost when the model is unloaded."""
    points = [(0.5, 0.005), (0.99, 0.5)]
    for turns in range(5):
        bodies = [counters(0, 0) + summary(0, 0, points)] * (1 + turns)
        bodies += [counters(3, 1) + summary(3, 1, points), UNLOADED]
        assert 3 == feed(Distributions(BOUNDS), *bodies)[f"{REQUEST}_count{{{M}}}"]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 30),
            st.booleans(),
            st.booleans(),
            st.lists(st.floats(0.001, 2), max_size=3),
            st.booleans(),
        ),
        min_size=1,
        max_size=40,
    )
)
def test_a_change_of_source_only_adds(
    steps: list[tuple[int, bool, bool, list[float]]],
) -> None:
    """Sources come and go and the model reloads: no series ever falls, and no request is lost."""
    mailbox = Mailbox()
    distributions = knowing(Distributions(BOUNDS, mailbox), False)
    count, total, now, before = 0, 0, 0.0, dict[str, float]()
    points = [(0.5, 0.02), (0.99, 0.5)]
    distributions.observe(parse((counters(0, 0) + NONE + summary(0, 0, points)).encode()), now)
    for requests, has_native, has_summary, traces, reload in steps:
        now += 1
        count = requests if reload else count + requests
        total += requests if not reload else 0
        if reload:
            distributions.observe(parse(UNLOADED.encode()), now - 0.5)
            total += requests
        body = counters(count, count * 0.02)
        body += (
            native({"10": 0, "100": count, "1000": count, "+Inf": count}, count * 20) if has_native else ""
        )
        body += summary(count, count * 0.02, points) if has_summary else ""
        mailbox.put(
            TracedRequest(ModelVersion("m", "1"), "completed", now - 0.1, took, 0.0, "t") for took in traces
        )
        distributions.observe(parse(body.encode()), now)
        series = {
            name: value
            for name, value in shown(distributions).items()
            if not name.startswith(str(state.DISTRIBUTION_SOURCE)) and "quantile" not in name
        }
        assert [] == [name for name, value in before.items() if series[name] < value - 1e-9]
        assert buckets(series) == sorted(buckets(series))
        before = series
    for _ in range(60):
        now += 1
        distributions.observe(parse(counters(count, count * 0.02).encode()), now)

    assert total == shown(distributions)[f"{REQUEST}_count{{{M}}}"]
    assert total * 0.02 == pytest.approx(shown(distributions)[f"{REQUEST}_sum{{{M}}}"])
