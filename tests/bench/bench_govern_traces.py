"""Measure governed traces beside a real Triton: 20 a second at 100 requests a second, 5 % of them slow.

The truth is what the clients measured. Takes six minutes; TRITONWATCH_GOVERN_SECONDS sets another time.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests

from support.exporter import ScrapedPage
from support.loopback import free_ports
from support.sleeper import write_sleeper
from support.triton import live_triton
from support.waiting import eventually
from triton_exporter.catalogue import own, state
from triton_exporter.catalogue.metric import Metric
from tritonwatch.local.triton import TritonServer

SECONDS = float(os.environ.get("TRITONWATCH_GOVERN_SECONDS", "300"))
FIRST_SECONDS, LAST_SECONDS = 15.0, 20.0
"""Before the measured requests, until the rate is set; after them, until the last traces have arrived."""

THRESHOLD = 0.2
MODEL = {"model": "sleeper", "version": "1"}
LOAD = Path(__file__).parents[1] / "slo" / "load.py"


def plan(seconds: float) -> Iterator[str]:
    """Yield a hundred requests a second at random times; one in twenty takes 400 ms instead of 2."""
    rng, at = random.Random(5), 0.0
    while (at := at + rng.expovariate(100)) < seconds:
        yield json.dumps({"model": "sleeper", "at": at, "sleeps": [0.4 if rng.random() < 0.05 else 0.002]})


def send(server: TritonServer, folder: Path, seconds: float) -> list[tuple[float, float]]:
    """Send from a process of its own: seconds asked for and taken of each request."""
    (folder / "plan").write_text("\n".join(plan(seconds)))
    with (folder / "plan").open("rb") as standard_input:
        command = [sys.executable, str(LOAD), server.http_url, str(time.time() + 1)]
        output = subprocess.run(command, stdin=standard_input, stdout=subprocess.PIPE, check=True).stdout
    return [(slept, took) for _, slept, took in map(json.loads, output.splitlines())]


@pytest.mark.real
@pytest.mark.timeout(900)
def test_the_share_within_a_threshold_is_true_to_a_point(tmp_path: Path) -> None:
    """Twenty traces a second show the share of requests within a threshold as the clients saw it."""
    write_sleeper(tmp_path / "models", "sleeper", instances=5)
    port, listen = free_ports(2)
    url = f"--trace-config=opentelemetry,url=http://127.0.0.1:{port}/v1/traces"
    with live_triton(
        tmp_path / "models", tmp_path, arguments=["--trace-config=mode=opentelemetry", url]
    ) as server:
        command = [sys.executable, "-m", "tritonwatch", "exporter", "--gpu", "none"]
        command += ["--triton", server.http_url, "--triton-metrics", server.metrics_url]
        command += ["--otlp-listen", f"127.0.0.1:{port}", "--govern-traces", "20"]
        command += ["--buckets", f"sleeper=0.01,0.05,0.1,{THRESHOLD},0.3,0.5,1"]
        exporter = subprocess.Popen([*command, "--listen", f"127.0.0.1:{listen}"])
        try:

            def scraped() -> ScrapedPage:
                return ScrapedPage(requests.get(f"http://127.0.0.1:{listen}/metrics", timeout=20).text)

            eventually(lambda: scraped().value(own.TRACE_GOVERNOR, state="idle"), "does not begin")
            send(server, tmp_path, FIRST_SECONDS)
            begun = settled(scraped)
            times = send(server, tmp_path, SECONDS)
            ended = settled(scraped)
        finally:
            exporter.terminate()
            exporter.wait(20)

    def grown(metric: Metric | str, **labels: str) -> float:
        return (ended.value(metric, **labels) or 0) - (begun.value(metric, **labels) or 0)

    actual = grown(state.REQUEST_DURATION.bucket, **MODEL, le=str(THRESHOLD)) / grown(
        state.REQUEST_DURATION.count, **MODEL
    )
    asked, clients = (sum(pair[kind] <= THRESHOLD for pair in times) / len(times) for kind in (0, 1))
    traced = grown(state.TRACED_REQUESTS, **MODEL, outcome="completed") / SECONDS
    posts = grown(own.TRACE_POSTS, result="accepted")
    print(
        f"{len(times)} requests in {SECONDS:.0f} s, {traced:.1f} traced a second, {posts:.0f} settings sent"
    )
    print(f"within {THRESHOLD} s: shown {actual:.2%}, clients {clients:.2%}, asked for {asked:.2%}")
    assert clients == pytest.approx(actual, abs=0.01)


def settled(scraped: Callable[[], ScrapedPage]) -> ScrapedPage:
    time.sleep(LAST_SECONDS)
    return scraped()
