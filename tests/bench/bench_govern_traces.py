"""Governed traces beside a real Triton: 20 a second at 100 requests a second, 5 % of them slow.

The truth is what the clients measured. Takes five minutes; TRITONWATCH_GOVERN_SECONDS sets another time.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from support.exporter import exporting
from support.paced import Traffic
from support.sleeper import write_sleeper
from support.triton import live_triton
from triton_exporter.app.features import distribution_parts
from triton_exporter.app.settings import Settings
from triton_exporter.catalogue import own, state
from triton_exporter.distribution.buckets import Buckets
from tritonwatch.local.triton import free_ports

SECONDS = float(os.environ.get("TRITONWATCH_GOVERN_SECONDS", "300"))
SETTLE_SECONDS = 25.0
THRESHOLD = 0.2
MODEL = {"model": "sleeper", "version": "1"}


@pytest.mark.real
@pytest.mark.timeout(900)
def test_the_share_within_a_threshold_is_true_to_a_point(tmp_path: Path) -> None:
    """Twenty traces a second show the share of requests within a threshold as the clients saw it."""
    write_sleeper(tmp_path / "models", "sleeper", instances=5)
    [port] = free_ports(1)
    url = f"--trace-config=opentelemetry,url=http://127.0.0.1:{port}/v1/traces"
    arguments = ["--trace-config=mode=opentelemetry", url]
    with live_triton(tmp_path / "models", tmp_path, arguments=arguments) as server:
        settings = Settings(
            server.http_url,
            server.metrics_url,
            buckets=Buckets(thresholds={"request": (THRESHOLD,)}),
            otlp_listen=("127.0.0.1", port),
            govern_traces=20.0,
        )
        parts = distribution_parts(settings)
        with (
            exporting(
                server.http_url, server.metrics_url, parts=parts, sampling_interval_seconds=0.05
            ) as exporter,
            Traffic(server, "sleeper", 100) as traffic,
        ):
            exporter.wait(lambda page: page.value(own.TRACE_RATE, model="sleeper"))
            time.sleep(SETTLE_SECONDS)
            begun, first = exporter.scrape(), len(traffic.times)
            time.sleep(SECONDS)
            times = traffic.times[first:]
            ended = exporter.scrape()
    name = state.REQUEST_DURATION
    within, total = (
        (ended.value(one, **labels) or 0) - (begun.value(one, **labels) or 0)
        for one, labels in ((name.bucket, MODEL | {"le": str(THRESHOLD)}), (name.count, MODEL))
    )
    traced, posts = (
        (ended.value(one, **labels) or 0) - (begun.value(one, **labels) or 0)
        for one, labels in (
            (state.TRACED_REQUESTS, MODEL | {"outcome": "completed"}),
            (own.TRACE_POSTS, {"result": "accepted"}),
        )
    )
    truth = sum(one <= THRESHOLD for one in times) / len(times)
    print(
        f"{len(times)} requests in {SECONDS:.0f} s, {traced / SECONDS:.1f} traced a second, {posts:.0f} settings: "
        f"within {THRESHOLD} s {100 * within / total:.2f} %, clients {100 * truth:.2f} %"
    )
    assert truth == pytest.approx(within / total, abs=0.01)
