"""Build OTLP bodies: spans as Triton makes them, and the same in protobuf."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

SECOND = 1_000_000_000


def span(
    name: str,
    span_id: int,
    parent: int = 0,
    trace: int = 1,
    model: str = "",
    version: str = "1",
    **events: float,
) -> dict[str, Any]:
    """One span; `events` are Unix seconds by name."""
    stamps = {event: round(at * SECOND) for event, at in events.items()}
    made: dict[str, Any] = {
        "traceId": f"{trace:032x}",
        "spanId": f"{span_id:016x}",
        "name": name,
        "kind": 2,
        "startTimeUnixNano": str(min(stamps.values())),
        "endTimeUnixNano": str(max(stamps.values())),
        "events": [{"name": event, "timeUnixNano": str(at)} for event, at in stamps.items()],
    }
    if parent:
        made["parentSpanId"] = f"{parent:016x}"
    if model:
        made["attributes"] = [
            {"key": "triton.model_name", "value": {"stringValue": model}},
            {"key": "triton.model_version", "value": {"intValue": version}},
        ]
    return made


def request(
    model: str, started: float, queued: float, took: float, number: int = 1, version: str = "1"
) -> list[dict[str, Any]]:
    """Return the three spans of one request; times in seconds."""
    ends = started + took
    return [
        span("compute", 3, 2, number, COMPUTE_START=started + queued, COMPUTE_END=ends),
        span(
            model, 2, 1, number, model, version, REQUEST_START=started, QUEUE_START=started, REQUEST_END=ends
        ),
        span("InferRequest", 1, 0, number, HTTP_RECV_START=started, HTTP_SEND_END=ends),
    ]


def document(*spans: Mapping[str, Any]) -> dict[str, Any]:
    """Return an ExportTraceServiceRequest."""
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": list(spans)}]}]}


def as_json(*spans: Mapping[str, Any]) -> bytes:
    """Return the body that Triton posts."""
    return json.dumps(document(*spans)).encode()


def as_protobuf(*spans: Mapping[str, Any]) -> bytes:
    """Return the body that a collector posts."""
    made = ExportTraceServiceRequest()
    scope = made.resource_spans.add().scope_spans.add()
    for fields in spans:
        span = scope.spans.add(
            trace_id=bytes.fromhex(fields["traceId"]),
            span_id=bytes.fromhex(fields["spanId"]),
            parent_span_id=bytes.fromhex(fields.get("parentSpanId", "")),
            name=fields["name"],
            start_time_unix_nano=int(fields["startTimeUnixNano"]),
            end_time_unix_nano=int(fields["endTimeUnixNano"]),
        )
        for event in fields["events"]:
            span.events.add(name=event["name"], time_unix_nano=int(event["timeUnixNano"]))
        for pair in fields.get("attributes", ()):
            value = pair["value"]
            made_pair = span.attributes.add(key=pair["key"])
            if "stringValue" in value:
                made_pair.value.string_value = value["stringValue"]
            else:
                made_pair.value.int_value = int(value["intValue"])
    return bytes(made.SerializeToString())
