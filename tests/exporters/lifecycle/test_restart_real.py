"""Test restarts of the exporter: no request is lost, and no alert about a model that is down ends or is late."""

from __future__ import annotations

import itertools
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from support.exporter import ScrapedPage
from support.fast_prometheus import INTERVAL_SECONDS, fast_prometheus
from support.loopback import free_ports
from support.repository import Repository
from support.sleeper import sleep_request, write_sleeper
from support.triton import live_triton
from support.waiting import eventually
from triton_alerts.generate import artifacts
from triton_dashboards.generate import artifacts as dashboards
from triton_exporter.catalogue import state, triton
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.prometheus import Prometheus
from triton_slo.server_access import Access
from tritonwatch.local import TritonServer
from tritonwatch.web.pages.model_page import read_timeline

pytestmark = pytest.mark.real

Key = tuple[str, frozenset[tuple[str, str]]]
COUNT = (f"{state.REQUEST_DURATION}_count", frozenset({("model", "steady"), ("version", "1")}))
SUM = (f"{state.REQUEST_DURATION}_sum", COUNT[1])
QUEUE_COUNT = (f"{state.QUEUE_DURATION}_count", COUNT[1])


class Scraper:
    """Scrapes at a steady pace and adds up what `increase` counts; a failed scrape is a missing sample."""

    def __init__(self, url: str, seconds: float) -> None:
        self._url, self._seconds = url, seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._last: dict[Key, float] = {}
        self.increase: dict[Key, float] = {}
        self.resets = 0

    def __enter__(self) -> Scraper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def has(self, key: Key) -> bool:
        return key in self._last

    def _run(self) -> None:
        while not self._stop.wait(self._seconds):
            try:
                answer = requests.get(self._url, timeout=5)
            except requests.RequestException:
                continue
            self._take(ScrapedPage(answer.text))

    def _take(self, page: ScrapedPage) -> None:
        for metric in (state.REQUEST_DURATION, state.QUEUE_DURATION):
            for name in (metric.count, metric.sum, metric.bucket):
                for labels, value in page.series(name).items():
                    self._add((name, labels), value)

    def _add(self, key: Key, value: float) -> None:
        # A series' first sample is only a starting point, and a lower value means a start from zero.
        last = self._last.get(key, value)
        self.resets += value < last
        self.increase[key] = self.increase.get(key, 0.0) + (value - last if value >= last else value)
        self._last[key] = value


class Clients:
    """Steady requests until the block ends; counts those that were answered."""

    def __init__(self, server: TritonServer, per_second: float, threads: int = 4) -> None:
        self._server, self._pause = server, threads / per_second
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(threads)]
        self._answered = itertools.count()

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self.answered = next(self._answered)

    def _run(self, seed: int) -> None:
        draw = random.Random(seed)
        while not self._stop.wait(draw.expovariate(1 / self._pause)):
            sleep = 0.06 if draw.random() < 0.05 else 0.003
            if sleep_request(self._server.http_url, "steady", [sleep], time.time()) == 200:
                next(self._answered)


class Process:
    """A real exporter that is started again and again on one port."""

    def __init__(self, server: TritonServer, log: Path, options: list[str]) -> None:
        port = free_ports(1)[0]
        self.url = f"http://127.0.0.1:{port}/metrics"
        self.command = [sys.executable, "-m", "tritonwatch", "exporter", "--gpu=none", "--triton"]
        self.command += [server.http_url, "--triton-metrics", server.metrics_url]
        self.command += ["--listen", f"127.0.0.1:{port}", *options]
        self.log = log

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)
        eventually(lambda: requests.get(self.url, timeout=5).ok, "no page")

    def end(self, how: signal.Signals) -> None:
        self.process.send_signal(how)
        self.process.wait(30)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    directory = tmp_path_factory.mktemp("restart-real")
    write_sleeper(directory / "models", "steady", instances=2)
    Repository(directory / "models").model("broken", **{"raise": "weights missing"})
    with live_triton(directory / "models", directory) as server:
        yield server


@contextmanager
def exporting_again(server: TritonServer, tmp_path: Path, *options: str) -> Iterator[Process]:
    process = Process(server, tmp_path / "exporter.log", list(options))
    process.start()
    try:
        yield process
    finally:
        process.end(signal.SIGKILL)


def through_restarts(
    server: TritonServer, tmp_path: Path, ends: list[signal.Signals], *options: str
) -> tuple[Scraper, int]:
    """Return what a scraper counted, and how many requests were answered, while exporters ended so."""
    draw = random.Random(15)
    with (
        exporting_again(server, tmp_path, *options) as process,
        Scraper(process.url, 1.0) as scraper,
    ):
        eventually(lambda: scraper.has(COUNT), "no histogram")
        with Clients(server, 50) as clients:
            for how in ends:
                time.sleep(draw.uniform(2.5, 5.5))
                process.end(how)
                process.start()
            time.sleep(3)
        # Requests that wait for an estimate enter late.
        eventually(
            lambda: min(scraper.increase.get(key, 0.0) for key in (COUNT, QUEUE_COUNT)) >= clients.answered,
            lambda: f"{clients.answered} answered, {scraper.increase[COUNT]:g} counted",
        )
        time.sleep(2)  # a request that is counted twice would be by the next scrapes
    return scraper, clients.answered


def seconds_of_triton(server: TritonServer) -> float:
    page = ScrapedPage(requests.get(server.metrics_url, timeout=5).text)
    return (page.value(triton.REQUEST_DURATION_US, model="steady", version="1") or 0.0) / 1e6


def test_a_restart_loses_no_request(server: TritonServer, tmp_path: Path) -> None:
    """Killed or ended, with a state file the histograms go on where they were, and every request counts once."""
    before = seconds_of_triton(server)
    ends = [signal.SIGKILL, signal.SIGTERM]

    scraper, answered = through_restarts(server, tmp_path, ends, "--state-file", str(tmp_path / "state.json"))

    assert 0 == scraper.resets
    assert answered == scraper.increase[COUNT] == scraper.increase[QUEUE_COUNT]
    assert seconds_of_triton(server) - before == pytest.approx(scraper.increase[SUM])


@pytest.mark.thorough
def test_alerts_of_a_model_that_is_down_are_neither_late_nor_resolved(
    server: TritonServer, tmp_path: Path
) -> None:
    """The exporter, without a state file, is killed while the alert is due; then its own date takes over.

    A minute is 1.5 s: the alert is due after 15 s without the model, and would end 7.5 s after its condition.
    """
    options = Options(time_scale=1 / 40, scrape_interval_seconds=INTERVAL_SECONDS)
    rules = [*artifacts((), options), *dashboards((), options)]
    with exporting_again(server, tmp_path) as process:
        address = process.url.removesuffix("/metrics")
        with fast_prometheus(address, rules, tmp_path / "watch") as watch:
            watch.wait_seen(f'{state.MODEL_NOT_READY_SINCE}{{model="broken"}} < time() - 7')
            process.end(signal.SIGKILL)
            process.start()
            restarted = time.time()
            first = watch.wait("TritonModelNotReadyProlonged", model="broken")
            fired = time.time()
            time.sleep(max(0.0, restarted + 17 - fired))

            (alert,) = watch.alerts("TritonModelNotReadyProlonged", model="broken")
            assert first["activeAt"] == alert["activeAt"], "it was resolved"
            # The other model was ready before anybody looked: neither first samples nor the gap are a load.
            assert [] == watch.samples(f'count_over_time({names.BECAME_READY}{{model="steady"}}[5m])')
            timeline = read_timeline(Prometheus(Access(watch.url)), "steady", time.time(), 300, options)
            assert 1 == len(timeline.lanes)
            assert () == timeline.loads
    assert fired < restarted + 14, "it counts from the restart"
