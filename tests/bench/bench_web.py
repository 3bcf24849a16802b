"""Measure what a web page costs its server and Prometheus at 1,000 models with two objectives, beside Pyrra's.

Pyrra's pages are the queries that its server and its user interface send for the same rows (pyrra-dev/pyrra 0.10:
GetStatus, GraphErrorBudget, GraphRate, GraphErrors, GetAlerts), on series in the shape that it records. CPU seconds
are those of the processes themselves: other programs on the machine hardly change them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import requests

from bench.process_usage import ProcessUsage
from support import history, web_fleet
from support.browser import page_on, running_chromium
from support.loopback import free_ports
from support.tools import ROOT
from support.waiting import eventually
from triton_slo import names
from triton_slo.report.events import ReportedPeriod

MODELS = int(os.environ.get("BENCH_MODELS", 1000))
VIEWERS, WARM = 50, 20
OBJECTIVE = "/objective?slo=latency&model=ranker&version=2"
REPORT = "/report?period=this-month"
Query = dict[str, str | float]
"""Parameters of one query of Prometheus' API; one with a `step` is of a span."""
PYRRA_WINDOWS = ("5m", "1h", "30m", "6h", "2h", "1d", "6h", "4d")
"""Short and long window of each of its four alerts."""


@dataclass(frozen=True)
class Cost:
    """Requests to Prometheus, its CPU seconds, and seconds on the clock."""

    queries: float
    cpu: float
    seconds: float

    def __str__(self) -> str:
        cpu, seconds = 1000 * self.cpu, 1000 * self.seconds
        return f"{self.queries:.0f} queries, Prometheus {cpu:.0f} ms CPU, {seconds:.0f} ms"


def test_the_pages_beside_pyrras(tmp_path: Path) -> None:
    """Server milliseconds, queries, first paint; and 50 viewers at once."""
    end = time.time() // 300 * 300
    series = [*web_fleet.fleet(MODELS, end), *web_fleet.incident(end), *_pyrra_series(end), *_month(end)]
    with history.serve(history.openmetrics(series), tmp_path, flags=web_fleet.LOOKBACK) as prometheus:
        _compare(prometheus, tmp_path / "overview.log", "/", _pyrra_list())
        _compare(prometheus, tmp_path / "objective.log", OBJECTIVE, _pyrra_detail(end))
        _compare(prometheus, tmp_path / "report.log", REPORT, [])


def _compare(prometheus: str, log: Path, path: str, pyrra: list[Query]) -> None:
    with _serving(prometheus, log) as (url, server):
        cold, first = _measured(prometheus, lambda: _get(url + path), server)
        warm, again = _measured(prometheus, lambda: _get(url + path, WARM), server)
        viewers, _ = _measured(prometheus, lambda: _at_once(url + path), server)
        print(f"\n{path}: first {cold}, server {1000 * first:.0f} ms CPU")
        print(f"  again: {warm.queries:.0f} queries, server {1000 * again / WARM:.1f} ms CPU a page")
        print(f"  {VIEWERS} viewers at once: {viewers}")
        print(f"  first contentful paint in Chromium: {_painted(url + path):.0f} ms")
    if pyrra:
        replayed, _ = _measured(prometheus, lambda: _ask(prometheus, pyrra))
        print(f"  Pyrra's page, for each viewer: {replayed}")
    assert cold.queries <= 12
    assert 0 == warm.queries == viewers.queries


def _month(end: float) -> Iterator[history.Series]:
    """Return the sums of this month, in which one group in 50 missed, and when rules ran."""
    start = (
        ReportedPeriod("month", *map(int, time.strftime("%Y %m", time.gmtime(end)).split()))
        .in_zone("UTC")
        .start
    )
    steps = [start + 300 * step for step in range(int((end - start) // 300) + 1)]
    read = [*steps[:: 3 * 288], steps[-1]]
    for slo in ("latency", "queue"):
        own = {names.SLO: slo, names.INDICATOR: slo}
        yield names.INFO, {**own, "owner": slo, "window": "30d"}, [(at - 7, 1.0) for at in steps]
        for number in range(MODELS):
            labels = {**own, "model": f"model-{number:04}", "version": "1"}
            failing = 0.5 if number % 50 == 1 else 0.01
            for event, pace in ((names.ERROR, failing), (names.TOTAL, 20.0)):
                sums = [(at - 7, pace * (at - start + 86_400)) for at in read]
                yield names.COPY, {**labels, names.EVENT: event}, sums
            yield names.COUNTER_SINCE, labels, [(at - 7, start - 86_400) for at in read]


def _pyrra_series(end: float) -> Iterator[history.Series]:
    for slo in ("latency", "queue"):
        for number in range(MODELS):
            labels = {"slo": slo, "model": f"model-{number:04}"}
            for event in ("total", "error"):
                yield f"pyrra_{event}:increase30d", labels, [(end - 60, 1e6), (end, 1e6)]
            for window in dict.fromkeys(PYRRA_WINDOWS):
                yield f"pyrra:burnrate{window}", labels, [(end - 60, 0.01), (end, 0.01)]
    hours = [end - 300 * i for i in range(30 * 288, -1, -1)]
    for name in ("pyrra_total:increase30d", "pyrra_error:increase30d", "requests_total", "errors_total"):
        yield name, {"slo": "latency", "model": "ranker"}, [(at, at - hours[0] + 1) for at in hours]
    for window in dict.fromkeys(PYRRA_WINDOWS):
        yield f"pyrra:burnrate{window}", {"slo": "latency", "model": "ranker"}, [(at, 0.01) for at in hours]


def _pyrra_list() -> list[Query]:
    """For each objective its requests and its errors, by model, and its alerts."""
    return [
        {"query": query}
        for slo in ("latency", "queue")
        for query in (
            f'sum by (model) (pyrra_total:increase30d{{slo="{slo}"}})',
            f'sum by (model) (pyrra_error:increase30d{{slo="{slo}"}})',
            f'ALERTS{{slo="{slo}"}}',
        )
    ]


def _pyrra_detail(end: float) -> list[Query]:
    """Return requests and errors, the budget over 30 days, rates over a day, and the burn rates."""
    own = '{slo="latency", model="ranker"}'
    month, day = ({"start": end - span, "end": end, "step": span / 240} for span in (30 * 86_400, 86_400))
    budget = (
        f"(0.01 - sum(pyrra_error:increase30d{own} or vector(0)) / sum(pyrra_total:increase30d{own})) / 0.01"
    )
    return [
        {"query": f"sum(pyrra_total:increase30d{own})"},
        {"query": f"sum(pyrra_error:increase30d{own})"},
        {"query": budget, **month},
        {"query": f"sum(rate(requests_total{own}[5m])) > 0", **day},
        {"query": f"sum(rate(errors_total{own}[5m])) / sum(rate(requests_total{own}[5m])) > 0", **day},
        {"query": f"ALERTS{own}"},
        *[Query(query=f"pyrra:burnrate{window}{own}", **day) for window in PYRRA_WINDOWS],
    ]


@contextmanager
def _serving(prometheus: str, log: Path) -> Iterator[tuple[str, ProcessUsage]]:
    """Run the verb as a process of its own, with cached answers that outlast the measurement."""
    (port,) = free_ports(1)
    words = ["web", "--prometheus", prometheus, "--listen", f"127.0.0.1:{port}", "--scrape-interval", "1h"]
    words += ["--objectives", str(ROOT / "slo" / "objectives")]
    with (
        log.open("w") as written,
        subprocess.Popen([sys.executable, "-m", "tritonwatch", *words], stderr=written) as process,
    ):
        url = f"http://127.0.0.1:{port}"
        eventually(lambda: "serving" in log.read_text(), "the server never began")
        try:
            yield url, ProcessUsage(psutil.Process(process.pid))
        finally:
            process.terminate()


def _measured(
    prometheus: str, work: Callable[[], object], server: ProcessUsage | None = None
) -> tuple[Cost, float]:
    """Return what it cost Prometheus, and the server's CPU seconds."""
    before, used = _counters(prometheus), server.cpu_seconds() if server else 0.0
    began = time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    after = _counters(prometheus)
    cost = Cost(after[0] - before[0], after[1] - before[1], seconds)
    return cost, server.cpu_seconds() - used if server else 0.0


def _counters(prometheus: str) -> tuple[float, float]:
    text = requests.get(f"{prometheus}/metrics", timeout=10).text
    asked = re.findall(
        r'^prometheus_http_requests_total\{.*handler="/api/v1/query(?:_range)?"\} (\S+)', text, re.M
    )
    return sum(map(float, asked)), float(re.findall(r"^process_cpu_seconds_total (\S+)", text, re.M)[0])


def _get(url: str, times: int = 1) -> None:
    for _ in range(times):
        assert 200 == requests.get(url, timeout=60).status_code


def _at_once(url: str) -> None:
    with ThreadPoolExecutor(VIEWERS) as viewers:
        list(viewers.map(_get, [url] * VIEWERS))


def _ask(prometheus: str, queries: list[Query]) -> None:
    for query in queries:
        path = "query_range" if "step" in query else "query"
        requests.get(f"{prometheus}/api/v1/{path}", params=query, timeout=60).raise_for_status()


def _painted(url: str) -> float:
    with running_chromium() as browser, page_on(browser) as shown:
        page = shown.open(url)
        return float(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
