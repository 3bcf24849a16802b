"""Measure what the exporter costs, as ratios to a peer measured in the same run, on a fleet of stub models.

Writes docs/measurements.md.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from bench.measurements import record
from bench.process_usage import ProcessUsage
from dashboards.fleet import exposition
from support.loopback import free_ports, started
from triton_exporter.app.exporter import MetricsObserver
from triton_exporter.distribution.distributions import Distributions
from triton_exporter.exposition.parse import Exposition, Parser
from triton_exporter.exposition.scrape import Reading, Relay
from triton_exporter.exposition.write import text_pieces
from triton_exporter.gpu import native
from triton_exporter.gpu.gpu_reading import SourceChoice
from triton_exporter.gpu.gpus import GpuOptions, Gpus
from triton_exporter.lifecycle.tracker import BackendFailures, Lifecycle

STUB = Path(__file__).parent / "stub_triton.py"
FIGURES: dict[str, str] = {}
"""What this run measured, for the page; it is written when all have been."""

SIZES = (10, 50, 100, 250, 500, 1000, 2000)


def milliseconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - started)


@dataclass(frozen=True)
class Stack(ProcessUsage):
    """A stub Triton and an exporter, each a process."""

    stub: str
    exporter: str


@contextmanager
def running(models: int, churn: int = 0, *options: str, active: float = 1.0) -> Iterator[Stack]:
    port, listen = free_ports(2)
    stub_url, url = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{listen}"
    command = [sys.executable, "-m", "tritonwatch", "exporter", "--triton", stub_url, "--gpu", "none"]
    command += ["--triton-metrics", f"{stub_url}/metrics", "--listen", f"127.0.0.1:{listen}", *options]
    stub, nowhere = [sys.executable, STUB, port, models, churn, active], Path(os.devnull)
    with (
        started(stub, f"{stub_url}/v2/health/live", nowhere),
        started(command, f"{url}/-/healthy", nowhere) as exporter,
    ):
        yield Stack(psutil.Process(exporter.pid), stub_url, url)


def fetch(session: requests.Session, url: str) -> bytes:
    answer = session.get(url, timeout=30, headers={"Accept-Encoding": "identity"})
    assert 200 == answer.status_code
    return answer.content


def test_parser_against_prometheus_client() -> None:
    """In the steady state the parser is ten times as fast as prometheus_client's, numbers converted."""
    bodies = [exposition(1000, moment) for moment in range(6)]
    parser = Parser()
    parser.parse(bodies[0])

    def ours(body: bytes) -> int:
        return sum(len(family.values) for family in parser.parse(body).families.values())

    def theirs(body: bytes) -> int:
        return sum(len(family.samples) for family in text_string_to_metric_families(body.decode()))

    assert 60_000 <= ours(bodies[0]) == theirs(bodies[0])
    pairs = [(milliseconds(partial(theirs, body)), milliseconds(partial(ours, body))) for body in bodies[1:]]
    ratio = statistics.median(slow / fast for slow, fast in pairs)
    slow, fast = pairs[0]
    print(f"\nparse 60,000 series: {fast:.1f} ms; prometheus_client {slow:.0f} ms, {ratio:.0f} times")
    FIGURES["parser, 60,000 series"] = f"{ratio:.0f} times as fast as prometheus_client's | at least 10"
    assert ratio >= 10


@pytest.mark.timeout(900)
def test_memory_stays_flat() -> None:
    """Over 10,000 scrapes with a new model in place of an old one every 20th, memory does not grow."""
    scrapes = int(os.environ.get("TRITONWATCH_BENCH_SCRAPES", "10000"))
    with running(20, 20, "--sampling-interval", "60") as stack, requests.Session() as session:
        marks = []
        for number in range(scrapes + 1):
            page = fetch(session, f"{stack.exporter}/metrics")
            if number % (scrapes // 10) == 0:
                marks.append((number, stack.rss_mib(), len(page)))
        print(
            "\n"
            + ", ".join(f"{number}: {rss:.1f} MiB, page {size / 1e3:.0f} kB" for number, rss, size in marks)
        )
        halfway, end = marks[len(marks) // 2][1], marks[-1][1]
        FIGURES[f"memory over {scrapes:,} scrapes"] = (
            f"{halfway:.1f} MiB halfway, {end:.1f} at the end | flat"
        )
        # One new name in the lists of the allocator is noise; a page that grows is not.
        assert end - halfway < 0.08 * halfway
        assert marks[-1][2] < 1.1 * marks[len(marks) // 2][2]


@pytest.mark.parametrize("scraped", [True, False], ids=["scraped", "sampled"])
def test_one_parse_against_a_parser_in_each_observer(scraped: bool) -> None:
    """Sharing the parse of a reading costs less CPU than parsing it again for each of those that need it."""
    sharing, apart = _Observing(), _Observing()
    parsers = [Parser() for _ in apart.observers]
    rounds = []
    for moment in range(12):
        reading = Reading(exposition(1000, moment), "", "", moment, 0.0)

        def shared(reading: Reading = reading) -> None:
            if scraped:
                sharing.relay.body(reading)
            wanted = frozenset(name for observer in sharing.observers for name in observer.observed)
            sharing.observe([sharing.relay.select(reading, wanted)] * len(sharing.observers), reading.at)

        def each(reading: Reading = reading) -> None:
            if scraped:
                apart.relay.body(reading)
            parsed = [
                parser.parse(reading.body, observer.observed)
                for parser, observer in zip(parsers, apart.observers, strict=True)
            ]
            apart.observe(parsed, reading.at)

        rounds.append((cpu_milliseconds(shared), cpu_milliseconds(each)))
    single, many = (statistics.median(column) for column in zip(*rounds[2:], strict=True))
    print(f"\none parse {single:.1f} ms, a parser in each observer {many:.1f} ms ({many / single:.2f} times)")
    assert single < 1.1 * many


class _Observing:
    def __init__(self) -> None:
        gpus = Gpus(SourceChoice((), frozenset()), native.NativeSource(120.0), GpuOptions())
        self.relay = Relay()
        self.observers: tuple[MetricsObserver, ...] = (Distributions(), BackendFailures(Lifecycle({})), gpus)

    def observe(self, parsed: Iterable[Exposition], now: float) -> None:
        for observer, families in zip(self.observers, parsed, strict=True):
            observer.observe(families, now)


def test_cost_grows_linearly() -> None:
    """From 10 to 2,000 models, the cost of one model does not rise."""
    rows = [cost(size) for size in SIZES]
    if len(FIGURES) == 2:
        write_cost(rows)
    per_model = {row.models: row.total / row.models for row in rows}
    print("\n" + table(rows))
    assert per_model[2000] <= 1.5 * per_model[100]


@dataclass(frozen=True)
class Cost:
    """Milliseconds of CPU for one fetch of so many models."""

    models: int
    body_mb: float
    parse: float
    observe: float
    render: float

    @property
    def total(self) -> float:
        return self.parse + self.observe + self.render


def cpu_milliseconds(work: Callable[[], object]) -> float:
    """Return this process' CPU time for some work: other programs on the machine hardly change it."""
    started = time.process_time()
    work()
    return 1000 * (time.process_time() - started)


def cost(models: int) -> Cost:
    bodies = [exposition(models, moment) for moment in range(12)]
    parser, distributions = Parser(), Distributions()
    rounds = []
    for moment, body in enumerate(bodies):
        parse = cpu_milliseconds(partial(parser.parse, body))
        parsed = parser.parse(body)
        observe = cpu_milliseconds(partial(distributions.observe, parsed, moment))
        render = cpu_milliseconds(lambda: b"".join(text_pieces(distributions.families(0))))
        if moment >= 2:
            rounds.append((parse, observe, render))
    parse, observe, render = (statistics.median(column) for column in zip(*rounds, strict=True))
    return Cost(models, len(bodies[0]) / 1e6, parse, observe, render)


def table(rows: list[Cost]) -> str:
    lines = [
        "| models | Triton's page | parse | distributions | write | in all | per model |",
        "|" + "---|" * 7,
    ]
    lines += [
        f"| {row.models} | {row.body_mb:.2f} MB | {row.parse:.1f} ms | {row.observe:.1f} ms "
        f"| {row.render:.1f} ms | {row.total:.1f} ms | {1000 * row.total / row.models:.0f} us |"
        for row in rows
    ]
    return "\n".join(lines)


def write_cost(rows: list[Cost]) -> None:
    figures = "\n".join(f"| {what} | {value} |" for what, value in FIGURES.items())
    record(
        "exporter",
        'make bench ARGS="tests/bench/bench_exporter_speed.py"',
        _TEXT.format(table=table(rows), figures=figures),
    )


_TEXT = """\
A stub in another process simulates a Triton with 60 series a model, summaries among them; every counter changes
between two polls. Both parts of a ratio were measured in the same run.

| what | measured | aim |
|---|---|---|
{figures}

CPU time of one sample and scrape, without the network; the cost of one model should not rise:

{table}
"""
