"""OTLP traces as Triton sends them: received in bounded memory, and spans put together to requests.

Triton posts JSON; a collector in between may send protobuf. Spans of one request share a trace id: the
model's span has REQUEST_START, QUEUE_START and REQUEST_END, its child span `compute` COMPUTE_START.
https://opentelemetry.io/docs/specs/otlp/
"""

from __future__ import annotations

import json
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from triton_exporter.http.server import Connections, RefusedError, Request, Response, Server, routed
from triton_exporter.snapshot import ModelVersion
from triton_exporter.tracing.trace import Mailbox, Step, Timeline, TracedRequest

MODEL_NAME, MODEL_VERSION = "triton.model_name", "triton.model_version"

ORPHAN_SECONDS = 60.0
"""Time for which an execution waits for the span of its request, which ends after it."""

MAX_PENDING = 20_000
"""Largest number of executions, and of requests with steps, that are stored."""


MAX_STEPS = 100
"""Largest number of calls of one request that are stored."""

MAX_SPANS = 20_000
"""Spans of one batch: Triton sends at most 512, and each takes a kilobyte once it is decoded."""

MAX_PARTS = 1_000
"""Events and attributes of one span together: OpenTelemetry limits each to 128."""

MAX_JSON_VALUES = 200_000
"""Objects and lists of one batch in JSON, which are all built before any is read; a span has about 15."""


class OtlpError(ValueError):
    """A body that is not an OTLP trace request."""


class TooManyError(OtlpError):
    """A body that would take too much memory once it is decoded."""


@dataclass(frozen=True, slots=True)
class Span:
    """The part of one span that is read; `events` are nanoseconds since 1970 by name."""

    trace_id: str
    span_id: str
    parent_id: str
    start: int
    end: int
    events: Mapping[str, int]
    attributes: Mapping[str, str]


def decode_json(body: bytes) -> list[Span]:
    """Read an ExportTraceServiceRequest in JSON. Raises OtlpError."""
    if body.count(b"{") + body.count(b"[") > MAX_JSON_VALUES:
        raise TooManyError(f"more than {MAX_JSON_VALUES} objects and lists")
    try:
        spans = (
            span
            for resource in json.loads(body).get("resourceSpans", ())
            for scope in resource.get("scopeSpans", ())
            for span in scope.get("spans", ())
        )
        return _read_spans(_json_span, spans)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        if isinstance(error, OtlpError):
            raise
        raise OtlpError(f"not an OTLP trace request in JSON: {error!r:.200}") from error


def decode_protobuf(body: bytes) -> list[Span]:
    """Read an ExportTraceServiceRequest in protobuf. Raises OtlpError.

    The library for protobuf builds every message of a body before one is read: two million empty spans fit into a
    body, and take a gigabyte. Field numbers: https://github.com/open-telemetry/opentelemetry-proto (trace.proto)
    """
    try:
        spans = (
            span
            for resource in _messages(memoryview(body), 1)
            for scope in _messages(resource, 2)
            for span in _messages(scope, 2)
        )
        return _read_spans(_protobuf_span, spans)
    except UnicodeDecodeError as error:
        raise OtlpError(f"not an OTLP trace request in protobuf: {error}") from error


def _read_spans(read: Callable[[Any], Span], spans: Iterable[Any]) -> list[Span]:
    """Read spans one by one; no more are built than are allowed. Raises TooManyError."""
    found = list(map(read, islice(spans, MAX_SPANS + 1)))
    if len(found) > MAX_SPANS:
        raise TooManyError(f"more than {MAX_SPANS} spans")
    return found


class Assembler:
    """Puts the spans of a request together, over several batches where it must. Bounded; not for threads.

    `lose` is called with `orphan` for each execution whose request did not come, and with `malformed` for
    each request whose times contradict each other.
    """

    def __init__(self, lose: Callable[[str, int], None]) -> None:
        self._lose = lose
        # By the id of the request's span: when its execution began (ns), and when it was received (s).
        self._executions: OrderedDict[tuple[str, str], tuple[int, float]] = OrderedDict()
        self._steps: OrderedDict[tuple[str, str], tuple[Step, ...]] = OrderedDict()

    def assemble(self, spans: Iterable[Span], now: float) -> list[TracedRequest]:
        """Return requests that these spans complete; `now` in seconds of any clock."""
        requests = []
        for span in spans:
            started = span.events.get("COMPUTE_START")
            if started is not None:
                self._executions[span.trace_id, span.parent_id] = (started, now)
            if MODEL_NAME in span.attributes:
                requests.append(span)
                if span.parent_id:
                    self._steps.setdefault((span.trace_id, span.parent_id), ())
        self._forget(now)
        # A model ends after those that it called.
        read = [self._request(span) for span in sorted(requests, key=lambda span: span.end)]
        self._lose("malformed", read.count(None))
        return [request for request in read if request]

    def _request(self, span: Span) -> TracedRequest | None:
        key = (span.trace_id, span.span_id)
        execution = self._executions.pop(key, None)
        steps = self._steps.pop(key, None)
        version = ModelVersion(span.attributes[MODEL_NAME], span.attributes.get(MODEL_VERSION, ""))
        request = Timeline(
            version,
            span.trace_id,
            span.events.get("REQUEST_START", span.start),
            span.events.get("REQUEST_END"),
            span.events.get("QUEUE_START"),
            None if execution is None else execution[0],
            span.end,
            steps is not None,
        ).request()
        if request is None:
            return None
        called = self._steps.get((span.trace_id, span.parent_id))
        if called is not None and len(called) < MAX_STEPS:
            # Of a step that calls others itself (an ensemble in an ensemble) only what is left is its own.
            queue, within = request.queue_seconds or 0.0, steps or ()
            own = max(queue, request.request_seconds - sum(step.request_seconds for step in within))
            self._steps[span.trace_id, span.parent_id] = (*called, *within, Step(version.model, queue, own))
        return replace(request, steps=steps) if steps else request

    def _forget(self, now: float) -> None:
        orphans = 0
        while self._executions:
            _, received = next(iter(self._executions.values()))
            if len(self._executions) <= MAX_PENDING and received > now - ORPHAN_SECONDS:
                break
            self._executions.popitem(last=False)
            orphans += 1
        self._lose("orphan", orphans)
        while len(self._steps) > MAX_PENDING:
            self._steps.popitem(last=False)


def _json_span(span: Any) -> Span:
    return Span(
        str(span["traceId"]),
        str(span["spanId"]),
        str(span.get("parentSpanId", "")),
        int(span["startTimeUnixNano"]),
        int(span["endTimeUnixNano"]),
        {str(event["name"]): int(event["timeUnixNano"]) for event in span.get("events", ())},
        {str(pair["key"]): _json_value(pair["value"]) for pair in span.get("attributes", ())},
    )


def _json_value(value: Any) -> str:
    """Return a value; an intValue is a number in a string, because JSON has no 64 bits."""
    return next((str(value[kind]) for kind in ("stringValue", "intValue") if kind in value), "")


def _protobuf_span(message: memoryview) -> Span:
    ids: dict[int, str] = {}
    times: dict[int, int] = {}
    events: dict[str, int] = {}
    attributes: dict[str, str] = {}
    parts = 0
    for number, value in _fields(message):
        if isinstance(value, int):
            times[number] = value
        elif number in (1, 2, 4):
            ids[number] = value.hex()
        elif number in (9, 11):
            parts += 1
            if parts > MAX_PARTS:
                raise TooManyError(f"more than {MAX_PARTS} events and attributes of a span")
            fields = dict(_fields(value))
            if number == 11:
                events[_text(fields.get(2))] = _number(fields.get(1))
            else:
                attributes[_text(fields.get(1))] = _any_value(fields.get(2))
    return Span(
        ids.get(1, ""), ids.get(2, ""), ids.get(4, ""), times.get(7, 0), times.get(8, 0), events, attributes
    )


def _any_value(message: int | memoryview | None) -> str:
    """Return a value that is a string or a whole number; of several the last one counts."""
    text = ""
    for number, value in _fields(message) if isinstance(message, memoryview) else ():
        if number == 1:
            text = _text(value)
        elif number == 3 and isinstance(value, int):
            text = str(value - (1 << 64) if value >= 1 << 63 else value)
        elif number in (2, 4, 5, 6, 7):
            text = ""
    return text


def _text(value: int | memoryview | None) -> str:
    return str(value, "utf-8") if isinstance(value, memoryview) else ""


def _number(value: int | memoryview | None) -> int:
    return value if isinstance(value, int) else 0


def _messages(message: memoryview, wanted: int) -> Iterator[memoryview]:
    """Yield the messages of one field. Raises TooManyError."""
    count = 0
    for number, value in _fields(message):
        if number == wanted and isinstance(value, memoryview):
            count += 1
            if count > MAX_SPANS:
                raise TooManyError(f"more than {MAX_SPANS} spans, or groups of spans")
            yield value


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield each field of a protobuf message: its number, and a number or the bytes of anything else.

    https://protobuf.dev/programming-guides/encoding/
    """
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        start = at
        kind = tag & 7
        if kind == 0:
            number, at = _varint(message, at)
        elif kind == 1:
            at += 8
            number = int.from_bytes(message[start:at], "little")
        elif kind == 2:
            length, start = _varint(message, at)
            at = start + length
        elif kind == 5:
            at += 4
            number = int.from_bytes(message[start:at], "little")
        else:
            raise OtlpError(f"not an OTLP trace request in protobuf: wire type {kind}")
        if at > len(message):
            raise OtlpError("not an OTLP trace request in protobuf: it ends within a field")
        yield tag >> 3, message[start:at] if kind == 2 else number


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """Return the number that begins there, and where it ends."""
    value = 0
    for place in range(10):
        if at + place >= len(message):
            break
        byte = message[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at + place + 1
    raise OtlpError("not an OTLP trace request in protobuf: a number has no end")


PATH = "/v1/traces"

_RESULTS = {
    400: "malformed",
    408: "slow",
    411: "malformed",
    413: "too_large",
    415: "unsupported",
    503: "over_budget",
}
_DECODERS: dict[str, Callable[[bytes], list[Span]]] = {
    "application/json": decode_json,
    "application/x-protobuf": decode_protobuf,
}


class TraceReceiver:
    """Poller (see `app.exporter`) that answers POST /v1/traces and puts the requests into the mailbox.

    At most `connections` batches of `max_body_bytes` are in memory at a time; a peer has `body_seconds` to
    send one. Listens from the start. Raises OSError when it cannot.
    """

    interval_seconds = 0.01

    def __init__(
        self,
        host: str,
        port: int,
        mailbox: Mailbox,
        max_body_bytes: int = 4 * 1024 * 1024,
        connections: int = 4,
        body_seconds: float = 10.0,
    ) -> None:
        self.mailbox = mailbox
        self._max_body_bytes = max_body_bytes
        self._assembler = Assembler(mailbox.count_lost)
        self._one_at_a_time = threading.Lock()
        table = Connections(
            connections, note=lambda reason: mailbox.count_batch("busy" if reason == "refused" else "slow")
        )
        routes = routed({f"POST {PATH}": self.receive})
        self.server = Server(host, port, routes, connections=table, body_seconds=body_seconds)
        self.server.timeout = 0.1

    def poll(self, now: float) -> None:
        """Serve for about a second."""
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline:
            self.server.handle_request()
            self.server.service_actions()

    def close(self) -> None:
        """Stop listening."""
        self.server.server_close()

    def receive(self, request: Request) -> Response:
        """Put one batch into the mailbox."""
        # One batch a connection: Triton sends one every few seconds, and an idle one would count as slow.
        close = {"Connection": "close"}
        try:
            self._receive(request)
        except RefusedError as refused:
            self.mailbox.count_batch(_RESULTS[refused.status])
            return Response(f"{refused}\n".encode(), status=refused.status, headers=close)
        self.mailbox.count_batch("accepted")
        return Response(b"{}", "application/json", headers=close)

    def _receive(self, request: Request) -> None:
        if self.mailbox.budget.is_spent:
            # A sender of OTLP may retry after 503: https://opentelemetry.io/docs/specs/otlp/#failures-1
            raise RefusedError(503, "traces have taken their share of a core; trace fewer requests")
        encoding = request.headers.get("content-encoding", "identity").lower()
        if encoding not in ("identity", "gzip"):
            raise RefusedError(415, "send it plain or gzip")
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        decode = _DECODERS.get(content_type)
        if decode is None:
            raise RefusedError(415, f"send one of {', '.join(_DECODERS)}")
        body = request.read(self._max_body_bytes)
        # Decoded, a batch is some ten times its size: one at a time.
        with self._one_at_a_time, self.mailbox.budget.charged():
            try:
                spans = decode(self._unzip(body) if encoding == "gzip" else body)
            except TooManyError as error:
                raise RefusedError(413, str(error)) from error
            except OtlpError as error:
                raise RefusedError(400, str(error)) from error
            self.mailbox.put(self._assembler.assemble(spans, time.monotonic()))

    def _unzip(self, body: bytes) -> bytes:
        unzip = zlib.decompressobj(wbits=31)
        try:
            plain = unzip.decompress(body, self._max_body_bytes + 1)
        except zlib.error as error:
            raise RefusedError(400, f"not gzip: {error}") from error
        if len(plain) > self._max_body_bytes:
            raise RefusedError(413, f"more than {self._max_body_bytes} bytes")
        return plain
