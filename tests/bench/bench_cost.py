"""Measure what the exporter and its page cost, and what people ask for, each beside a peer: tables of docs/measurements.md.

CPU seconds of processes, not wall time: what is compared runs at the same time or in turns on one machine, so a ratio
holds whatever else that machine does.
"""

from __future__ import annotations

import os
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import psutil
import pytest
import requests

from bench import bench_boards
from bench.bench_exporter_speed import Stack, fetch, running
from bench.measurements import record
from bench.process_usage import ProcessUsage
from support import history, web_fleet
from support.history import running as prometheus
from support.loopback import free_ports, started
from support.panels import panels
from support.waiting import eventually
from triton_dashboards.generate import dashboards
from triton_dashboards.grafana import dashboard_model
from triton_exporter.catalogue import own
from triton_slo.backtest.history import History, Matrix
from triton_slo.backtest.replay import Replayed
from triton_slo.backtest.report import backtest
from triton_slo.objective.model import Objective
from tritonwatch.usage import VERBS

WARM_SECONDS, SECONDS, SCRAPE_SECONDS = 100, 60, 10
"""An exporter is idle after a minute, and configurations of 1,000 models take half of one; then it is measured."""

STACKS = {
    "10, idle": (10, 0.0),
    "1,000, idle": (1000, 0.0),
    "1,000, 5 % active": (1000, 0.05),
    "1,000": (1000, 1.0),
}
AIMS = {
    "10, idle": "0.4 %",
    "1,000, idle": "1 %",
    "1,000, 5 % active": "a quarter of all active at 965d710a",
    "1,000": "-",
}


@pytest.mark.timeout(900)
def test_cost_of_the_exporter_and_of_its_page(tmp_path: Path) -> None:
    """One table; no aim is asserted, since what misses one is said so in the table."""
    rows = []
    with ExitStack() as stacks, requests.Session() as session:
        session.headers["Connection"] = "close"  # the exporter closes what rests between two scrapes
        running_now = {
            name: stacks.enter_context(running(models, active=active))
            for name, (models, active) in STACKS.items()
        }
        _scrape(session, running_now, WARM_SECONDS)
        before = {name: stack.cpu_seconds() for name, stack in running_now.items()}
        started = time.monotonic()
        _scrape(session, running_now, SECONDS)
        passed = time.monotonic() - started
        for name, stack in running_now.items():
            used = 100 * (stack.cpu_seconds() - before[name]) / passed
            rows.append((f"exporter, {name} models", "-", f"{used:.2f} % of a core", AIMS[name]))
        busy = running_now["1,000"]
        page, tritons = fetch(session, f"{busy.exporter}/metrics"), fetch(session, f"{busy.stub}/metrics")
        rows.append(("memory, 1,000 models", "-", f"{busy.rss_mib():.0f} MiB", "110 MiB"))
        rows.append(("series a model", f"{_series(tritons) / 1000:.0f}", f"{_series(page) / 1000:.1f}", "85"))
        requests.put(f"{busy.stub}/page", data=page, timeout=30)
        requests.put(f"{running_now['1,000, idle'].stub}/page", data=tritons, timeout=30)
        ours, theirs = _scrape_cpu(session, tmp_path, busy.stub, running_now["1,000, idle"].stub)
        rows.append(
            (
                "Prometheus' CPU for a scrape, 1,000 models",
                f"{theirs:.0f} ms",
                f"{ours:.0f} ms, {ours / theirs:.2f} times",
                "1.6 times",
            )
        )
    lines = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    print(f"\n{lines}")
    record(
        "cost", "make bench ARGS=tests/bench/bench_cost.py", _TEXT.format(rows=lines, load=os.getloadavg()[0])
    )


def _scrape(session: requests.Session, stacks: dict[str, Stack], seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for stack in stacks.values():
            fetch(session, f"{stack.exporter}/metrics")
        time.sleep(SCRAPE_SECONDS)


def _series(page: bytes) -> int:
    return sum(bool(line) and not line.startswith(b"#") for line in page.splitlines())


def _scrape_cpu(session: requests.Session, folder: Path, *pages: str) -> list[float]:
    """Return the CPU milliseconds that a Prometheus takes to scrape each page: one for each, at the same time."""
    with ExitStack() as stack:
        urls: list[str] = []
        for page in pages:
            job = {
                "job_name": "page",
                "scrape_interval": "1s",
                "metrics_path": "/page",
                "static_configs": [{"targets": [page.removeprefix("http://")]}],
            }
            place = folder / str(len(urls))
            urls.append(stack.enter_context(prometheus(place, {"scrape_configs": [job]})))
        eventually(
            lambda: all(_INTERVALS in fetch(session, f"{url}/metrics") for url in urls), "not scraped twice"
        )
        before = [_cpu_and_scrapes(session, url) for url in urls]
        time.sleep(30)
        after = [_cpu_and_scrapes(session, url) for url in urls]
    return [
        1000 * (used - used_before) / (scrapes - scrapes_before)
        for (used, scrapes), (used_before, scrapes_before) in zip(after, before, strict=True)
    ]


_INTERVALS = b"prometheus_target_interval_length_seconds_count{"


def _cpu_and_scrapes(session: requests.Session, url: str) -> tuple[float, float]:
    text = fetch(session, f"{url}/metrics").decode()
    names = (r"process_cpu_seconds_total", r"prometheus_target_interval_length_seconds_count\{[^}]*\}")
    used, scrapes = (float(re.findall(rf"^{name} (\S+)", text, re.M)[0]) for name in names)
    return used, scrapes


_TEXT = """\
Stubs of Triton (60 series a model, summaries and twelve of the models' own among them), each with an exporter with its
defaults, scraped every 10 s; all at the same time, on two shared cores with a load of {load:.0f}. The peer of a page is
Triton's own.

| what | peer | measured | aim |
|---|---|---|---|
{rows}
"""


MODELS, MINUTES, TARGET = 200, 30 * 1440, 0.999
SLOTHS_PAIRS = ((60, 5, 14.4), (360, 30, 6.0), (1440, 120, 3.0), (4320, 360, 1.0))
"""Minutes of the long and the short window of each of Sloth's alerts, and their burn rate."""
VIEWS = 50


@pytest.mark.timeout(600)
def test_cost_of_what_people_ask_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Boards, a backtest, help, a status and a page."""
    rows = [*_boards(tmp_path / "boards", monkeypatch), _backtest(), _help()]
    end = time.time() // 300 * 300
    with history.serve(
        history.openmetrics(web_fleet.fleet(500, end)), tmp_path / "fleet", flags=web_fleet.LOOKBACK
    ) as url:
        rows += [_status(url, end), _page(url, tmp_path / "web.log")]
    lines = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    print(f"\n{lines}")
    record(
        "asked",
        "make bench ARGS=tests/bench/bench_cost.py",
        _ASKED.format(rows=lines, load=os.getloadavg()[0]),
    )


Cells = tuple[str, str, str, str]


def _boards(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Cells]:
    """Return samples that all panels of a board read of its last six hours, those in collapsed rows too."""
    monkeypatch.setattr(bench_boards, "MODELS", 50)
    monkeypatch.setattr(bench_boards, "SERVERS", 1)
    folder.mkdir()
    made = {dashboard.uid: dashboard_model(dashboard) for dashboard in dashboards(bench_boards.OPTIONS)}
    with bench_boards.served(folder, every_model=True) as url:
        samples = {
            uid: bench_boards.cost(url, {**model, "panels": list(panels(model))}, 6 * 3600).samples
            for uid, model in made.items()
            if uid in ("triton-model", "triton-server")
        }
    with running(10) as stack, requests.Session() as session:
        failures = fetch(session, f"{stack.exporter}/metrics").count(f"{own.SCRAPE_FAILURES}{{".encode())
    return [
        ("model board, samples read", "-", f"{samples['triton-model']:,}", "520,000"),
        ("server board, samples read", "-", f"{samples['triton-server']:,}", "-"),
        ("its series of failures, of which there were none", "-", f"{failures}", "8"),
    ]


def _backtest() -> Cells:
    """Replay random traffic in which one model in ten has an incident of 45 minutes."""
    random = np.random.default_rng(1)
    rhythm = 600 + 500 * np.sin(np.arange(MINUTES) / 1440 * 2 * np.pi)
    total = random.poisson(rhythm, (MODELS, MINUTES)).astype(float)
    bad = random.binomial(total.astype(int), 0.0003).astype(float)
    for row in range(0, MODELS, 10):
        start = int(random.integers(0, MINUTES - 60))
        bad[row, start : start + 45] = total[row, start : start + 45] * random.uniform(0.02, 1)
    keys = tuple(("errors", f"m{row}", "1") for row in range(MODELS))
    past = History(keys, 60.0 * np.arange(1, MINUTES + 1), bad, total)
    objectives = {"errors": Replayed(Objective(name="errors", target=TARGET, indicator="errors"))}
    assert backtest(past, objectives).episodes
    ours, theirs = _alternately(lambda: backtest(past, objectives), lambda: _sloths(bad, total))
    return (
        f"backtest, 30 days of {MODELS} models",
        f"{theirs:.2f} s (Sloth's alerts, numpy)",
        f"{ours:.2f} s, {ours / theirs:.1f} times",
        "1 to 2 times",
    )


def _sloths(bad: Matrix, total: Matrix) -> int:
    """Return how many models Sloth's alerts fire for, from running sums of one model after the other."""
    fired = 0
    for events in zip(bad, total, strict=True):
        failed, every = (np.concatenate(([0.0], np.cumsum(counts))) for counts in events)
        fires = False
        for *windows, factor in SLOTHS_PAIRS:
            burning = np.ones(MINUTES, dtype=bool)
            for minutes in map(int, windows):
                bad_in, all_in = failed[1:].copy(), every[1:].copy()
                bad_in[minutes:] -= failed[1:-minutes]
                all_in[minutes:] -= every[1:-minutes]
                burning &= bad_in > factor * (1 - TARGET) * all_in
            fires |= bool(burning.any())
        fired += fires
    return fired


def _alternately(*works: Callable[[], object]) -> list[float]:
    """Return the CPU seconds of each, the median of three."""
    taken: list[list[float]] = [[] for _ in works]
    for _ in range(3):
        for work, seconds in zip(works, taken, strict=True):
            before = time.process_time()
            work()
            seconds.append(time.process_time() - before)
    return list(map(statistics.median, taken))


def _status(url: str, at: float) -> Cells:
    """Return the CPU seconds of `tritonwatch status` of 1,000 groups."""

    def asked(*more: str) -> float:
        before = _cpu_of_children()
        command = [sys.executable, "-m", "tritonwatch", "status", "--prometheus", url, "--at", f"{at}", *more]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        assert printed.count("model-") >= 1000
        return _cpu_of_children() - before

    table, document = (
        statistics.median(column)
        for column in zip(*[(asked(), asked("--json")) for _ in range(3)], strict=True)
    )
    return "status, 1,000 groups", f"{document:.2f} s (--json)", f"{table:.2f} s", "0.6 s"


def _cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _help() -> Cells:
    """Return the CPU seconds of the help of the slowest verb, beside those of loading pydantic: the least of five."""

    def least(*words: str) -> float:
        taken = []
        for _ in range(5):
            before = _cpu_of_children()
            subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
            taken.append(_cpu_of_children() - before)
        return min(taken)

    peer = least("-c", "from pydantic import BaseModel")
    seconds, verb = max((least("-m", "tritonwatch", verb, "--help"), verb) for verb in VERBS)
    return (
        f"--help of the slowest verb, {verb}",
        f"{peer:.2f} s (loading pydantic)",
        f"{seconds:.2f} s",
        "0.3 s",
    )


def _page(url: str, log: Path) -> Cells:
    """Return what the overview of 1,000 groups costs `tritonwatch web`, first and for each further viewer."""
    [port] = free_ports(1)
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "tritonwatch", "web", "--prometheus", url, "--scrape-interval", "1h"]
    with started([*command, "--listen", f"127.0.0.1:{port}"], f"{address}/-/ready", log) as process:
        server = ProcessUsage(psutil.Process(process.pid))

        def viewed(times: int) -> float:
            before = server.cpu_seconds()
            for _ in range(times):
                assert requests.get(address, timeout=60).ok
            return 1000 * (server.cpu_seconds() - before) / times

        first, again = viewed(1), viewed(VIEWS)
    return (
        "web page, 1,000 groups, for each further viewer",
        f"{first:.0f} ms (the first)",
        f"{again:.1f} ms",
        "made once in a scrape interval",
    )


_ASKED = """\
CPU time in turns on one machine with a load of {load:.0f}. The boards show six hours of one server with 50 models, all
rows open, with as many samples as at a scrape interval of 15 s. At 965d710a the model board read 2,600,910 samples, 75 % of
them for the steps that its model does not have, and an exporter had 81 series of failures from the start.

| what | peer | measured | aim |
|---|---|---|---|
{rows}
"""
