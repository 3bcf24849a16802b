"""Measure what a trace costs the exporter: received over HTTP, decoded and added to histograms."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import requests

from support.loopback import served
from support.otlp import as_json, request
from triton_exporter.catalogue import state, triton
from triton_exporter.catalogue.metric import Metric
from triton_exporter.distribution.distributions import Distributions
from triton_exporter.exposition.parse import parse
from triton_exporter.tracing.otlp import TraceReceiver
from triton_exporter.tracing.trace import CORE_SHARE, Mailbox

MODELS = tuple(f"m{number}" for number in range(6))
PER_SECOND, SECONDS = 2500, 20
"""Of the times in the traces, which are sent as fast as the exporter takes them."""

BATCHES, READINGS = 5, 20
"""Of traces, and of the counters, in a second of those times."""

START = 1_700_000_000.0


class Served(NamedTuple):
    """One request; times in seconds."""

    ended: float
    took: float
    model: str


def batch(rng: random.Random, number: int) -> Sequence[Served]:
    """All models' requests of a part of a second, 20 ms each on average."""
    ends = sorted(START + (number + rng.random()) / BATCHES for _ in range(PER_SECOND // BATCHES))
    return [Served(end, rng.expovariate(50), rng.choice(MODELS)) for end in ends]


def body(traced: Sequence[Served], number: int) -> bytes:
    spans = [
        span
        for place, trace in enumerate(traced)
        for span in request(
            trace.model, trace.ended - trace.took, 0.0, trace.took, number * PER_SECOND + place + 1
        )
    ]
    return as_json(*spans)


def readings(all_of: Sequence[Served], until: float) -> Iterator[tuple[float, bytes]]:
    """Yield each reading's time and counters."""
    count, seconds = Counter[str](), defaultdict[str, float](float)
    place, now = 0, START
    while now < until:
        now += 1 / READINGS
        while place < len(all_of) and all_of[place].ended <= now:
            count[all_of[place].model] += 1
            seconds[all_of[place].model] += all_of[place].took
            place += 1
        values: dict[Metric, Mapping[str, float]] = {
            triton.REQUEST_SUCCESS: count,
            triton.REQUEST_DURATION_US: {model: 1e6 * total for model, total in seconds.items()},
            triton.QUEUE_DURATION_US: dict.fromkeys(count, 0),
        }
        yield (
            now,
            "".join(
                f"# TYPE {metric} counter\n"
                + "".join(f'{metric}{{model="{model}",version="1"}} {by.get(model, 0)}\n' for model in MODELS)
                for metric, by in values.items()
            ).encode(),
        )


def test_the_cost_of_a_trace() -> None:
    """Processor time of exporter and sender for each trace, and how many a second CORE_SHARE allows."""
    rng = random.Random(1)
    batches = [batch(rng, number) for number in range(SECONDS * BATCHES)]
    bodies = [body(traced, number) for number, traced in enumerate(batches)]
    sent = [trace for traced in batches for trace in traced]
    shown = list(readings(sent, START + SECONDS + 20))
    mailbox = Mailbox()
    histograms = Distributions(mailbox=mailbox)
    receiver = TraceReceiver("127.0.0.1", 0, mailbox)
    url = f"{receiver.server.url}/v1/traces"
    with served(receiver.server):
        started = time.process_time()
        for number, (now, counters) in enumerate(shown):
            place, rest = divmod(number * BATCHES, READINGS)
            if rest == 0 and 0 < place <= len(bodies):
                requests.post(
                    url, data=bodies[place - 1], headers={"Content-Type": "application/json"}, timeout=10
                )
            (histograms.sample if number else histograms.observe)(parse(counters), now)
        each = (time.process_time() - started) / len(sent)
    lost = {reason: count for reason, count in mailbox.lost().items() if count}
    traced = sum(
        sample.value
        for family in histograms.families(now)
        for sample in family.samples
        if sample.series.startswith(str(state.TRACED_REQUESTS))
    )
    print(
        f"\n{len(sent)} traces, {1e6 * each:.0f} us each: {CORE_SHARE:.0%} of a core is {CORE_SHARE / each:.0f}/s"
    )
    print(f"batches: {dict(mailbox.batches())}; requests taken: {traced:.0f}; lost: {lost}")
