"""Define the properties of each parser for any bytes, and the seeds with which fuzzing begins."""

from __future__ import annotations

import gzip
import json
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from support.otlp import as_json, as_protobuf, request
from triton_exporter.catalogue import gpu
from triton_exporter.catalogue.state import LOAD_FAILURE_REASONS
from triton_exporter.exposition.parse import Parser, parse
from triton_exporter.exposition.scrape import Reading, Relay
from triton_exporter.exposition.write import openmetrics_pieces, relayed_openmetrics, text_pieces
from triton_exporter.gpu.dcgm import read as read_dcgm
from triton_exporter.lifecycle.load_failures import classify
from triton_exporter.lifecycle.tracker import Lifecycle
from triton_exporter.lifecycle.triton_log import LogTail, logged_failure
from triton_exporter.lifecycle.views import ModelStates, report
from triton_exporter.snapshot import Snapshot
from triton_exporter.tracing.otlp import Assembler, OtlpError, decode_json, decode_protobuf
from triton_exporter.triton import poll as triton_answers

CAPTURES = Path(__file__).resolve().parents[1] / "captures"
MAX_BYTES = 4096

_METRICS = b"""\
# HELP a A counter
# TYPE a counter
a{b="c \\" \\n"} 1
a{b="d"} 2e3 17
# TYPE h histogram
h_bucket{le="0.1"} 1
h_bucket{le="+Inf"} NaN
h_count 2
h_sum 0.5
# TYPE nv_inference_request_summary_us summary
nv_inference_request_summary_us{model="m",version="1",quantile="0.5"} Nan
"""
_DCGM = b"""\
# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1",pci_bus_id="00000000:00:1E.0",modelName="T4"} 98
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-1",GPU_I_ID="3",pod="p"} 1024
DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-1",err_code="43"} 43
DCGM_FI_DEV_CLOCKS_EVENT_REASONS{gpu="0",UUID="GPU-1"} 6
"""
_LOG = rb"""E1121 04:02:54 1 lifecycle.cc:642] "failed to load 'm' version 1: Internal: RuntimeError: no\n\nAt:\n x"
E1121 04:02:54 1 manager.cc:1] "Poll failed for model directory 'm': failed to read text proto from config.pbtxt"
E1121 04:02:54 1 manager.cc:1] "ensemble 'e' depends on 'm' which has no loaded version. Model 'm' loading failed"
I1121 04:02:54 1 server.cc:1] "Waiting for in-flight requests to complete."
"""
_ANSWERS = rb"""
[{"name":"m","version":"1","state":"UNAVAILABLE","reason":"Internal: no\n"},{"name":"x"},
{"name":"s","version":"2","state":"LOADING"},{"name":"u","version":"1","state":"READY"}]

{"model_stats":[{"name":"m","version":"1","last_inference":5,"inference_count":3,"execution_count":2,
"inference_stats":{"success":{"count":1,"ns":2}},"batch_stats":[{"batch_size":4,"compute_infer":
{"count":1,"ns":9}}],"memory_usage":[{"type":"GPU","id":0,"byte_size":7}]}]}

{"name":"m","backend":"python","max_batch_size":8,"input":[{"name":"X","data_type":"TYPE_FP32","dims":["-1"]}],
"instance_group":[{"kind":"KIND_GPU","count":1,"gpus":[0]}],"parameters":{"a":{"string_value":""}}}

{"name":"triton","version":"2.51.0","extensions":["classification"]}
"""

# Prometheus' own grammar, written here once more so that nothing of ours judges itself.
_PAIR = rb'[a-zA-Z_]\w*="(?:[^"\\\n]|\\[\\n"])*"'
_LINE = re.compile(rb"[a-zA-Z_:][\w:]*(?:\{" + _PAIR + rb"(?:," + _PAIR + rb")*\})? \S+", re.ASCII)


def exposition(data: bytes) -> None:
    """Check that parsed series are clean and as prometheus_client reads them, with and without memory."""
    parsed = parse(data)
    again = parse(parsed.text.encode())
    assert not again.faults, again.faults
    families = [
        (s.name, sorted(s.labels.items()), repr(v)) for f in parsed.families.values() for s, v in f.samples()
    ]
    assert families == [
        (s.name, sorted(s.labels.items()), repr(v)) for f in again.families.values() for s, v in f.samples()
    ]
    if b"__name__" in data:
        return  # prometheus_client takes every label that begins like the reserved one for it
    theirs = sum(len(family.samples) for family in text_string_to_metric_families(parsed.text))
    assert theirs == len(families), (theirs, len(families))
    remembering = Parser()
    remembering.parse(data[: len(data) // 2] + b"\n")
    assert remembering.parse(data).text == parsed.text


def relay(data: bytes) -> None:
    """Test the relay: after any earlier body, the page is valid in either format and has every parsed sample."""
    passed = Relay()
    for body in (_METRICS, data[: len(data) // 2], data):
        reading = Reading(body, "", "", 0.0, 0.0)
        text = passed.body(reading)
    parsed = passed.parse(reading)
    judge, once_more = Relay(), Reading(text, "", "", 0.0, 0.0)
    assert text == judge.body(once_more)
    assert not judge.parse(once_more).faults
    page = relayed_openmetrics(parsed.families.values())
    lines = [line for line in page.split(b"\n") if line and not line.startswith(b"#")]
    assert all(_LINE.fullmatch(line) for line in lines), lines
    assert len(lines) == sum(len(family.values) for family in parsed.families.values())


def dcgm(data: bytes) -> None:
    """Every value is finite, within its unit, and of a GPU that is there."""
    reading = read_dcgm(parse(data), 0.0)
    for slot, value in reading.values.items():
        assert math.isfinite(value)
        assert slot.metric is gpu.TEMPERATURE_MARGIN or slot.metric.unit == "C" or value >= 0, (slot, value)
        assert slot.metric.unit != "ratio" or value <= 1, (slot, value)
        assert slot.entity.uuid in reading.devices
    assert all(count > 0 for count in reading.dropped.values())


def otlp(data: bytes) -> None:
    """Check that a body is spans or an error of ours, and that its requests make sense."""
    lost: Counter[str] = Counter()
    assembler = Assembler(lambda reason, count: lost.update({reason: count}))
    for decode in (decode_json, decode_protobuf):
        try:
            requests = assembler.assemble(decode(data), 0)
        except OtlpError:
            continue
        assert all(request.request_seconds >= 0 and request.ended > 0 for request in requests)


def log(data: bytes) -> None:
    """Check that a line is a failure with model and known reason, or none; pieces make the same lines."""
    tail, pieces = LogTail(Path(os.devnull)), LogTail(Path(os.devnull))
    try:
        lines = tail._whole_lines(data + b"\n")
        third = len(data) // 3
        cut = [pieces._whole_lines(part) for part in (data[:third], data[third:], b"\n")]
        assert lines == [line for part in cut for line in part]
    finally:
        tail.close()
        pieces.close()
    for line in lines:
        failure = logged_failure(line)
        assert failure is None or classify(failure.text) in LOAD_FAILURE_REASONS


def answers(data: bytes) -> None:
    """Check that a JSON answer is a value or an error of ours, and makes valid pages and JSON."""
    index = _value(triton_answers.parse_index, data)
    statistics = _value(triton_answers.parse_statistics, data)
    _value(triton_answers.parse_config, data)
    _value(triton_answers.parse_server, data)
    triton_answers.error_text(data)
    states = ModelStates(Lifecycle({"expected": ()}))
    for at, answered in enumerate((index, (), index), 1):
        states.observe_snapshot(Snapshot(float(at), live=True, index=answered, statistics=statistics))
    families = list(states.families(9.0))
    text = b"".join(text_pieces(families))
    assert not parse(text).faults, parse(text).faults
    lines = b"".join(openmetrics_pieces(families)).split(b"\n")
    assert all(line.startswith(b"#") or _LINE.fullmatch(line) for line in lines if line), lines
    json.dumps(report(states.lifecycle, None, "http://triton"))


def _value(read: Callable[[bytes], Any], data: bytes) -> Any:
    try:
        return read(data)
    except triton_answers.AnswerError:
        return None


TARGETS: dict[str, Callable[[bytes], None]] = {
    "exposition": exposition,
    "relay": relay,
    "dcgm": dcgm,
    "otlp": otlp,
    "log": log,
    "answers": answers,
}


def seeds(target: str) -> list[bytes]:
    """Return recorded bodies of real servers, where they are, cut to pieces, and a few made here."""
    match target:
        case "exposition" | "relay":
            return [_METRICS, _DCGM, *_pieces("triton/*metrics*", "dcgm/*.prom")]
        case "dcgm":
            return [_DCGM, *_pieces("dcgm/*.prom")]
        case "log":
            return [*_LOG.splitlines(keepends=True), _LOG, *_pieces("triton/*load_errors*")]
        case "answers":
            return [*_ANSWERS.strip().split(b"\n\n"), *_parts("triton/*.json")]
        case "otlp":
            spans = request("m", 1_700_000_000.0, 0.1, 0.5)
            return [as_json(*spans), as_protobuf(*spans)]
        case _:
            record = {"id": 1, "model_name": "m", "model_version": 1, "parent_id": 2}
            stamps = [{"name": name, "ns": 5} for name in ("REQUEST_START", "QUEUE_START", "REQUEST_END")]
            return [json.dumps([record, {"id": 1, "timestamps": stamps}]).encode()]


def _pieces(*patterns: str) -> Iterable[bytes]:
    for path in _captured(*patterns):
        body = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        lines = body.splitlines(keepends=True)
        for at in range(0, min(len(lines), 900), 150):
            yield b"".join(lines[at : at + 30])[:MAX_BYTES]


def _parts(*patterns: str) -> Iterable[bytes]:
    """Whole JSON documents; long lists of them by their first elements."""
    for path in _captured(*patterns):
        try:
            document = json.loads(path.read_bytes())
        except ValueError:
            continue
        if isinstance(document, dict) and isinstance(document.get("model_stats"), list):
            document = {"model_stats": document["model_stats"][:1]}
        elif isinstance(document, list):
            document = document[:8]
        yield json.dumps(document).encode()[:MAX_BYTES]


def _captured(*patterns: str) -> list[Path]:
    return sorted(path for pattern in patterns for path in CAPTURES.glob(pattern))
