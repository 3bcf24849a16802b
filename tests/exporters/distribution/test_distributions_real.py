"""Test distributions beside a real Triton: exact sums through reloads, traces, and uncounted rejections."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests

from exporters.paced import Traffic
from support.exporter import RunningExporter, ScrapedPage, exporting
from support.loopback import free_ports
from support.otlp import as_json, request
from support.repository import Repository
from support.sleeper import sleep_request, write_sleeper
from support.triton import control, infer, live_triton
from triton_exporter.app.features import distribution_parts
from triton_exporter.app.settings import Settings
from triton_exporter.catalogue import own, state, triton
from triton_exporter.distribution.buckets import DEFAULT_BOUNDS
from triton_exporter.http.client import Client
from triton_exporter.tracing.trace import Mailbox
from triton_exporter.tracing.trace_setting import TraceRate
from tritonwatch.local import TritonServer

pytestmark = pytest.mark.real

QUEUE_OF_TWO = "dynamic_batching { default_queue_policy { max_queue_size: 2 } }\n"


@pytest.fixture(scope="module")
def otlp_port() -> int:
    return free_ports(1)[0]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, otlp_port: int) -> Iterator[TritonServer]:
    directory = tmp_path_factory.mktemp("distributions-real")
    for name in ("plain", "mixed"):
        write_sleeper(directory / "models", name)
    write_sleeper(directory / "models", "tight", config=QUEUE_OF_TWO)
    repository = Repository(directory / "models")
    repository.model("part", delay_seconds=0.02)
    repository.ensemble("whole", "part", version="7")
    arguments = ["--load-model=*", "--trace-config=mode=opentelemetry", "--trace-config=level=TIMESTAMPS"]
    arguments += ["--trace-config=rate=1", "--trace-config=opentelemetry,bsp_schedule_delay=300"]
    arguments += [f"--trace-config=opentelemetry,url=http://127.0.0.1:{otlp_port}/v1/traces"]
    with live_triton(repository.path, directory, "explicit", arguments, auto_complete=True) as server:
        yield server


@pytest.fixture(scope="module")
def traced(server: TritonServer, otlp_port: int) -> Iterator[RunningExporter]:
    """Yield an exporter that receives the server's traces."""
    settings = Settings(
        triton=server.http_url,
        triton_metrics=server.metrics_url,
        buckets_from={"request": (0.15,), "queue": (0.03,)},
        otlp_listen=("127.0.0.1", otlp_port),
    )
    with exporting(server.http_url, server.metrics_url, parts=distribution_parts(settings)) as running:
        running.wait(lambda page: count(page, "tight") is not None)
        yield running


def count(page: ScrapedPage, model: str) -> float | None:
    return page.value(state.REQUEST_DURATION.count, model=model, version="1")


def send(server: TritonServer, model: str, sleeps: list[float], at_once: int = 1) -> Counter[int]:
    with ThreadPoolExecutor(at_once) as pool:
        return Counter(pool.map(lambda s: sleep_request(server.http_url, model, [s], time.time()), sleeps))


def timed(server: TritonServer, model: str, sleeps: list[float], at_once: int) -> list[float]:
    """Send, and measure what each request took the client."""

    def send_for(sleep: float) -> float:
        started = time.monotonic()
        assert 200 == sleep_request(server.http_url, model, [sleep], time.time())
        return time.monotonic() - started

    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(send_for, sleeps))


def seconds_counted(server: TritonServer, model: str) -> float:
    page = ScrapedPage(requests.get(server.metrics_url, timeout=5).text)
    micros = page.value(triton.REQUEST_DURATION_US, model=model, version="1")
    assert micros is not None
    return micros / 1e6


def test_sum_and_count_survive_reloads(server: TritonServer) -> None:
    """Through unload, load and hot reload, count is every answered request and sum all their time."""
    settings = Settings(triton=server.http_url, triton_metrics=server.metrics_url)
    with exporting(server.http_url, server.metrics_url, parts=distribution_parts(settings)) as exporter:
        exporter.wait(lambda page: count(page, "plain") is not None)
        assert {200: 7} == send(server, "plain", [0.01] * 7)
        exporter.wait(lambda page: count(page, "plain") == 7)
        before_unload = seconds_counted(server, "plain")
        assert 200 == control(server, "unload", "plain")
        time.sleep(0.5)  # two samples without it
        assert 200 == control(server, "load", "plain")
        assert {200: 9} == send(server, "plain", [0.01] * 9)
        exporter.wait(lambda page: count(page, "plain") == 16)
        config = server.repository / "plain" / "config.pbtxt"
        config.write_text(config.read_text() + "# touched\n")
        assert 200 == control(server, "load", "plain")
        assert {200: 2} == send(server, "plain", [0.01] * 2)
        page = exporter.wait(lambda page: count(page, "plain") == 18)

        truth = before_unload + seconds_counted(server, "plain")
        assert truth == pytest.approx(page.value(state.REQUEST_DURATION.sum, model="plain", version="1"))
        # A request that is alone in its interval is certain, and counts as decomposed.
        labels = {"model": "plain", "version": "1", "signal": "request"}
        feeding = [
            page.value(state.DISTRIBUTION_SOURCE, **labels, source=source) or 0
            for source in ("sampled_mean", "decomposed")
        ]
        assert 1 == sum(feeding)


def test_a_histogram_is_of_one_moment_and_never_shrinks(server: TritonServer) -> None:
    """While requests and a reload go on, every page has count = +Inf and rising buckets; a restart resets all."""
    settings = Settings(triton=server.http_url, triton_metrics=server.metrics_url)

    def histogram(page: ScrapedPage) -> list[float]:
        """Return the buckets of a page, the lowest first; the last one is that of all requests."""
        buckets = {
            float(dict(labels)["le"]): value
            for labels, value in page.series(state.REQUEST_DURATION.bucket).items()
            if dict(labels)["model"] == "mixed"
        }
        values = [buckets[le] for le in sorted(buckets)]
        assert values == sorted(values)
        assert values[-1] == count(page, "mixed")
        return values

    with exporting(server.http_url, server.metrics_url, parts=distribution_parts(settings)) as exporter:
        exporter.wait(lambda page: count(page, "mixed") is not None)
        pages = [histogram(exporter.scrape())]
        with ThreadPoolExecutor(1) as pool:
            sleeps = [0.002, 0.03, 0.3] * 8
            for sent in (pool.submit(send, server, "mixed", sleeps, 3) for _ in range(2)):
                while not sent.done():
                    pages.append(histogram(exporter.scrape()))
                    time.sleep(0.02)
                assert {200: len(sleeps)} == sent.result()
                assert 200 == control(server, "unload", "mixed")
                assert 200 == control(server, "load", "mixed")
        page = exporter.wait(lambda page: count(page, "mixed") == 2 * len(sleeps))
        pages.append(histogram(page))
    for before, after in itertools.pairwise(pages):
        assert all(old <= new for old, new in zip(before, after, strict=True))
    assert len(pages) > 5  # a busy machine answers few
    with exporting(server.http_url, server.metrics_url, parts=distribution_parts(settings)) as exporter:
        exporter.wait(lambda page: count(page, "mixed") is not None)
        assert {0.0} == set(histogram(exporter.scrape()))


def test_default_buckets_have_a_stated_error(server: TritonServer) -> None:
    """Without objectives the error of an estimate is stated at every bound of its histogram."""
    settings = Settings(triton=server.http_url, triton_metrics=server.metrics_url)
    labels = {"model": "plain", "version": "1", "signal": "request"}
    with (
        exporting(server.http_url, server.metrics_url, parts=distribution_parts(settings)) as exporter,
        Traffic(server, "plain", 40),
    ):
        page = exporter.wait(
            lambda page: (
                page.value(state.DISTRIBUTION_SOURCE, **labels, source="decomposed")
                and page.value(state.DISTRIBUTION_ERROR, **labels, le="0.5") is not None
            )
        )
    errors = {
        dict(key)["le"]: error
        for key, error in page.series(state.DISTRIBUTION_ERROR).items()
        if labels.items() <= dict(key).items()
    }

    assert {str(bound) for bound in DEFAULT_BOUNDS} == errors.keys()
    assert all(0 <= error <= 1 for error in errors.values())


def test_traces_show_the_tail_and_the_queue(server: TritonServer, traced: RunningExporter) -> None:
    """With traces the share within a threshold is that of the requests themselves, in request and queue."""
    assert {200: 1} == send(server, "mixed", [0.0])
    traced.wait(
        lambda page: page.value(state.TRACED_REQUESTS, model="mixed", version="1", outcome="completed")
    )
    sleeps = [0.2 if number % 10 == 0 else 0.005 for number in range(40)]
    took = timed(server, "mixed", sleeps, at_once=2)
    time.sleep(1.5)
    # A later trace, of any model, proves that the traces of these are all there.
    assert {200: 1} == send(server, "plain", [0.0])
    page = traced.wait(lambda page: count(page, "mixed") == 41)

    def share(metric: str, le: str) -> float | None:
        return page.value(metric, model="mixed", version="1", le=le)

    labels = {"model": "mixed", "version": "1", "signal": "request", "source": "trace"}
    assert 1 == page.value(state.DISTRIBUTION_SOURCE, **labels)
    # Triton's time is part of the client's: what was fast for the client was fast in Triton, and no request
    # was faster than it slept. Of two senders, the one behind a slow request queues. One request may fall to
    # the interval beside its own.
    fast = sum(seconds <= 0.15 for seconds in took)
    unqueued = sum(seconds - sleep <= 0.03 for seconds, sleep in zip(took, sleeps, strict=True))
    assert fast - 1 <= (share(state.REQUEST_DURATION.bucket, "0.15") or 0) <= 1 + 36
    assert unqueued - 1 <= (share(state.QUEUE_DURATION.bucket, "0.03") or 0) < 41
    assert 41 == share(state.QUEUE_DURATION.bucket, "+Inf")


def test_traces_of_an_ensemble_in_any_folder_feed_its_histogram(
    server: TritonServer, traced: RunningExporter
) -> None:
    """Triton counts an ensemble under version 1 and traces it under its folder's name: both meet."""
    traced.wait(lambda page: page.value(state.MODEL_READY, model="whole", version="7"))
    for _ in range(5):
        assert 200 == infer(server, "whole")
    page = traced.wait(
        lambda page: page.value(state.TRACED_REQUESTS, model="whole", version="1", outcome="completed") == 5
    )
    labels = {"model": "whole", "version": "1", "signal": "request", "source": "trace"}
    page = traced.wait(lambda page: page.value(state.DISTRIBUTION_SOURCE, **labels) == 1)

    assert not page.value(state.TRACED_REQUESTS, model="whole", version="7", outcome="completed")
    assert 1 <= (count(page, "whole") or 0) <= 5


def test_queue_full_rejections_are_counted(server: TritonServer, traced: RunningExporter) -> None:
    """Requests that a full queue refused show in traces, and in no counter of Triton."""
    answers = send(server, "tight", [0.2] * 12, at_once=12)
    assert answers[503] > 0
    page = traced.wait(
        lambda page: page.value(state.QUEUE_FULL_ESTIMATE, model="tight", version="1") == answers[503]
    )

    rejected = triton.REQUEST_FAILURE
    assert 0 == page.value(rejected, model="tight", version="1", reason="REJECTED")
    assert 0 == page.value(own.TRACES_LOST, reason="malformed")
    assert 0 < (page.value(own.TRACE_BATCHES, result="accepted") or 0)


def test_traces_of_a_real_triton_are_accepted_and_forged_ones_are_not(
    server: TritonServer, traced: RunningExporter, otlp_port: int
) -> None:
    """Requests of a few milliseconds agree with the counters; spans of 30 s that somebody posts do not."""
    labels = {"model": "plain", "version": "1", "signal": "request"}

    def loaded(times: int, forged: int) -> ScrapedPage:
        url = f"http://127.0.0.1:{otlp_port}/v1/traces"
        for number in range(times):
            assert {200: 10} == send(server, "plain", [0.01] * 9 + [0.1])
            spans = [
                span
                for place in range(forged)
                for span in request("plain", time.time() - 30, 0.0, 29.9, 1000 * number + place)
            ]
            if spans:
                headers = {"Content-Type": "application/json"}
                assert 200 == requests.post(url, as_json(*spans), headers=headers, timeout=5).status_code
        return traced.scrape()

    page = loaded(40, forged=0)
    page = traced.wait(lambda page: page.value(state.DISTRIBUTION_SOURCE, **labels, source="trace") == 1)
    assert 0 == page.value(own.TRACES_LOST, reason="contradicts")
    assert 0 == page.value(own.TRACES_LOST, reason="ahead")

    loaded(40, forged=10)
    page = traced.wait(
        lambda page: page.value(state.DISTRIBUTION_SOURCE, **labels, source="sampled_mean") == 1
    )
    assert 0 < (page.value(own.TRACES_LOST, reason="contradicts") or 0)


def test_trace_rate_is_read(server: TritonServer) -> None:
    """The trace rate comes from Triton's own setting, with a request that changes nothing."""
    mailbox = Mailbox()
    mailbox.rate = 7
    TraceRate(Client(server.http_url), mailbox).poll(0)

    assert 1 == mailbox.rate


def test_a_taken_port_for_traces(server: TritonServer) -> None:
    """A port that is taken is refused when the exporter is built, not later."""
    settings = Settings(
        triton=server.http_url,
        triton_metrics=server.metrics_url,
        otlp_listen=("127.0.0.1", server.ports.http),
    )

    with pytest.raises(OSError, match="in use"):
        distribution_parts(settings)


def seen(page: ScrapedPage, outcome: str) -> float | None:
    return page.value(state.TRACED_REQUESTS, model="mixed", version="1", outcome=outcome)
