"""Test that no batch of traces takes more memory than the shipped limit of the exporter, in a process of its own."""

from __future__ import annotations

import gzip
import re
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests
import yaml

from support.loopback import free_ports, started
from support.otlp import as_json, as_protobuf, request
from support.tools import ROOT
from support.waiting import eventually

pytestmark = pytest.mark.real

_MIB = 1024 * 1024
_BATCH = 4 * _MIB
"""Bytes that the receiver reads of one batch."""


def limit_bytes() -> int:
    """Return the memory limit of the exporter in the Helm chart."""
    values = yaml.safe_load((ROOT / "compose" / "helm" / "tritonwatch" / "values.yaml").read_text())
    return int(values["sidecar"]["resources"]["limits"]["memory"].removesuffix("Mi")) * _MIB


@dataclass(frozen=True)
class Receiving:
    """The process of an exporter that receives traces."""

    process: subprocess.Popen[bytes]
    url: str

    def post(self, body: bytes, kind: str) -> int:
        headers = {"Content-Type": f"application/{kind}", "Content-Encoding": "gzip"}
        packed = gzip.compress(body, 9)

        def answered() -> int | None:
            status = requests.post(self.url, packed, headers=headers, timeout=60).status_code
            return None if status == 503 else status  # the batches before have taken their share of a core

        return eventually(answered, "is never answered")

    def memory(self, field: str) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"{field}:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]


@pytest.fixture(scope="module")
def receiving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiving]:
    """Run an exporter that may allocate no more than the limit beside what it has at its start."""
    nobody, listen, otlp = free_ports(3)
    command = [sys.executable, "-m", "tritonwatch", "exporter", "--gpu", "none"]
    command += ["--triton", f"http://127.0.0.1:{nobody}", "--listen", f"127.0.0.1:{listen}"]
    command += ["--otlp-listen", f"127.0.0.1:{otlp}"]
    log = tmp_path_factory.mktemp("traces") / "log"
    with started(command, f"http://127.0.0.1:{listen}/-/ready", log) as process:
        running = Receiving(process, f"http://127.0.0.1:{otlp}/v1/traces")
        most = running.memory("VmSize") + limit_bytes()
        resource.prlimit(process.pid, resource.RLIMIT_AS, (most, most))
        yield running


def field(number: int, content: bytes) -> bytes:
    """Return a field of a protobuf message that has a length."""
    length, size = b"", len(content)
    while size > 0x7F:
        length += bytes([size & 0x7F | 0x80])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + content


def empties(number: int) -> bytes:
    """Return as many empty messages as fit."""
    return bytes([number << 3 | 2, 0]) * ((_BATCH - 64) // 2)


_OPEN = b'{"resourceSpans":[{"scopeSpans":[{"spans":['


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (lambda: field(1, field(2, empties(2))), "x-protobuf", 413),
        (lambda: field(1, field(2, field(2, empties(11)))), "x-protobuf", 413),
        (lambda: field(1, field(2, field(2, empties(9)))), "x-protobuf", 413),
        (lambda: field(1, empties(2)), "x-protobuf", 413),
        (lambda: empties(1), "x-protobuf", 413),
        (lambda: _OPEN + b"{}," * ((_BATCH - 64) // 3) + b"{}]}]}]}", "json", 413),
        (lambda: b"[" + b"[]," * ((_BATCH - 64) // 3) + b"[]]", "json", 413),
        (lambda: b"[" + b"1.5," * ((_BATCH - 64) // 4) + b"1]", "json", 400),
        (lambda: b"{" + b",".join(b'"%06d":0' % n for n in range((_BATCH - 64) // 11)) + b"}", "json", 200),
    ],
    ids=["spans", "events", "attributes", "scopes", "resources", "objects", "lists", "numbers", "keys"],
)
def test_no_batch_takes_more_memory_than_the_limit(
    receiving: Receiving, body: Callable[[], bytes], kind: str, status: int
) -> None:
    """Millions of the smallest parts in one small body are refused or passed over, and the next batch is read."""
    assert status == receiving.post(body(), kind)
    assert receiving.memory("VmHWM") < limit_bytes()


def test_a_batch_of_thousands_of_spans_is_read(receiving: Receiving) -> None:
    """The limits are far from what a Triton sends."""
    spans = [span for number in range(3000) for span in request("m", 1.7e9, 0.25, 1.5, number + 1)]

    assert 200 == receiving.post(as_json(*spans), "json")
    assert 200 == receiving.post(as_protobuf(*spans), "x-protobuf")
    assert receiving.memory("VmHWM") < limit_bytes()
