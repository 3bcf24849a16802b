"""OTLP traces as Triton sends them: spans to requests.

Triton posts JSON; a collector in between may send protobuf. Spans of one request share a trace id: the
model's span has REQUEST_START, QUEUE_START and REQUEST_END, its child span `compute` COMPUTE_START.
https://opentelemetry.io/docs/specs/otlp/
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from triton_exporter.snapshot import ModelVersion
from triton_exporter.tracing.timeline import Timeline
from triton_exporter.tracing.trace import TracedRequest

MODEL_NAME, MODEL_VERSION = "triton.model_name", "triton.model_version"

ORPHAN_SECONDS = 60.0
"""Time for which an execution waits for the span of its request, which ends after it."""

MAX_PENDING = 20_000
"""Largest number of executions, and of requests with steps, that are stored."""


class OtlpError(ValueError):
    """A body that is not an OTLP trace request."""


class UnsupportedError(OtlpError):
    """A body in a form that cannot be read here; the message names the fix."""


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
    try:
        return [_json_span(span) for span in _json_spans(json.loads(body))]
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise OtlpError(f"not an OTLP trace request in JSON: {error!r:.200}") from error


def decode_protobuf(body: bytes) -> list[Span]:
    """Read an ExportTraceServiceRequest in protobuf. Raises OtlpError; UnsupportedError without protobuf."""
    try:
        from google.protobuf.message import DecodeError
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    except ImportError as error:
        raise UnsupportedError(
            "protobuf needs: pip install 'tritonwatch[traces]'; Triton sends JSON"
        ) from error
    try:
        request = ExportTraceServiceRequest.FromString(body)
    except DecodeError as error:
        raise OtlpError(f"not an OTLP trace request in protobuf: {error}") from error
    return [
        Span(
            span.trace_id.hex(),
            span.span_id.hex(),
            span.parent_span_id.hex(),
            span.start_time_unix_nano,
            span.end_time_unix_nano,
            {event.name: event.time_unix_nano for event in span.events},
            {pair.key: _protobuf_value(pair.value) for pair in span.attributes},
        )
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


class Assembler:
    """Puts the spans of a request together, over several batches where it must. Bounded; not for threads.

    `lose` is called with `orphan` for each execution whose request did not come, and with `malformed` for
    each request whose times contradict each other.
    """

    def __init__(self, lose: Callable[[str, int], None]) -> None:
        self._lose = lose
        # By the id of the request's span: when its execution began (ns), and when it was received (s).
        self._executions: OrderedDict[tuple[str, str], tuple[int, float]] = OrderedDict()
        self._with_steps: OrderedDict[tuple[str, str], None] = OrderedDict()

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
                    self._with_steps[span.trace_id, span.parent_id] = None
        self._forget(now)
        read = [self._request(span) for span in requests]
        self._lose("malformed", read.count(None))
        return [request for request in read if request]

    def _request(self, span: Span) -> TracedRequest | None:
        key = (span.trace_id, span.span_id)
        execution = self._executions.pop(key, None)
        has_steps = key in self._with_steps
        self._with_steps.pop(key, None)
        version = ModelVersion(span.attributes[MODEL_NAME], span.attributes.get(MODEL_VERSION, ""))
        return Timeline(
            version,
            span.trace_id,
            span.events.get("REQUEST_START", span.start),
            span.events.get("REQUEST_END"),
            span.events.get("QUEUE_START"),
            None if execution is None else execution[0],
            span.end,
            has_steps,
        ).request()

    def _forget(self, now: float) -> None:
        orphans = 0
        while self._executions:
            _, received = next(iter(self._executions.values()))
            if len(self._executions) <= MAX_PENDING and received > now - ORPHAN_SECONDS:
                break
            self._executions.popitem(last=False)
            orphans += 1
        self._lose("orphan", orphans)
        while len(self._with_steps) > MAX_PENDING:
            self._with_steps.popitem(last=False)


def _json_spans(document: Any) -> Iterator[Any]:
    for resource in document.get("resourceSpans", ()):
        for scope in resource.get("scopeSpans", ()):
            yield from scope.get("spans", ())


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


def _protobuf_value(value: Any) -> str:
    kind = value.WhichOneof("value")
    return str(getattr(value, kind)) if kind in {"string_value", "int_value"} else ""
