"""Measure what the exporter and its page cost, all in one run, each beside a peer: the table of docs/measurements.md.

CPU seconds of processes, not wall time: all stacks run at the same time on one machine, so a ratio holds whatever else
that machine does.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
import requests

from bench.bench_exporter_speed import Stack, fetch, running
from bench.measurements import record
from support.history import running as prometheus

WARM_SECONDS, SECONDS, SCRAPE_SECONDS = 60, 60, 10
"""Configurations of 1,000 models take half a minute; then the exporter is scraped for as long as this."""

STACKS = {
    "10, idle": (10, 0.0),
    "1,000, idle": (1000, 0.0),
    "1,000, 5 % active": (1000, 0.05),
    "1,000": (1000, 1.0),
}
AIMS = {
    "10, idle": "0.4 %",
    "1,000, idle": "1 %",
    "1,000, 5 % active": "a quarter of all active",
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
        time.sleep(10)
        before = [_cpu_and_scrapes(session, url) for url in urls]
        time.sleep(30)
        after = [_cpu_and_scrapes(session, url) for url in urls]
    return [
        1000 * (used - used_before) / (scrapes - scrapes_before)
        for (used, scrapes), (used_before, scrapes_before) in zip(after, before, strict=True)
    ]


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
