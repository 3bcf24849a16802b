"""Test traces: the requests in spans and trace files, and the limits of a broken sender."""

from __future__ import annotations

import gzip
import json
import math
import random
import socket
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans
from opentelemetry.proto.trace.v1.trace_pb2 import Span as ProtobufSpan

from exporters.clock import Clock
from support.loopback import served
from support.otlp import as_json, as_protobuf, document, request, span
from triton_exporter.app.settings import Settings
from triton_exporter.catalogue import own, state, triton
from triton_exporter.common.problem import ProblemsError
from triton_exporter.distribution.buckets import Buckets
from triton_exporter.distribution.distributions import Distributions
from triton_exporter.distribution.observations import Agreement
from triton_exporter.exposition.parse import parse
from triton_exporter.processor_time import CoreBudget
from triton_exporter.snapshot import ModelConfig, ModelVersion, QueuePolicy, Snapshot
from triton_exporter.tracing.otlp import (
    Assembler,
    OtlpError,
    Span,
    TraceReceiver,
    decode_json,
    decode_protobuf,
)
from triton_exporter.tracing.trace import Mailbox, TracedRequest
from triton_exporter.tracing.trace_setting import read_setting

T = 1_700_000_000.0
M = ModelVersion("m", "1")


def assembled(spans: list[Span], lost: Counter[str] | None = None) -> list[TracedRequest]:
    counted = Counter[str]() if lost is None else lost
    return Assembler(lambda reason, count: counted.update({reason: count})).assemble(spans, 0)


def test_a_request_has_its_time_and_its_time_in_the_queue() -> None:
    """A request's time is REQUEST_START to REQUEST_END, its queue time QUEUE_START to COMPUTE_START."""
    (trace,) = assembled(decode_json(as_json(*request("m", T, 0.25, 1.5))))

    assert (M, "completed", f"{1:032x}") == (trace.model, trace.outcome, trace.trace_id)
    assert (1.5, 0.25, T + 1.5) == pytest.approx((trace.request_seconds, trace.queue_seconds, trace.ended))


_texts = st.text(max_size=5)
_numbers = st.integers(0, 2**64 - 1)
_values = st.one_of(
    st.none(),
    st.builds(AnyValue, string_value=_texts),
    st.builds(AnyValue, int_value=st.integers(-(2**63), 2**63 - 1)),
    st.builds(AnyValue, bool_value=st.booleans()),
    st.builds(AnyValue, double_value=st.floats()),
)
_spans = st.builds(
    ProtobufSpan,
    trace_id=st.binary(max_size=16),
    span_id=st.binary(max_size=8),
    parent_span_id=st.binary(max_size=8),
    trace_state=_texts,
    name=_texts,
    start_time_unix_nano=_numbers,
    end_time_unix_nano=_numbers,
    flags=st.integers(0, 2**32 - 1),
    attributes=st.lists(st.builds(KeyValue, key=_texts, value=_values), max_size=3),
    events=st.lists(st.builds(ProtobufSpan.Event, time_unix_nano=_numbers, name=_texts), max_size=3),
)


@given(st.lists(st.lists(st.lists(_spans, max_size=2), max_size=2), max_size=2))
def test_protobuf_is_read_as_its_library_reads_it(batch: list[list[list[ProtobufSpan]]]) -> None:
    """Any spans, in any number of groups, with fields that are not used here."""
    resources = [
        ResourceSpans(scope_spans=[ScopeSpans(spans=spans, schema_url="s") for spans in scopes])
        for scopes in batch
    ]
    read = decode_protobuf(ExportTraceServiceRequest(resource_spans=resources).SerializeToString())

    def value(value: AnyValue) -> str:
        kind = value.WhichOneof("value")
        return str(getattr(value, kind)) if kind in ("string_value", "int_value") else ""

    assert read == [
        Span(
            *(span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()),
            *(span.start_time_unix_nano, span.end_time_unix_nano),
            {event.name: event.time_unix_nano for event in span.events},
            {pair.key: value(pair.value) for pair in span.attributes},
        )
        for resource in resources
        for scope in resource.scope_spans
        for span in scope.spans
    ]


@pytest.mark.parametrize(
    ("events", "outcomes", "lost"),
    [
        pytest.param({"QUEUE_START": T + 1e-5}, ["queue_full"], 0, id="no end: a full queue refused it"),
        pytest.param(
            {"QUEUE_START": T, "REQUEST_END": T + 1}, ["not_executed"], 0, id="no execution: a queue timeout"
        ),
        pytest.param({"REQUEST_END": T - 1}, [], 1, id="it ends before it starts"),
    ],
)
def test_a_request_that_was_not_executed_has_its_reason(
    events: dict[str, float], outcomes: list[str], lost: int
) -> None:
    """No metric of Triton counts what a full queue refused."""
    counted = Counter[str]()
    sent = decode_json(as_json(span("m", 2, 1, model="m", REQUEST_START=T, **events)))

    assert outcomes == [trace.outcome for trace in assembled(sent, counted)]
    assert lost == counted["malformed"]


def test_an_ensemble_is_completed_by_its_steps() -> None:
    """An ensemble has no execution of its own: its steps show that it completed, and its queue is unknown."""
    step = span("step", 4, 2, model="step", REQUEST_START=T, QUEUE_START=T, REQUEST_END=T + 1)
    run = span("compute", 5, 4, COMPUTE_START=T + 0.5, COMPUTE_END=T + 1)
    whole = span("ens", 2, 1, model="ens", REQUEST_START=T, QUEUE_START=T, REQUEST_END=T + 1)
    traces = {trace.model.model: trace for trace in assembled(decode_json(as_json(run, step, whole)))}

    assert ("completed", None) == (traces["ens"].outcome, traces["ens"].queue_seconds)
    assert ("completed", 0.5) == (traces["step"].outcome, traces["step"].queue_seconds)


def test_the_time_of_an_ensemble_in_an_ensemble_is_that_of_its_steps() -> None:
    """What the outer one waits for is the queue of the model within, which is no compute of the inner ensemble."""
    model = span("slow", 6, 4, model="slow", REQUEST_START=T, QUEUE_START=T, REQUEST_END=T + 4)
    run = span("compute", 7, 6, COMPUTE_START=T + 3, COMPUTE_END=T + 4)
    inner = span("inner", 4, 2, model="inner", REQUEST_START=T, REQUEST_END=T + 4.5)
    outer = span("outer", 2, 1, model="outer", REQUEST_START=T, REQUEST_END=T + 5)
    traces = {each.model.model: each for each in assembled(decode_json(as_json(run, model, inner, outer)))}
    steps = {step.model: (step.queue_seconds, step.request_seconds) for step in traces["outer"].steps}

    assert {"slow": pytest.approx((3, 4)), "inner": pytest.approx((0, 0.5))} == steps


def test_spans_in_two_batches() -> None:
    """An execution that came in an earlier batch still belongs to its request; one whose request never comes is lost."""
    compute, model, _ = decode_json(as_json(*request("m", T, 0.25, 1.5)))
    lost = Counter[str]()
    assembler = Assembler(lambda reason, count: lost.update({reason: count}))

    assert [] == assembler.assemble([compute], 0)
    assert [0.25] == pytest.approx([trace.queue_seconds for trace in assembler.assemble([model], 5)])
    assembler.assemble([compute], 10)
    assert 0 == lost.total()
    assembler.assemble([], 71)
    assert 1 == lost["orphan"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["resourceSpans", "scopeSpans", "spans", "events", "attributes", "traceId", "name"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(json_values)
def test_any_json_is_spans_or_an_error_of_ours(value: object) -> None:
    """Any JSON is either spans or an error of ours."""
    try:
        spans = decode_json(json.dumps(value).encode())
    except OtlpError:
        return
    assembled(spans)


@given(st.data())
def test_damaged_spans_give_requests_or_an_error_of_ours(data: st.DataObject) -> None:
    """One field of a good batch replaced by anything: an error of ours, or requests that make sense."""
    whole = document(*request("m", T, 0.25, 1.5))
    spans = whole["resourceSpans"][0]["scopeSpans"][0]["spans"]
    target = data.draw(st.sampled_from(spans))
    target[data.draw(st.sampled_from(sorted(target)))] = data.draw(json_values)
    try:
        traces = assembled(decode_json(json.dumps(whole).encode()))
    except OtlpError:
        return
    assert all(trace.request_seconds >= 0 and trace.ended > 0 for trace in traces)


@given(st.binary(max_size=60), st.integers(0, 300))
def test_damaged_protobuf_gives_requests_or_an_error_of_ours(junk: bytes, at: int) -> None:
    """Bytes put into a good protobuf batch: an error of ours, or requests that make sense."""
    body = as_protobuf(*request("m", T, 0.25, 1.5))
    try:
        traces = assembled(decode_protobuf(body[:at] + junk + body[at:]))
    except OtlpError:
        return
    assert all(trace.request_seconds >= 0 for trace in traces)


@contextmanager
def receiving(mailbox: Mailbox, **limits: float) -> Iterator[TraceReceiver]:
    receiver = TraceReceiver("127.0.0.1", 0, mailbox, **limits)  # type: ignore[arg-type]
    with served(receiver.server):
        yield receiver


def post(receiver: TraceReceiver, body: bytes, **headers: str) -> int:
    sent = {"Content-Type": "application/json"} | {k.replace("_", "-"): v for k, v in headers.items()}
    return requests.post(f"{receiver.server.url}/v1/traces", data=body, headers=sent, timeout=10).status_code


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (as_json(*request("m", T, 0.25, 1.5)), {}),
        (as_protobuf(*request("m", T, 0.25, 1.5)), {"Content_Type": "application/x-protobuf"}),
        (gzip.compress(as_json(*request("m", T, 0.25, 1.5))), {"Content_Encoding": "gzip"}),
    ],
    ids=["json", "protobuf", "gzip"],
)
def test_batches_are_received_as_json_protobuf_and_compressed(body: bytes, headers: dict[str, str]) -> None:
    """A batch arrives in JSON, in protobuf and compressed."""
    mailbox = Mailbox()
    with receiving(mailbox) as receiver:
        assert 200 == post(receiver, body, **headers)

    assert [M] == [trace.model for trace in mailbox.drain()]
    assert {"accepted": 1} == mailbox.batches()


@pytest.mark.parametrize(
    ("body", "headers", "status", "result"),
    [
        (b"{", {}, 400, "malformed"),
        (b"[1]", {}, 400, "malformed"),
        (b"\xff", {"Content_Type": "application/x-protobuf"}, 400, "malformed"),
        (b"[" * 5000, {}, 413, "too_large"),
        (gzip.compress(b" " * 100_000), {"Content_Encoding": "gzip"}, 413, "too_large"),
        (b"zip", {"Content_Encoding": "gzip"}, 400, "malformed"),
        (b"{}", {"Content_Encoding": "br"}, 415, "unsupported"),
        (b"{}", {"Content_Type": "text/plain"}, 415, "unsupported"),
    ],
)
def test_a_batch_that_cannot_be_read_is_refused_and_counted(
    body: bytes, headers: dict[str, str], status: int, result: str
) -> None:
    """What cannot be read is refused with its reason, counted, and the next batch is still taken."""
    mailbox = Mailbox()
    with receiving(mailbox, max_body_bytes=2000) as receiver:
        assert status == post(receiver, body, **headers)
        assert 200 == post(receiver, b"{}")

    assert {result: 1, "accepted": 1} == mailbox.batches()


def test_traces_beyond_their_share_of_a_core_are_refused_and_counted() -> None:
    """Once the share is spent, a batch gets 503, which senders of OTLP may retry, until processor time is saved."""
    time_passed, cpu_used = Clock(), Clock()
    budget = CoreBudget(0.25, max_saved=1.0, clock=time_passed, cpu_clock=cpu_used)
    mailbox = Mailbox(budget=budget)
    body = as_json(*request("m", T, 0.25, 1.5))
    with receiving(mailbox) as receiver:
        assert 200 == post(receiver, body)
        with budget.charged():
            cpu_used.now += 2.0
        assert 503 == post(receiver, body)
        time_passed.now += 3.9
        assert 503 == post(receiver, body)
        time_passed.now += 0.2
        assert 200 == post(receiver, body)

    assert {"accepted": 2, "over_budget": 2} == mailbox.batches()


def test_traces_are_charged_where_they_are_decoded_and_where_they_are_used() -> None:
    """A decoder and a thread that observes, each of which takes a second of processor time."""
    ticks = count()
    budget = CoreBudget(0.0, max_saved=2.5, clock=lambda: 0.0, cpu_clock=lambda: next(ticks))
    mailbox = Mailbox(budget=budget)
    histograms = Distributions(mailbox=mailbox)
    histograms.observe(parse(counters(0, 0)), T)
    results = []
    with receiving(mailbox) as receiver:
        for second in (1, 2):
            results.append(post(receiver, as_json(*request("m", T, 0.25, 0.5))))
            histograms.observe(parse(counters(0, 0)), T + second)
        results.append(post(receiver, b"{}"))

    assert [200, 200, 503] == results


def test_a_slow_sender_of_traces_is_cut_off_in_time() -> None:
    """A sender that drips is cut off in time, and further ones beyond the limit are refused."""
    mailbox = Mailbox()
    with (
        receiving(mailbox, connections=1, body_seconds=0.3) as receiver,
        socket.create_connection(receiver.server.server_address, timeout=10) as slow,
    ):
        slow.sendall(
            b"POST /v1/traces HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n"
        )
        while not any(connection.answering for connection in receiver.server.connections.open()):
            time.sleep(0.01)
        assert 503 == post(receiver, b"{}")
        for _ in range(8):
            time.sleep(0.1)
            slow.sendall(b" ")
            if mailbox.batches().get("slow"):
                break
        assert slow.recv(100).startswith(b"HTTP/1.1 408")

    assert {"busy": 1, "slow": 1} == mailbox.batches()


def test_a_head_that_never_ends_is_closed_for_a_batch() -> None:
    """Connections that never complete a request do not keep batches out, and are counted."""
    mailbox = Mailbox()
    with receiving(mailbox, connections=2) as receiver, ExitStack() as peers:
        for _ in range(5):
            slow = socket.create_connection(receiver.server.server_address, timeout=10)
            peers.enter_context(slow).sendall(b"POST /v1/traces HT")
        assert 200 == post(receiver, b"{}")

    assert {"accepted": 1, "slow": 4} == mailbox.batches()


def test_batches_beyond_the_capacity_are_lost_and_counted() -> None:
    """Requests beyond the mailbox's capacity are lost, and counted."""
    mailbox = Mailbox(capacity=2)
    mailbox.put([TracedRequest(M, "completed", T, 1, 0, "")] * 5)

    assert 2 == len(mailbox.drain())
    assert {"overflow": 3} == mailbox.lost()


def counters(requests_: float, seconds: float, version: str = "1") -> bytes:
    labels = f'{{model="m",version="{version}"}}'
    return "".join(
        f"# TYPE {metric} counter\n{metric}{labels} {value}\n"
        for metric, value in (
            (triton.REQUEST_SUCCESS, requests_),
            (triton.REQUEST_DURATION_US, seconds * 1e6),
            (triton.QUEUE_DURATION_US, 0),
        )
    ).encode()


def traced(took: float, ended: float, outcome: str = "completed") -> TracedRequest:
    return TracedRequest(M, outcome, ended, took, 0.0, f"t{ended}")  # type: ignore[arg-type]


def test_tail_that_a_mean_hides() -> None:
    """5 % slow requests are invisible in sampled means and exact from traces, with the same count."""
    mailbox = Mailbox()
    means, traces = Distributions(), Distributions(mailbox=mailbox)
    for second in range(60):
        body = counters(100 * second, (95 * 0.005 + 5 * 0.5) * second)
        if second:
            slow = [traced(0.5, second - 0.5)] * 5
            mailbox.put([*slow, *[traced(0.005, second - 0.3)] * 95])
        means.observe(parse(body), second)
        traces.observe(parse(body), second)
    share, total = {}, {}
    for name, distributions in (("mean", means), ("trace", traces)):
        shown = {s.series: s.value for family in distributions.families(60) for s in family.samples}
        labels = 'model="m",version="1"'
        total[name] = shown[f"{state.REQUEST_DURATION}_count{{{labels}}}"]
        share[name] = shown[f'{state.REQUEST_DURATION}_bucket{{{labels},le="0.1"}}'] / total[name]

    assert {"mean": 1.0, "trace": pytest.approx(0.95, abs=0.001)} == share
    assert 5900 == total["mean"]
    assert 5700 <= total["trace"] <= 5900
    assert 0.5 == pytest.approx(shown[f'{state.REQUEST_QUANTILE}{{{labels},quantile="0.99"}}'], rel=0.08)


def test_rejections_are_weighted_by_the_trace_rate() -> None:
    """Each traced rejection counts as many as the trace rate implies."""
    mailbox = Mailbox()
    mailbox.rate = 10
    distributions = Distributions(mailbox=mailbox)
    distributions.observe(parse(counters(0, 0)), T)
    mailbox.put([traced(0, T, "queue_full")] * 3)
    distributions.observe(parse(counters(1, 1)), T + 1)
    shown = {s.series: s.value for family in distributions.families(T) for s in family.samples}

    assert 30 == shown[f'{state.QUEUE_FULL_ESTIMATE}{{model="m",version="1"}}']
    assert 3 == shown[f'{state.TRACED_REQUESTS}{{model="m",version="1",outcome="queue_full"}}']
    assert 0 == shown[f'{own.TRACES_LOST}{{reason="late"}}']


def test_slow_requests_keep_their_share_when_every_fifth_is_traced() -> None:
    """At 20 readings a second, 5 % slow ones of 100 a second read as 5 %; traces arrive every 5 s."""
    rng = random.Random(3)
    mailbox = Mailbox()
    mailbox.rate = 5
    distributions = Distributions(Buckets(thresholds={"request": (0.1,)}), mailbox)
    ended = []
    at = T + 1
    for number in range(20_000):
        at += rng.expovariate(100)
        took = 0.3 if rng.random() < 0.05 else 0.005
        ended.append((at + took, took, number % 5 == 0))
    due = iter(sorted(ended))
    next_end, took, is_traced = next(due)
    batch: list[TracedRequest] = []
    ended_count, total, slow = 0, 0.0, 0
    for step in range(20 * 220):
        now = T + step / 20
        while next_end <= now:
            ended_count, total, slow = ended_count + 1, total + took, slow + (took > 0.1)
            if is_traced:
                batch.append(traced(took, next_end))
            next_end, took, is_traced = next(due, (math.inf, 0.0, False))
        if step % 100 == 0:
            mailbox.put(batch)
            batch = []
        (distributions.observe if step % 20 == 0 else distributions.sample)(
            parse(counters(ended_count, total)), now
        )
    shown = {s.series: s.value for family in distributions.families(now) for s in family.samples}
    labels = 'model="m",version="1"'
    within = shown[f'{state.REQUEST_DURATION}_bucket{{{labels},le="0.1"}}']
    within /= shown[f"{state.REQUEST_DURATION}_count{{{labels}}}"]

    assert 1 - slow / ended_count == pytest.approx(within, abs=0.01)


@pytest.mark.parametrize(
    ("config", "full"),
    [
        (ModelConfig("m", sequence_batching=True), 0),
        (ModelConfig("m", queue=QueuePolicy(max_queue_size=2)), 1),
        (ModelConfig("m", priority_queues={2: QueuePolicy(max_queue_size=2)}), 1),
    ],
)
def test_a_queue_without_a_limit_is_never_full(config: ModelConfig, full: int) -> None:
    """A sequence that lacks its start is refused as a full queue refuses: only the configuration shows which."""
    mailbox = Mailbox()
    distributions = Distributions(mailbox=mailbox)
    distributions.observe_snapshot(Snapshot(T, configs={M: config}))
    distributions.observe(parse(counters(0, 0)), T)
    mailbox.put([traced(0, T, "queue_full")])
    distributions.observe(parse(counters(1, 1)), T + 1)
    shown = {s.series: s.value for family in distributions.families(T) for s in family.samples}

    labels = 'model="m",version="1"'
    assert full == shown[f"{state.QUEUE_FULL_ESTIMATE}{{{labels}}}"]
    outcomes = [
        shown[f'{state.TRACED_REQUESTS}{{{labels},outcome="{name}"}}'] for name in ("queue_full", "refused")
    ]
    assert [full, 1 - full] == outcomes


@pytest.mark.parametrize(
    ("folder", "ensemble", "counted"), [("7", True, "1"), ("7", False, "7"), ("1", True, "1")]
)
def test_traces_of_an_ensemble_go_where_its_requests_are_counted(
    folder: str, ensemble: bool, counted: str
) -> None:
    """Triton counts an ensemble under version 1 and traces it under its folder's name."""
    mailbox = Mailbox()
    distributions = Distributions(mailbox=mailbox)
    config = ModelConfig("m", platform="ensemble" if ensemble else "")
    distributions.observe_snapshot(Snapshot(T, configs={ModelVersion("m", folder): config}))
    distributions.observe(parse(counters(0, 0) + (counters(0, 0, version="7") if folder == "7" else b"")), T)
    mailbox.put([TracedRequest(ModelVersion("m", folder), "completed", T + 0.5, 0.2, 0.0, "t1")])
    distributions.observe(parse(counters(1, 0.2)), T + 1)
    shown = {s.series: s.value for family in distributions.families(T) for s in family.samples}

    assert 1 == shown[f'{state.TRACED_REQUESTS}{{model="m",version="{counted}",outcome="completed"}}']


def watched(
    seconds: int,
    rate: int = 1,
    forged: Sequence[float] = (),
    forged_until: int = 10**9,
    ahead: float = 0,
    other_ahead: float | None = None,
) -> Mapping[str, float]:
    """Return what is shown of 100 requests a second, 30 % of them slow, whose traces arrive in batches of 5 s.

    `forged` traces, of so many seconds each, are added every second; one is dated `ahead` once. With `other_ahead`
    another sender sends a trace every second at once, of another model, dated so many seconds ahead.
    """
    rng = random.Random(7)
    mailbox = Mailbox()
    mailbox.rate = rate
    distributions = Distributions(mailbox=mailbox)
    batch: list[TracedRequest] = []
    number, total = 0, 0.0
    for second in range(seconds):
        for _ in range(100 if second else 0):
            took = 0.02 if rng.random() < 0.7 else 0.5
            number, total = number + 1, total + took
            if number % rate == 0:
                batch.append(traced(took, T + second - 0.5))
        if second < forged_until:
            batch += [traced(took, T + second - 0.4) for took in forged]
        if ahead and second == 60:
            batch.append(traced(0.02, T + ahead))
        if other_ahead is not None:
            mailbox.put(
                [
                    TracedRequest(
                        ModelVersion("other", "1"), "completed", T + second + other_ahead, 0.1, 0.0, "t"
                    )
                ]
            )
        if second % 5 == 0:
            mailbox.put(batch)
            batch = []
        distributions.observe(parse(counters(number, total)), T + second)
    return {s.series: s.value for family in distributions.families(T + seconds) for s in family.samples}


def source_is(shown: Mapping[str, float], source: str) -> bool:
    labels = f'model="m",version="1",signal="request",source="{source}"'
    return shown.get(f"{state.DISTRIBUTION_SOURCE}{{{labels}}}") == 1


def within(shown: Mapping[str, float], seconds: str) -> float:
    labels = 'model="m",version="1"'
    bucket = shown[f'{state.REQUEST_DURATION}_bucket{{{labels},le="{seconds}"}}']
    return bucket / shown[f"{state.REQUEST_DURATION}_count{{{labels}}}"]


@pytest.mark.parametrize(("rate", "took"), [(1, 5.0), (10, 0.02), (100, 5.0)])
def test_forged_traces_that_contradict_the_counters_are_refused(rate: int, took: float) -> None:
    """Five forged spans to each true one move no share: the next source is used, and a series reports it."""
    shown = watched(240, rate, forged=[took] * (500 // rate))

    assert source_is(shown, "sampled_mean")
    assert shown[f'{own.TRACES_LOST}{{reason="contradicts"}}'] > 0.5 * 240 * 600 / rate
    assert within(shown, "0.1") < 0.2  # the mean of each second is 0.16 s; forged fast spans made it 0.95
    assert within(shown, "1.0") > 0.8


def test_traces_are_accepted_again_after_a_contradiction() -> None:
    """When the forged spans end, the true ones count again after the window of the comparison."""
    forged = [0.02] * 500

    assert source_is(watched(120, forged=forged, forged_until=60), "sampled_mean")
    assert source_is(watched(400, forged=forged, forged_until=60), "trace")


@pytest.mark.parametrize("rate", [1, 10, 100])
def test_true_traces_are_accepted(rate: int) -> None:
    """A random part of the counted requests contradicts nothing, however few they are."""
    shown = watched(300, rate)

    assert source_is(shown, "trace")
    assert 0 == shown[f'{own.TRACES_LOST}{{reason="contradicts"}}']
    assert 0.7 == pytest.approx(within(shown, "0.1"), abs=0.08)


def test_rare_slow_requests_without_a_trace_are_not_a_contradiction() -> None:
    """One request in 1,000 takes 5 s and doubles the mean; with one trace in 100 most windows show none."""
    rng = random.Random(3)
    agreement = Agreement()
    answers = []
    for second in range(600):
        slow = sum(rng.random() < 0.001 for _ in range(100))
        answers.append(agreement.update(second, [(100, 0.5 + 5 * slow)], [0.005]))

    assert all(answers)


def test_a_trace_dated_in_the_future_is_the_only_one_lost() -> None:
    """One span dated 2100 closes no interval: the true traces still count, and the forged one is counted."""
    shown = watched(120, ahead=4_102_444_800.0 - T)

    assert 1 == shown[f'{own.TRACES_LOST}{{reason="ahead"}}']
    assert 0 == shown[f'{own.TRACES_LOST}{{reason="late"}}']
    assert source_is(shown, "trace")


@pytest.mark.parametrize("other_ahead", [0, 1.9])
def test_spans_of_now_do_not_make_the_true_traces_late(other_ahead: float) -> None:
    """Spans of now do not prove that those of another sender, which come every 5 s, have all come."""
    shown = watched(120, other_ahead=other_ahead)

    assert shown[f'{own.TRACES_LOST}{{reason="late"}}'] <= 2 * 5 * 100  # of both signals, the first batch
    assert source_is(shown, "trace")
    assert 0.7 == pytest.approx(within(shown, "0.1"), abs=0.08)


def test_forged_rejections_count_only_while_traces_are_accepted() -> None:
    """No trace of a model whose traces contradict the counters is used."""
    mailbox = Mailbox()
    distributions = Distributions(mailbox=mailbox)
    for second in range(60):
        mailbox.put([traced(5.0, T + second - 0.4)] * 50)
        distributions.observe(parse(counters(10 * second, 0.1 * second)), T + second)
    mailbox.put([traced(0, T + 59.5, "queue_full")] * 100)
    distributions.observe(parse(counters(600, 6)), T + 60)
    shown = {s.series: s.value for family in distributions.families(T) for s in family.samples}

    assert 0 == shown[f'{state.QUEUE_FULL_ESTIMATE}{{model="m",version="1"}}']


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"otlp_listen": "127.0.0.1:4318"}, ""),
        ({"otlp_listen": "localhost:4318"}, ""),
        ({"otlp_listen": "[::1]:4318"}, ""),
        ({"otlp_listen": "0.0.0.0:4318"}, "add --otlp-allow-remote"),
        ({"otlp_listen": "[::]:4318"}, "add --otlp-allow-remote"),
        ({"otlp_listen": "triton-sidecar:4318"}, "add --otlp-allow-remote"),
        ({"otlp_listen": "0.0.0.0:4318", "otlp_allow_remote": "true"}, ""),
        ({"otlp_listen": "0.0.0.0:4318", "otlp_allow_remote": "maybe"}, "valid boolean"),
    ],
)
def test_traces_from_other_machines_need_a_flag(options: Mapping[str, str], problem: str) -> None:
    """The receiver accepts traces from any sender, so it listens beyond loopback only when configured to."""
    try:
        Settings.read({"triton": "t", **options}, {})
        printed = ""
    except ProblemsError as error:
        printed = str(error)

    assert problem in printed
    assert bool(problem) == bool(printed)


@pytest.mark.parametrize(
    ("body", "rate"),
    [
        (b'{"trace_level":["OFF"],"trace_rate":"100","trace_count":"-1"}', 100),
        (b'{"trace_level":["TIMESTAMPS"],"trace_rate":1,"trace_count":-1}', 1),
        (b'{"trace_level":["OFF"],"trace_rate":"nan","trace_count":"-1"}', None),
        (b'{"trace_rate":"100"}', None),
        (b"[]", None),
        (b"{", None),
    ],
)
def test_the_trace_setting_contains_the_rate(body: bytes, rate: float | None) -> None:
    """Triton's trace setting gives the rate; any other response gives none."""
    setting = read_setting(body)
    assert rate == (setting and setting.rate)
