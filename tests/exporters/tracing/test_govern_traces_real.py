"""Test the governor of traces beside a real Triton that was started with a url and no level."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from exporters.paced import Traffic
from support.exporter import ScrapedPage, exporting
from support.loopback import free_ports
from support.sleeper import write_sleeper
from support.triton import live_triton
from support.waiting import eventually
from triton_exporter.app.features import distribution_parts
from triton_exporter.app.settings import Settings
from triton_exporter.catalogue import own, state, triton
from triton_exporter.distribution.buckets import Buckets
from triton_exporter.tracing.trace_setting import SettingClient, TraceSetting
from tritonwatch.local.triton import TritonServer

pytestmark = pytest.mark.real

THRESHOLD = 0.2


@pytest.fixture(scope="module")
def otlp_port() -> int:
    return free_ports(1)[0]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, otlp_port: int) -> Iterator[TritonServer]:
    """Start Triton as the documentation recommends: it traces nothing."""
    directory = tmp_path_factory.mktemp("govern")
    for name in ("stepped", "left"):
        write_sleeper(directory / "models", name, instances=4 if name == "stepped" else 1)
    url = f"opentelemetry,url=http://127.0.0.1:{otlp_port}/v1/traces"
    arguments = ["--trace-config=mode=opentelemetry", f"--trace-config={url}"]
    with live_triton(directory / "models", directory, arguments=arguments) as server:
        yield server


def setting(server: TritonServer, model: str) -> TraceSetting:
    with closing(SettingClient(server.http_url)) as client:
        rate = client.setting(model)
    assert rate is not None
    return rate


def test_the_rate_follows_the_traffic_and_the_share_is_true(server: TritonServer, otlp_port: int) -> None:
    """At 20 requests a second all are traced, at 80 some; the share within a threshold is true."""
    settings = Settings(
        server.http_url,
        server.metrics_url,
        buckets=Buckets(thresholds={"request": (THRESHOLD,)}),
        otlp_listen=("127.0.0.1", otlp_port),
        govern_traces=20.0,
    )
    parts = distribution_parts(settings)
    with (
        exporting(
            server.http_url, server.metrics_url, parts=parts, sampling_interval_seconds=0.05
        ) as exporter,
        Traffic(server, "stepped", 10) as traffic,
    ):
        exporter.wait(lambda page: page.value(own.TRACE_RATE, model="stepped") == 1)
        traffic.per_second = 80
        page = exporter.wait(lambda page: (page.value(own.TRACE_RATE, model="stepped") or 0) >= 4)
        assert 1 == page.value(own.TRACE_GOVERNOR, state="tracing")
        exporter.wait(lambda page: of(page, state.DISTRIBUTION_SOURCE, source="trace") == 1, 40)
        begun, sent = exporter.scrape(), len(traffic.times)
        time.sleep(60)
        ended, shown = exporter.scrape(), traffic.times[sent:]
        traced = of(ended, state.TRACED_REQUESTS, outcome="completed") - of(
            begun, state.TRACED_REQUESTS, outcome="completed"
        )
        assert 5 * 60 <= traced <= 25 * 60
        assert (ended.value(own.TRACE_POSTS, result="accepted") or 0) < 60
        asked, clients = (sum(times[kind] <= THRESHOLD for times in shown) / len(shown) for kind in (0, 1))
        actual = share(begun, ended)
        print(
            f"share {actual:.4f}, clients {clients:.4f}, asked {asked:.4f}, traced {traced:.0f} of {len(shown)}"
        )
        # Client and server share two busy cores: what the client waited for itself is in its times only. By chance
        # alone, the share of so many traces is within four standard errors in all but one of 15,000 runs.
        chance = 4 * math.sqrt(actual * (1 - actual) / traced)
        assert clients - chance <= actual <= asked + chance
    eventually(lambda: not setting(server, "stepped").on, "is still traced")


def of(page: ScrapedPage, metric: object, **labels: str) -> float:
    signal_label = {"signal": "request"} if metric is state.DISTRIBUTION_SOURCE else {}
    return page.value(str(metric), model="stepped", version="1", **signal_label, **labels) or 0.0


def share(begun: ScrapedPage, ended: ScrapedPage) -> float:
    """Return the share within the threshold of what entered the histogram between two pages."""
    whole, name = {"model": "stepped", "version": "1"}, state.REQUEST_DURATION
    within, total = (
        (ended.value(series, **labels) or 0) - (begun.value(series, **labels) or 0)
        for series, labels in ((name.bucket, whole | {"le": str(THRESHOLD)}), (name.count, whole))
    )
    return within / total


def command(server: TritonServer, otlp_port: int) -> list[str]:
    where = ["--triton", server.http_url, "--triton-metrics", server.metrics_url, "--gpu", "none"]
    traces = ["--otlp-listen", f"127.0.0.1:{otlp_port}", "--govern-traces", "20"]
    listen = ["--listen", f"127.0.0.1:{free_ports(1)[0]}"]
    return [sys.executable, "-m", "tritonwatch", "exporter", *where, *traces, *listen]


def test_a_killed_exporter_leaves_a_bounded_trace_rate(server: TritonServer, otlp_port: int) -> None:
    """After SIGKILL no more than ten seconds' traces follow, and the next exporter turns them off."""
    with Traffic(server, "left", 15):
        killed = subprocess.Popen(command(server, otlp_port))
        try:
            eventually(lambda: setting(server, "left").on, "is not traced")
        finally:
            killed.send_signal(signal.SIGKILL)
            killed.wait()
        left = setting(server, "left")
        print(f"left: {left}")
        assert left.on
        assert 1 <= left.count <= 10 * 20 * 2
        eventually(lambda: setting(server, "left").count == 0, "is still traced", 60)
    with closing(SettingClient(server.http_url)) as client:
        client.trace("left", 3, 50)
    ended = subprocess.Popen(command(server, otlp_port), env=os.environ, stderr=subprocess.PIPE, text=True)
    try:
        eventually(lambda: not setting(server, "left").on, "is still traced")
    finally:
        ended.send_signal(signal.SIGTERM)
        _, log = ended.communicate(timeout=20)
    assert "left one request in 3 of model left traced; turned off" in log


def test_the_end_of_an_exporter_turns_traces_off(server: TritonServer, otlp_port: int) -> None:
    """SIGTERM: the models have Triton's own setting again when the process has ended."""
    with Traffic(server, "left", 15):
        process = subprocess.Popen(command(server, otlp_port))
        try:
            eventually(lambda: setting(server, "left").on, "is not traced")
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(20)
        assert not setting(server, "left").on


def test_nothing_is_traced_and_nothing_sent_without_the_flag(server: TritonServer, otlp_port: int) -> None:
    """A receiver alone leaves Triton's trace settings as they are."""
    settings = Settings(server.http_url, server.metrics_url, otlp_listen=("127.0.0.1", otlp_port))
    parts = distribution_parts(settings)
    with exporting(server.http_url, server.metrics_url, parts=parts) as exporter, Traffic(server, "left", 15):
        exporter.wait(lambda page: (page.value(triton.REQUEST_SUCCESS, model="left", version="1") or 0) > 30)
        page = exporter.wait(lambda page: page.series(state.TRACED_REQUESTS))

        assert not setting(server, "left").on
        assert {} == page.series(own.TRACE_GOVERNOR)
