"""Measure the error of a stock Triton's histograms, before and after sums were decomposed.

The truth is what clients measured, in processes of their own. Takes about eleven minutes; writes a part of
docs/measurements.md."""

from __future__ import annotations

import json
import math
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
import requests

from bench.measurements import record
from support.exporter import ScrapedPage
from support.loopback import free_ports, started
from support.sleeper import write_sleeper
from triton_exporter.catalogue import own, state
from triton_exporter.distribution.buckets import Buckets, Signal, le
from triton_exporter.distribution.distributions import Distributions
from triton_exporter.exposition.parse import Parser
from triton_exporter.exposition.scrape import fetch_metrics
from triton_exporter.http.client import Client
from tritonwatch.local import TritonPorts, TritonServer

SECONDS = float(os.environ.get("TRITONWATCH_STOCK_SECONDS", "100"))
LOAD = Path(__file__).parents[1] / "slo" / "load.py"
BATCHING = "dynamic_batching { max_queue_delay_microseconds: 5000 }\n"

Plan = Callable[[random.Random], Iterator[dict[str, Any]]]


@dataclass(frozen=True)
class Traffic:
    """One kind, sent with the others of its `round`, and the thresholds (seconds) whose shares are judged."""

    text: str
    plan: Plan
    request: tuple[float, ...]
    queue: tuple[float, ...] = ()
    instances: int = 1
    config: str = ""
    round: int = 0
    parts: tuple[str, ...] = ()


def at_random(rate: float, sleep: Callable[[random.Random, float], list[float]], again: bool = False) -> Plan:
    """Plan arrivals at random; `sleep` returns the duration of a request from its time."""

    def plan(rng: random.Random) -> Iterator[dict[str, Any]]:
        at = 0.0
        while (at := at + rng.expovariate(rate)) < SECONDS:
            yield {"at": at, "sleeps": sleep(rng, at)} | ({"again": sleep(rng, at)} if again else {})

    return plan


def tail(
    slow: float, fast: float = 0.004, late: float = 0.3
) -> Callable[[random.Random, float], list[float]]:
    return lambda rng, _: [late if rng.random() < slow else fast]


def lognormal(rng: random.Random, _: float) -> list[float]:
    return [min(2.0, rng.lognormvariate(math.log(0.03), 0.8))]


def bursts(rng: random.Random) -> Iterator[dict[str, Any]]:
    for start in range(1, int(SECONDS), 5):
        yield from ({"at": start + number * 0.0004, "sleeps": [0.03]} for number in range(12))


TRAFFIC: Mapping[str, Traffic] = {
    "uniform": Traffic(
        "10/s, 30 to 390 ms evenly",
        at_random(10, lambda rng, _: [rng.uniform(0.03, 0.39)]),
        (0.1, 0.2, 0.3),
        instances=6,
    ),
    "tail_20": Traffic("20/s of 4 ms, 5 % of 300 ms", at_random(20, tail(0.05)), (0.05, 0.2), instances=4),
    "bursts": Traffic("12 at once every 5 s, 30 ms each, one instance", bursts, (0.1, 0.2), (0.1,)),
    "drift": Traffic(
        "10/s, from 30 ms to 390 ms over the run",
        at_random(10, lambda _, at: [0.03 + 0.36 * at / SECONDS]),
        (0.1, 0.2),
        instances=6,
    ),
    "two_instances": Traffic(
        "30/s, 45 ms on average (exponential), two instances",
        at_random(30, lambda rng, _: [rng.expovariate(1 / 0.045)]),
        (0.05, 0.1, 0.2),
        (0.05,),
        instances=2,
        round=1,
    ),
    "slow_tail_queue": Traffic(
        "30/s of 5 ms, 5 % of 150 ms, one instance",
        at_random(30, tail(0.05, 0.005, 0.15)),
        (0.05, 0.2),
        (0.05,),
        round=1,
    ),
    "rows": Traffic(
        "5/s, 1 to 8 rows of 20 ms, one instance",
        at_random(5, lambda rng, _: [0.02] * rng.choice([1, 1, 1, 2, 4, 8])),
        (0.05, 0.1, 0.2),
        (0.1,),
        round=1,
    ),
    "batching": Traffic(
        "40/s of 8 ms, dynamic batches of up to 8",
        at_random(40, lambda *_: [0.008]),
        (0.02, 0.05, 0.1),
        config=BATCHING,
        round=1,
    ),
    "ensemble": Traffic(
        "15/s, an ensemble of two models; 10 ms, 10 % of 200 ms",
        at_random(15, tail(0.1, 0.01, 0.2)),
        (0.05, 0.1),
        parts=("ensemble_one", "ensemble_two"),
        instances=3,
        round=2,
    ),
    "cold_start": Traffic(
        "20/s of 10 ms, the first ten seconds of 150 ms",
        at_random(20, lambda _, at: [0.15 if at < 10 else 0.01]),
        (0.05, 0.1),
        instances=6,
        round=2,
    ),
    "step": Traffic(
        "20/s of 4 ms, 1 % and in the second half 20 % of 300 ms",
        at_random(20, lambda rng, at: tail(0.2 if at > SECONDS / 2 else 0.01)(rng, at)),
        (0.05, 0.2),
        instances=5,
        round=2,
    ),
    "retries": Traffic(
        "15/s of 4 ms, 10 % of 300 ms, sent again after 200 ms",
        at_random(15, tail(0.1), again=True),
        (0.05, 0.2),
        instances=4,
        round=2,
    ),
    "tail_100": Traffic(
        "100/s of 4 ms, 5 % of 300 ms", at_random(100, tail(0.05)), (0.05, 0.2), instances=8, round=3
    ),
    "lognormal": Traffic(
        "60/s, lognormal, median 30 ms, sigma 0.8",
        at_random(60, lognormal),
        (0.02, 0.05, 0.1),
        instances=8,
        round=3,
    ),
    "near_saturation": Traffic(
        "72/s, 45 ms on average (exponential), four instances",
        at_random(72, lambda rng, _: [rng.expovariate(1 / 0.045)]),
        (0.1, 0.2),
        (0.05,),
        instances=4,
        round=4,
    ),
    "tail_1_percent": Traffic(
        "100/s of 4 ms, 1 % of 300 ms", at_random(100, tail(0.01)), (0.05, 0.2), instances=5, round=4
    ),
    "tail_400": Traffic(
        "400/s of 2 ms, 5 % of 200 ms",
        at_random(400, tail(0.05, 0.002, 0.2)),
        (0.05, 0.1),
        instances=12,
        round=5,
    ),
}


@dataclass
class Truth:
    """What the clients measured, in seconds."""

    request: list[float] = field(default_factory=list)
    queue: list[float] = field(default_factory=list)

    def share(self, signal: Signal, threshold: float, own: float = 0.0) -> float:
        """Share within a threshold, when each spent `own` seconds outside Triton."""
        times = self.times(signal)
        return sum(seconds - own <= threshold for seconds in times) / len(times)

    def times(self, signal: Signal) -> Sequence[float]:
        return self.request if signal == "request" else self.queue


def thresholds() -> dict[Signal, tuple[float, ...]]:
    return {
        "request": tuple(sorted({bound for traffic in TRAFFIC.values() for bound in traffic.request})),
        "queue": tuple(sorted({bound for traffic in TRAFFIC.values() for bound in traffic.queue})),
    }


def objectives(folder: Path) -> Path:
    kinds = {"request": "latency", "queue": "queue"}
    folder.mkdir()
    (folder / "all.yaml").write_text(
        "---\n".join(
            f"indicator: {{kind: {kinds[signal]}, threshold: {1000 * bound:.0f}ms}}\n"
            for signal, several in thresholds().items()
            for bound in several
        )
    )
    return folder


def models(repository: Path, names: Iterable[str]) -> None:
    for name in names:
        traffic = TRAFFIC[name]
        for part in traffic.parts or (name,):
            write_sleeper(repository, part, traffic.instances, traffic.config)
        if traffic.parts:
            (repository / name / "1").mkdir(parents=True)
            steps = ", ".join(
                f'{{ model_name: "{part}" model_version: -1 input_map {{ key: "X" value: "X" }} '
                f'output_map {{ key: "Y" value: "{out}" }} }}'
                for part, out in zip(traffic.parts, ("Y", "Z"), strict=True)
            )
            (repository / name / "config.pbtxt").write_text(
                'platform: "ensemble"\nmax_batch_size: 8\n'
                'input [{ name: "X" data_type: TYPE_FP64 dims: [ 2 ] }]\n'
                'output [{ name: "Y" data_type: TYPE_FP64 dims: [ 1 ] }, '
                '{ name: "Z" data_type: TYPE_FP64 dims: [ 1 ] }]\n'
                f"ensemble_scheduling {{ step [ {steps} ] }}\n"
            )


@dataclass(frozen=True)
class Seen:
    """What one round brought: the truth, the shares by source, and what it cost in percent of a core."""

    truths: Mapping[str, Truth]
    before: Mapping[str, float]
    now: ScrapedPage
    exporter: float
    triton: float
    load: float


def send(url: str, names: Sequence[str], folder: Path) -> list[subprocess.Popen[bytes]]:
    """Start to send traffic, each kind from a process."""
    start, clients = time.time() + 2, []
    for name in names:
        plan = folder / f"{name}.plan"
        lines = (json.dumps({"model": name} | request) for request in TRAFFIC[name].plan(random.Random(name)))
        plan.write_text("\n".join(lines))
        with plan.open("rb") as standard_input, (folder / f"{name}.out").open("wb") as output:
            command = [sys.executable, str(LOAD), url, str(start)]
            clients.append(subprocess.Popen(command, stdin=standard_input, stdout=output))
    return clients


def truth(file: Path) -> Truth:
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return Truth([took for _, _, took in lines], [max(0.0, took - slept) for _, slept, took in lines])


def processor_seconds(processes: Iterable[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def run(names: Sequence[str], folder: Path) -> Seen:
    """Send the traffic of one round to a Triton that a real exporter watches, and one that counts means."""
    models(folder / "models", names)
    server = TritonServer(folder / "models", folder, TritonPorts(*free_ports(3)))
    server.start()
    try:
        server.wait_live(240)
        return watch(server, names, folder)
    finally:
        server.stop()


def watch(server: TritonServer, names: Sequence[str], folder: Path) -> Seen:
    tritons = [
        process for process in psutil.Process().children(recursive=True) if "tritonserver" in process.name()
    ]
    (listen,) = free_ports(1)
    url = f"http://127.0.0.1:{listen}"
    command = [sys.executable, "-m", "tritonwatch", "exporter", "--triton", server.http_url, "--gpu", "none"]
    command += ["--triton-metrics", server.metrics_url, "--listen", f"127.0.0.1:{listen}"]
    command += ["--buckets-from", str(objectives(folder / "objectives"))]
    means, parser = Distributions(Buckets(thresholds=thresholds())), Parser()
    with (
        started(command, f"{url}/-/healthy", folder / "exporter.log") as exporter,
        closing(Client(server.metrics_url)) as client,
    ):

        def sample() -> None:
            reading = fetch_metrics(client, "", time.time)
            means.observe(parser.parse(reading.body), reading.at)

        watched = ([psutil.Process(exporter.pid)], tritons)
        time.sleep(5)
        before, at = [processor_seconds(process) for process in watched], time.monotonic()
        for _ in range(10):
            time.sleep(1)
            sample()
        spent = [processor_seconds(process) - was for process, was in zip(watched, before, strict=True)]
        exporter_idle, triton_idle = (100 * share / (time.monotonic() - at) for share in spent)
        clients = send(server.http_url, names, folder)
        while any(client.poll() is None for client in clients):
            sample()
            time.sleep(1)
        assert {0} == {client.returncode for client in clients}
        time.sleep(8)
        sample()
        page = ScrapedPage(requests.get(f"{url}/metrics", timeout=10).text)
    shown = {s.series: s.value for family in means.families(0) for s in family.samples}
    truths = {name: truth(folder / f"{name}.out") for name in names}
    return Seen(truths, shown, page, exporter_idle, triton_idle, os.getloadavg()[1])


@pytest.mark.real
@pytest.mark.timeout(1800)
def test_accuracy_on_a_stock_triton(tmp_path: Path) -> None:
    """The true number of requests is within the guaranteed bounds as Triton timed them; the rest is printed."""
    rounds = sorted({traffic.round for traffic in TRAFFIC.values()})
    seen = []
    for number in rounds:
        folder = tmp_path / str(number)
        folder.mkdir()
        seen.append(run([name for name, traffic in TRAFFIC.items() if traffic.round == number], folder))
    tables = [table(result) for result in seen]
    rows = [*tables[0][0][:2], *(row for lines, _ in tables for row in lines[2:])]
    errors = [error for _, table_errors in tables for error in table_errors]
    text = document(rows, errors, seen)
    print(text)
    record("stock", 'make bench ARGS="-k stock_triton"', text)
    assert statistics.median(abs(error.now) for error in errors) < statistics.median(
        abs(error.mean) for error in errors
    )


class Error(NamedTuple):
    """Errors of a share in points; `alone` without the clients' own time, which the stated error may cover."""

    mean: float
    now: float
    alone: float
    covered: bool | None


def table(seen: Seen) -> tuple[list[str], list[Error]]:
    """Return the rows, and the errors of each share."""
    names = ["traffic", "signal", "threshold", "truth", "sampled_mean", "decomposed", "without client time"]
    names += ["stated error", "guaranteed"]
    rows = [f"| {' | '.join(names)} |", "|" + "---|" * len(names)]
    errors: list[Error] = []
    metrics = {"request": state.REQUEST_DURATION, "queue": state.QUEUE_DURATION}
    for name in seen.truths:
        traffic = TRAFFIC[name]
        judged: list[tuple[Signal, float]] = [("request", bound) for bound in traffic.request]
        judged += [("queue", bound) for bound in traffic.queue]
        for signal, threshold in judged:
            share, metric, end = seen.truths[name].share(signal, threshold), metrics[signal], le(threshold)
            labels = {"model": name, "version": "1"}
            written = f'model="{name}",version="1"'
            mean = (
                seen.before[f'{metric}_bucket{{{written},le="{end}"}}']
                / seen.before[f"{metric}_count{{{written}}}"]
            )
            count = seen.now.value(metric.count, **labels) or 1.0
            now = (seen.now.value(metric.bucket, **labels, le=end) or 0.0) / count
            stated = seen.now.value(state.DISTRIBUTION_ERROR, **labels, signal=signal, le=end)
            least, most = (
                (seen.now.value(state.REQUESTS_WITHIN, **labels, signal=signal, le=end, bound=bound) or 0)
                / count
                for bound in ("least", "most")
            )
            times = seen.truths[name].times(signal)
            took = (seen.now.value(metric.sum, **labels) or 0.0) / count
            alone = now - seen.truths[name].share(signal, threshold, sum(times) / len(times) - took)
            covered = None if stated is None else abs(alone) <= stated
            errors.append(Error(100 * (mean - share), 100 * (now - share), 100 * alone, covered))
            known = "-" if stated is None else f"{100 * stated:.1f}"
            rows.append(
                f"| {name} | {signal} | {threshold * 1000:.0f} ms | {100 * share:.1f} % | {errors[-1].mean:+.1f} | "
                f"{errors[-1].now:+.1f} | {errors[-1].alone:+.1f} | {known} | "
                f"{100 * least:.1f} to {100 * most:.1f} % |"
            )
    return rows, errors


class P99(NamedTuple):
    """The true p99 in Triton's time (seconds), and what the exporter estimates and the buckets give."""

    true: float
    estimated: float | None
    between: float

    def row(self, name: str) -> str:
        errors = [
            None if estimate is None else estimate / self.true - 1
            for estimate in (self.estimated, self.between)
        ]
        shown = " | ".join("-" if error is None else f"{error:+.0%}" for error in errors)
        return f"| {name} | {TRAFFIC[name].text} | {1000 * self.true:.0f} ms | {shown} |"


def p99(seen: Seen, name: str) -> P99:
    metric, labels = state.REQUEST_DURATION, {"model": name, "version": "1"}
    count = seen.now.value(metric.count, **labels) or 1.0
    took = (seen.now.value(metric.sum, **labels) or 0.0) / count
    times = sorted(seen.truths[name].request)
    true = times[int(0.99 * len(times))] - (sum(times) / len(times) - took)
    estimated = seen.now.value(state.REQUEST_QUANTILE, **labels, quantile="0.99")
    low = below = 0.0
    for bound in Buckets(thresholds=thresholds()).bounds(name, "request"):
        within = seen.now.value(metric.bucket, **labels, le=le(bound)) or 0.0
        if within >= 0.99 * count:
            return P99(true, estimated, low + (bound - low) * (0.99 * count - below) / (within - below))
        low, below = bound, within
    return P99(true, estimated, low)


def document(rows: Sequence[str], errors: Sequence[Error], seen: Sequence[Seen]) -> str:
    before = [abs(error.mean) for error in errors]
    now, alone = [abs(error.now) for error in errors], [abs(error.alone) for error in errors]
    stated = [error.covered for error in errors if error.covered is not None]
    requests_sent = sum(len(truth.request) for each in seen for truth in each.truths.values())
    torn = sum(result.now.value(own.TORN_READINGS) or 0.0 for result in seen)
    p99s = {name: p99(result, name) for result in seen for name in result.truths}
    between = [abs(p99_of.between / p99_of.true - 1) for p99_of in p99s.values()]
    estimated = [
        abs(p99_of.estimated / p99_of.true - 1) for p99_of in p99s.values() if p99_of.estimated is not None
    ]
    intervals = [result.now.value(own.SAMPLING_INTERVAL) or 0.0 for result in seen]
    return _TEXT.format(
        count=len(TRAFFIC), rows="\n".join(rows), requests=requests_sent, seconds=SECONDS,
        load=max(result.load for result in seen), worst_before=max(before), worst=max(now),
        median_before=statistics.median(before), median=statistics.median(now), worst_alone=max(alone),
        median_alone=statistics.median(alone), covered=sum(stated), stated=len(stated), torn=torn,
        fastest=min(intervals), slowest=max(intervals), exporter=max(result.exporter for result in seen),
        triton=max(result.triton for result in seen),
        p99s="\n".join(p99_of.row(name) for name, p99_of in p99s.items()),
        between_median=statistics.median(between), between_worst=max(between), estimates=len(estimated),
        p99_median=statistics.median(estimated), p99_worst=max(estimated),
        p99_near=sum(error <= 0.15 for error in estimated),
    )  # fmt: skip


_TEXT = """
The exporter runs with its defaults beside a Triton without any flags. The table compares `decomposed` with
`sampled_mean` at one reading a second. `tests/bench/bench_stock_accuracy.py` sent {requests} requests of {count}
kinds of traffic, each for {seconds:.0f} s, up to four kinds to one Triton at the same time. The truth is what the
clients measured; each kind has its own client process. Highest load average of the machine (2 cores): {load:.0f}.

- *sampled_mean*, *decomposed*: error of the share within the threshold, in percentage points.
- *without client time*: error of `decomposed` without the time that only the client sees (see below the table).
- *stated error*: the maximum error that the exporter exports for this share.
- *guaranteed*: bounds that are always correct, computed from counts and sums only.

{rows}

The worst error of a share is **{worst:.1f} points** (`sampled_mean`: {worst_before:.1f}), the median {median:.1f}
(`sampled_mean`: {median_before:.1f}). The client measures more time than Triton: it includes the network, and the
wait of the client for a processor. If many durations are near a threshold, a difference of one millisecond changes
the share by several points. Without the time that only the client measures (the difference of the two means is
subtracted from each request), the worst error is **{worst_alone:.1f} points** and the median {median_alone:.1f}.
The actual error was within the stated error in {covered} of the {stated} cases that have a stated error. The
guaranteed bounds also apply to Triton's time.

The p99 that the exporter estimates (`triton_model_request_duration_quantile_estimated_seconds`) is wrong by
**{p99_median:.0%}** (median; worst {p99_worst:.0%}; within 15 % for {p99_near} of {estimates}). The p99 that
`histogram_quantile` computes from the buckets is wrong by {between_median:.0%} (worst {between_worst:.0%}),
because it interpolates between two bounds, whatever the source. In traffic such as `tail_1_percent`, one slow
request more or less in 500 moves p99 from a fast time to a slow one; there, no estimate is reliable.

| traffic | what it is | true p99 | estimated | from the buckets |
|---|---|---|---|---|
{p99s}

Before the traffic, the exporter used at most {exporter:.1f} % of a core and Triton {triton:.1f} %. After it, the
exporter read Triton every {fastest:.2f} to {slowest:.2f} s. Readings in which Triton's counters did not match each
other: {torn:.0f}.
"""
