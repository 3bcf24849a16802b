"""Whatever a target sends, the page that Prometheus gets can be read."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.tools import promtools
from triton_exporter.exposition import relayed_openmetrics
from triton_exporter.parse import parse
from triton_exporter.relay import Relay
from triton_exporter.scrape import Reading

_SEED = b"""\
# HELP nv_inference_request_success Number of successful inference requests, all batch sizes
# TYPE nv_inference_request_success counter
nv_inference_request_success{model="echo",version="1"} 3
nv_inference_request_success{model="echo",version="2"} 0
# HELP nv_inference_queue_summary_us Summary of inference queuing duration in microseconds
# TYPE nv_inference_queue_summary_us summary
nv_inference_queue_summary_us_count{model="echo",version="1"} 3
nv_inference_queue_summary_us_sum{model="echo",version="1"} 219
nv_inference_queue_summary_us{model="echo",version="1",quantile="0.5"} Nan
# HELP nv_inference_first_response_histogram_ms Duration from request to first response in milliseconds
# TYPE nv_inference_first_response_histogram_ms histogram
nv_inference_first_response_histogram_ms_count{model="echo",version="1"} 2
nv_inference_first_response_histogram_ms_sum{model="echo",version="1"} 17
nv_inference_first_response_histogram_ms_bucket{model="echo",version="1",le="100"} 2
nv_inference_first_response_histogram_ms_bucket{model="echo",version="1",le="+Inf"} 2
# TYPE my_requests counter
my_requests{path="C:\\\\models\\n\\"quoted\\" {braces}, = #"} 7
"""

_JUNK = st.one_of(
    st.binary(max_size=6),
    st.sampled_from(
        [
            b"\n",
            b'"',
            b"{",
            b"}",
            b"\\",
            b"\\N",
            b'\\"',
            b"#",
            b"# TYPE ",
            b" ",
            b",",
            b"=",
            b"\xff",
            b"\0",
            b"\r",
            b"1e999",
        ]
    ),
)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """A real exposition with a few bytes cut, put in, or repeated."""
    body = _SEED
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(body)))
        end = min(len(body), start + draw(st.integers(0, 40)))
        middle = draw(st.one_of(_JUNK, st.just(body[start:end] * 2)))
        body = body[:start] + middle + body[end:]
    return body


def _relayed(body: bytes) -> tuple[bytes, bytes]:
    relay, reading = Relay(), Reading(body, "", "", 0.0, 0.0)
    return relay.text(reading), relayed_openmetrics(relay.take(reading).families.values())


@given(bodies())
def test_what_is_relayed_is_sound(body: bytes) -> None:
    """Relaying the relayed page finds nothing more to leave out, in either format every line is whole."""
    text, openmetrics = _relayed(body)

    assert text == _relayed(text)[0]
    assert {} == parse(text).faults
    assert all(line.startswith(b"#") or b" " in line for line in openmetrics.split(b"\n") if line)


@pytest.mark.parametrize("promtool", promtools(), ids=lambda path: str(path.parent))
@settings(max_examples=40, deadline=None)
@given(body=bodies())
def test_prometheus_takes_what_is_relayed(promtool: Path, body: bytes) -> None:
    """Prometheus' own reader takes the page of a damaged body."""
    text, _ = _relayed(body)
    result = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, timeout=30)

    # 3 is lint only.
    assert result.returncode in (0, 3), result.stderr


def test_what_is_sound_is_not_touched() -> None:
    """The seed of the fuzzing itself goes through byte for byte."""
    assert _SEED == _relayed(_SEED)[0]
