"""Measure the error of each source of distributions on a real Triton, in six traffic shapes.

The truth is what the clients measured. Takes about six minutes; writes docs/measurements.md."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import requests

from bench.measurements import record
from support.loopback import free_ports
from support.sleeper import sleep_request, write_sleeper
from triton_exporter.catalogue import state, triton
from triton_exporter.distribution.buckets import DEFAULT_BOUNDS, Buckets, Signal, le
from triton_exporter.distribution.counters import COUNTERS
from triton_exporter.distribution.distributions import Distributions
from triton_exporter.exposition.parse import parse
from triton_exporter.snapshot import ModelConfig, ModelVersion, Snapshot
from triton_exporter.tracing.otlp import TraceReceiver
from triton_exporter.tracing.trace import Mailbox
from tritonwatch.local import TritonPorts, TritonServer

SECONDS = float(os.environ.get("TRITONWATCH_ACCURACY_SECONDS", "300"))
SETTLE_SECONDS = 50.0
DECIMATION = 10

Plan = Callable[[random.Random], Iterator[tuple[float, list[float]]]]
"""When to send (seconds from the start), and how long each row of the request takes."""


@dataclass(frozen=True)
class Traffic:
    """One traffic shape, with the thresholds (seconds) whose share is judged."""

    name: str
    text: str
    instances: int
    plan: Plan
    request: tuple[float, ...]
    queue: tuple[float, ...] = ()


def uniform(rng: random.Random) -> Iterator[tuple[float, list[float]]]:
    return ((at, [grid(rng.uniform(0.02, 0.4))]) for at in every(0.1))


def bimodal(rng: random.Random) -> Iterator[tuple[float, list[float]]]:
    return ((at, [0.3 if rng.random() < 0.05 else 0.005]) for at in every(0.05))


def bursts(rng: random.Random) -> Iterator[tuple[float, list[float]]]:
    return ((at + rng.uniform(0, 0.005), [0.03]) for start in every(5) for at in [start] * 12)


def drift(rng: random.Random) -> Iterator[tuple[float, list[float]]]:
    return ((at, [grid(0.02 + 0.38 * at / SECONDS)]) for at in every(0.2))


def batches(rng: random.Random) -> Iterator[tuple[float, list[float]]]:
    return ((at, [0.03] * rng.choice([1, 1, 1, 2, 4, 8])) for at in every(0.25))


def rare(rng: random.Random) -> Iterator[tuple[float, list[float]]]:
    return ((at, [0.2 if number % 3 == 2 else 0.02]) for number, at in enumerate(every(60)))


def grid(seconds: float) -> float:
    """Return the nearest of 30, 50, 70 ms and so on: 10 ms from any threshold, so no network time decides."""
    return round((seconds - 0.01) / 0.02) * 0.02 + 0.01


def every(gap: float) -> Iterator[float]:
    at = 0.5
    while at < SECONDS:
        yield at
        at += gap


SHAPES = (
    Traffic("uniform", "10/s, 30 to 390 ms evenly in steps of 20", 5, uniform, (0.1, 0.2, 0.3)),
    Traffic("bimodal", "20/s, 95 % take 5 ms and 5 % take 300 ms", 3, bimodal, (0.05, 0.2)),
    Traffic(
        "bursts", "12 at once every 5 s, 30 ms each, one instance: they queue", 1, bursts, (0.1, 0.2), (0.1,)
    ),
    Traffic("drift", "5/s, from 30 ms to 390 ms over the run, in steps of 20", 3, drift, (0.1, 0.2)),
    Traffic("batches", "4/s, 1 to 8 rows of 30 ms, one instance", 1, batches, (0.1, 0.2), (0.1,)),
    Traffic("rare", "1 a minute, every third takes 200 ms instead of 20", 1, rare, (0.1,)),
)

SOURCES = {
    "histogram": "a histogram like Triton's, computed by the model itself",
    "trace": "traces, every request",
    "trace_10": f"traces, every {DECIMATION}th request",
    "summary": "summaries",
    "sampled_mean": "sampled means",
}
TOLD = {
    "histogram": {triton.FIRST_RESPONSE_MS.name},
    "summary": {triton.REQUEST_SUMMARY_US.name, triton.QUEUE_SUMMARY_US.name},
}
"""What a source reads besides the counters."""


@dataclass
class Truth:
    """What the clients measured, in seconds."""

    request: list[float] = field(default_factory=list)
    queue: list[float] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def share(self, signal: Signal, threshold: float) -> float:
        times = sorted(self.request if signal == "request" else self.queue)
        return bisect_right(times, threshold) / len(times)


def send(url: str, traffic: Traffic, started: float, truth: Truth) -> None:
    """Follow the plan; a request that is due does not wait for the one before it."""
    threads: list[threading.Thread] = []
    for at, sleeps in traffic.plan(random.Random(traffic.name)):
        time.sleep(max(0.0, started + at - time.monotonic()))
        thread = threading.Thread(target=send_request, args=(url, traffic.name, sleeps, truth))
        thread.start()
        threads = [thread for thread in threads if thread.is_alive()]
        threads.append(thread)
    for thread in threads:
        thread.join()


def send_request(url: str, model: str, sleeps: list[float], truth: Truth) -> None:
    before = time.time()
    assert 200 == sleep_request(url, model, sleeps, before)
    took = time.time() - before
    with truth.lock:
        truth.request.append(took)
        truth.queue.append(max(0.0, took - sum(sleeps)))


class Observers:
    """One set of histograms for each source, fed by the same bodies and the same traces."""

    def __init__(self, shapes: Sequence[Traffic], port: int) -> None:
        thresholds: dict[Signal, tuple[float, ...]] = {
            "request": tuple({bound for shape in shapes for bound in shape.request}),
            "queue": tuple({bound for shape in shapes for bound in shape.queue}),
        }
        self.mailbox = Mailbox()
        self.receiver = TraceReceiver("127.0.0.1", port, self.mailbox)
        self.boxes = {"trace": Mailbox(), "trace_10": Mailbox()}
        self.observers = {
            name: Distributions(Buckets(thresholds=thresholds), self.boxes.get(name)) for name in SOURCES
        }
        configs = {ModelVersion(shape.name, "1"): ModelConfig(shape.name) for shape in shapes}
        for observer in self.observers.values():
            observer.observe_snapshot(Snapshot(at=0, configs=configs))
        self._number = 0

    def observe(self, body: bytes, now: float) -> None:
        traced = self.mailbox.drain()
        self.boxes["trace"].put(traced)
        # Triton chooses the requests it traces by their number, for all models together.
        numbered = list(
            enumerate(sorted(traced, key=lambda trace: trace.ended - trace.request_seconds), self._number)
        )
        self._number += len(traced)
        self.boxes["trace_10"].put(trace for number, trace in numbered if number % DECIMATION == 0)
        parsed = parse(body)
        for name, observer in self.observers.items():
            observer.observe(parsed.only(COUNTERS | TOLD.get(name, set())), now)

    def share(self, source: str, model: str, signal: Signal, threshold: float) -> float:
        metric = state.REQUEST_DURATION if signal == "request" else state.QUEUE_DURATION
        labels = f'model="{model}",version="1"'
        shown = {s.series: s.value for family in self.observers[source].families(0) for s in family.samples}
        total = shown[f"{metric}_count{{{labels}}}"]
        return shown[f'{metric}_bucket{{{labels},le="{le(threshold)}"}}'] / total


def start(directory: Path, port: int) -> TritonServer:
    bounds = sorted({*DEFAULT_BOUNDS, *(bound for shape in SHAPES for bound in shape.request)})
    first_response = json.dumps(
        {"name": triton.FIRST_RESPONSE_MS.name, "buckets": [bound * 1000 for bound in bounds]}
    )
    for shape in SHAPES:
        write_sleeper(directory / "models", shape.name, shape.instances, histogram=first_response)
    settings = ("mode=opentelemetry", "level=TIMESTAMPS", "rate=1")
    url = f"opentelemetry,url=http://127.0.0.1:{port}/v1/traces"
    arguments = [f"--trace-config={setting}" for setting in (*settings, url)]
    arguments.append("--metrics-config=summary_latencies=true")
    server = TritonServer(directory / "models", directory, TritonPorts(*free_ports(3)), arguments=arguments)
    server.start()
    return server


def run(server: TritonServer, observers: Observers) -> dict[str, Truth]:
    """Send all shapes at once, sampling once a second, and go on until every request has its shape."""
    truths = {shape.name: Truth() for shape in SHAPES}
    for shape in SHAPES:  # the first request to a model is slow
        send(server.http_url, replace(shape, plan=lambda _: iter([(0.0, [0.0])])), time.monotonic(), Truth())
    observers.observe(requests.get(server.metrics_url, timeout=5).content, time.time())
    started = time.monotonic()
    senders = [
        threading.Thread(target=send, args=(server.http_url, shape, started, truths[shape.name]))
        for shape in SHAPES
    ]
    for sender in senders:
        sender.start()
    ends = started + SECONDS + SETTLE_SECONDS
    with requests.Session() as session:
        while time.monotonic() < ends:
            observers.observe(session.get(server.metrics_url, timeout=5).content, time.time())
            observers.receiver.poll(time.time())  # takes about a second
    for sender in senders:
        sender.join()
    return truths


@pytest.mark.real
@pytest.mark.timeout(900)
def test_the_exact_sources_are_within_one_percentage_point(tmp_path: Path) -> None:
    """Traces of every request, and a histogram, are within one percentage point; the others are printed."""
    port = free_ports(1)[0]
    observers = Observers(SHAPES, port)
    server = start(tmp_path, port)
    try:
        server.wait_live()
        truths = run(server, observers)
    finally:
        server.stop()
        observers.receiver.close()

    rows, worst = table(observers, truths)
    document(rows, worst, sum(len(truth.request) for truth in truths.values()))
    print("", *rows, f"worst: {worst}", f"lost: {observers.mailbox.lost()}", sep="\n")
    assert worst["trace"] <= 1.0
    assert worst["histogram"] <= 1.0


def table(observers: Observers, truths: dict[str, Truth]) -> tuple[list[str], dict[str, float]]:
    rows = [
        "| traffic | signal | threshold | truth | " + " | ".join(SOURCES) + " |",
        "|" + "---|" * (4 + len(SOURCES)),
    ]
    worst = dict.fromkeys(SOURCES, 0.0)
    for shape in SHAPES:
        judged: list[tuple[Signal, float]] = [("request", bound) for bound in shape.request]
        judged += [("queue", bound) for bound in shape.queue]
        for signal, threshold in judged:
            truth = truths[shape.name].share(signal, threshold)
            errors = []
            for source in SOURCES:
                if source == "histogram" and signal == "queue":
                    errors.append("-")
                    continue
                error = 100 * (observers.share(source, shape.name, signal, threshold) - truth)
                worst[source] = max(worst[source], abs(error))
                errors.append(f"{error:+.1f}")
            rows.append(
                f"| {shape.name} | {signal} | {threshold * 1000:.0f} ms | {100 * truth:.1f} % | "
                + " | ".join(errors)
                + " |"
            )
    return rows, worst


def document(rows: list[str], worst: dict[str, float], requests_sent: int) -> None:
    shapes = [f"- **{shape.name}**: {shape.text}" for shape in SHAPES]
    sources = [
        f"- **{name}**: {text}; worst error {worst[name]:.1f} points" for name, text in SOURCES.items()
    ]
    text = _TEXT.format(
        seconds=SECONDS,
        requests=requests_sent,
        table="\n".join(rows),
        shapes="\n".join(shapes),
        sources="\n".join(sources),
    )
    record("sources", 'make bench ARGS="-k exact_sources"', text)


_TEXT = """\
A real Triton 2.51 serves six
models for {seconds:.0f} s, one for each kind of traffic, with {requests} requests in all. The truth is what the
clients measured, which includes their network time. Each number is the error of the share of requests within the
threshold, in percentage points: with +5.0, the histogram counts 5 % of all requests as good that were not.

{table}

The traffic:

{shapes}

The sources:

{sources}
"""
