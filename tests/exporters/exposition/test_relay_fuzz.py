"""Test that Prometheus can parse the relayed page, for any body of a target."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from exporters.faults import body, faulty
from support.history import running
from support.tools import newest, prometheuses, promtools
from support.waiting import eventually
from triton_exporter.exposition.parse import parse
from triton_exporter.exposition.scrape import Reading, Relay
from triton_exporter.exposition.write import EOF, OPENMETRICS, TEXT, relayed_openmetrics

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
    """Draw a real exposition with a few bytes cut, put in, or repeated."""
    body = _SEED
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(body)))
        end = min(len(body), start + draw(st.integers(0, 40)))
        middle = draw(st.one_of(_JUNK, st.just(body[start:end] * 2)))
        body = body[:start] + middle + body[end:]
    return body


def _relayed(body: bytes) -> tuple[bytes, bytes]:
    relay, reading = Relay(), Reading(body, "", "", 0.0, 0.0)
    return relay.body(reading), relayed_openmetrics(relay.parse(reading).families.values())


@given(bodies())
def test_what_is_relayed_is_valid(body: bytes) -> None:
    """Relaying the relayed page finds nothing more to leave out, in either format every line is whole."""
    text, openmetrics = _relayed(body)

    assert text == _relayed(text)[0]
    assert {} == parse(text).faults
    assert all(line.startswith(b"#") or b" " in line for line in openmetrics.split(b"\n") if line)


@pytest.mark.parametrize("promtool", newest(promtools()), ids=lambda path: str(path.parent))
@given(body=bodies())
def test_prometheus_accepts_what_is_relayed(promtool: Path, body: bytes) -> None:
    """Prometheus' own reader takes the page of a damaged body."""
    text, _ = _relayed(body)
    result = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, timeout=30)

    # 3 is lint only.
    assert result.returncode in (0, 3), result.stderr


def test_a_valid_body_is_not_changed() -> None:
    """The seed of the fuzzing itself goes through byte for byte."""
    assert _SEED == _relayed(_SEED)[0]


_REFUSED = (
    b"# TYPE x  gauge\nx 1\n",
    b"# TYPE x gauge \nx 1\n",
    b"  x 1\n",
    b"x 1 -5\n",
    b"x 1 99999999999999999999999\n",
    b'x{a="1",,b="2"} 1\n',
    b"x 1\0\n",
    b'x{a="c"} 1\t5\n',
    b'x{a="c"}2 6\n',
)
"""Bodies that Prometheus refuses as they are, in one format or the other."""


@pytest.mark.real
@pytest.mark.parametrize("prometheus", newest(prometheuses()), ids=lambda path: str(path.parent))
def test_a_prometheus_server_takes_what_is_relayed(prometheus: Path, tmp_path: Path) -> None:
    """A server that scrapes the pages of damaged bodies, in both formats, refuses none."""
    rng = random.Random(prometheus.parts[1])
    pages = [_relayed(damaged) for damaged in (*_REFUSED, *(_damaged(rng) for _ in range(40)))]
    types = (TEXT, OPENMETRICS)
    answers = {
        f"/{number}/{kind}": body(page, Content_Type=types[kind])
        for number, (text, openmetrics) in enumerate(pages)
        for kind, page in enumerate((text, openmetrics + EOF))
    }
    with faulty({**answers, "/bare": body(_REFUSED[0])}) as target:
        seen = _scraped(prometheus, tmp_path, target.port, [*answers, "/bare"])

    # That the server does refuse is shown by the one body that was not relayed.
    assert {"/bare"} == {path for path, error in seen.items() if error}


def _damaged(rng: random.Random) -> bytes:
    damaged = bytearray(_SEED)
    for _ in range(rng.randint(1, 5)):
        at = rng.randrange(len(damaged))
        damaged[at : at + rng.choice((0, 0, 1, 9))] = rng.choice(
            (
                b"\\",
                b"\\N",
                b" ",
                b"\t",
                b"\n",
                b'"',
                b",",
                b"}",
                b"-",
                b"\0",
                b"# TYPE ",
                bytes(damaged[at : at + 30]),
            )
        )
    return bytes(damaged)


def _scraped(prometheus: Path, directory: Path, port: int, paths: list[str]) -> dict[str, str]:
    """Return what a Prometheus server found wrong with each path, nothing where it took it."""
    targets = [
        {"targets": [f"127.0.0.1:{port}"], "labels": {"__metrics_path__": path, "path": path}}
        for path in paths
    ]
    job = {"job_name": "relayed", "scrape_interval": "1s", "scrape_timeout": "1s", "static_configs": targets}
    with running(directory, {"scrape_configs": [job]}, server=prometheus) as url:

        def scraped() -> list[dict[str, Any]]:
            answer = requests.get(f"{url}/api/v1/targets", timeout=5).json()["data"]["activeTargets"]
            return [] if any(target["health"] == "unknown" for target in answer) else answer

        everything = eventually(scraped, "Prometheus did not scrape everything; see prometheus.log")
    return {target["labels"]["path"]: target["lastError"] for target in everything}
