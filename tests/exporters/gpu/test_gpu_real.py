"""Test GPU series beside a real Triton: a dcgm-exporter in each dialect, a model that names its GPU."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
import requests

from exporters.captures import bodies
from exporters.dcgm import DIALECTS, Card, Part, Stub, serving, write
from support.exporter import RunningExporter, ScrapedPage, exporting
from support.loopback import free_ports
from support.repository import Repository
from support.tools import promtools
from support.triton import infer, live_triton
from support.waiting import eventually
from triton_exporter.catalogue import gpu, state
from tritonwatch.cli import main
from tritonwatch.local import TritonServer

pytestmark = pytest.mark.real

CARD = Card()
MODEL = {"model": "embedder", "version": "1", "gpu_uuid": CARD.uuid}

# As TensorRT-LLM models do: on paper the CPU's, with its GPUs in a parameter. No machine of the tests has a
# GPU, and Triton refuses to load a model of KIND_GPU without one.
ON_GPU = 'parameters { key: "gpu_device_ids" value { string_value: "0" } }'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    directory = tmp_path_factory.mktemp("gpu-real")
    repository = Repository(directory / "models")
    repository.model("embedder", config=ON_GPU, delay_seconds=0.05)
    repository.model("tokenizer", delay_seconds=0.05)
    with live_triton(repository.path, directory) as server:
        yield server


@pytest.fixture(scope="module")
def dcgm() -> Iterator[Stub]:
    with serving() as stub:
        yield stub


@pytest.fixture(scope="module")
def exporter(server: TritonServer, dcgm: Stub) -> Iterator[RunningExporter]:
    dcgm.body = write("4.x", [CARD])
    with exporting(
        server.http_url, server.metrics_url, gpu="dcgm", dcgm_url=dcgm.url, gpu_interval_seconds=0.1
    ) as running:
        yield running


@pytest.mark.parametrize("dialect", DIALECTS)
def test_each_dialect_gives_the_same_series_beside_triton(
    exporter: RunningExporter, dcgm: Stub, dialect: str
) -> None:
    """With the real server's page around them, the canonical series are the same in all dialects."""
    joules = 1_000_000 + 1000 * DIALECTS.index(dialect)
    dcgm.body = write(dialect, [Card(joules=joules)])
    page = exporter.wait(lambda page: page.value(gpu.ENERGY, gpu_uuid=CARD.uuid) == joules)

    assert 1 == page.value(state.UP)
    assert (0.4, 1.41e9, 20480 * 2**20, 250.5) == tuple(
        page.value(metric, gpu_uuid=CARD.uuid)
        for metric in (gpu.UTILIZATION, gpu.SM_CLOCK, gpu.MEMORY_USED, gpu.POWER)
    )
    assert 1 == page.value(gpu.SOURCE, source="dcgm")


def test_a_split_gpu_beside_triton(exporter: RunningExporter, dcgm: Stub) -> None:
    """Instances of a MIG GPU carry their id beside the GPU's."""
    dcgm.body = write("4.x", [Card(joules=1_100_000, parts=(Part("7"), Part("9", engine=0.25)))])
    page = exporter.wait(lambda page: page.series(gpu.INSTANCE_INFO))

    assert 0.25 == page.value(gpu.UTILIZATION, gpu_uuid=CARD.uuid, gpu_instance_id="9")
    assert {"7", "9"} == page.labels(gpu.MEMORY_USED, "gpu_instance_id")


def test_real_executions_are_shared_out(exporter: RunningExporter, server: TritonServer, dcgm: Stub) -> None:
    """The model on the GPU has the time that Triton's statistics measured, and its part and the rest are the
    device's; the model on the CPU has none."""
    joules = 2_000_000
    dcgm.body = write("4.x", [Card(joules=joules)])
    # What Triton counted before its statistics were first read is nobody's share.
    before = exporter.wait(
        lambda page: (
            page.value(gpu.ENERGY, gpu_uuid=CARD.uuid) == joules
            and page.value(gpu.MODEL_BUSY, **MODEL) is not None
        )
    )
    started = time.monotonic()
    for _ in range(8):
        assert 200 == infer(server, "embedder")
        assert 200 == infer(server, "tokenizer")
    took = time.monotonic() - started

    def spent(page: ScrapedPage) -> float:
        return (page.value(gpu.MODEL_BUSY, **MODEL) or 0) - (before.value(gpu.MODEL_BUSY, **MODEL) or 0)

    exporter.wait(lambda page: spent(page) >= 8 * 0.05)
    dcgm.body = write("4.x", [Card(joules=joules + 500)])
    page = exporter.wait(lambda page: page.value(gpu.ENERGY, gpu_uuid=CARD.uuid) == joules + 500)

    assert 8 * 0.05 <= spent(page) <= took
    info = page.value(gpu.MODEL_GPU_INFO, **MODEL, source="single_gpu", confidence="certain")
    assert 1 == info
    assert {"embedder"} == page.labels(gpu.MODEL_GPU_INFO, "model")
    part = page.value(gpu.MODEL_UTILIZATION, **MODEL)
    rest = page.value(gpu.UTILIZATION_UNATTRIBUTED, gpu_uuid=CARD.uuid)
    assert part is not None
    assert rest is not None
    assert 0 < part <= 0.4
    assert pytest.approx(0.4) == part + rest
    assert {"embedder"} == page.labels(gpu.MODEL_LABEL_PROBLEM, "model")


def test_xids_that_are_not_watched_have_no_series(
    server: TritonServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Recorded pages of dcgm-exporter without an XID row give no zeros, and the doctor says so."""
    shown, said = {}, {}
    for name, body in bodies("dcgm", "0[1-58].prom"):
        with serving(body.decode()) as stub:
            options = {"gpu": "dcgm", "dcgm_url": stub.url, "gpu_interval_seconds": 0.1}
            with exporting(server.http_url, server.metrics_url, **options) as running:
                page = running.wait(lambda page: page.series(gpu.POWER) or page.series(gpu.UTILIZATION))
            words = ["doctor", "--watch", "100ms", "--gpu", "dcgm", "--dcgm-url", stub.url]
            main([*words, "--triton", server.http_url, "--triton-metrics", server.metrics_url])
        shown[name], said[name] = len(page.series(gpu.XID_ERRORS)), capsys.readouterr().out
        assert ("XID errors may not be watched" in said[name]) == (b"XID" not in body), name

    assert {"08.prom"} == {name for name, count in shown.items() if count}


def test_prometheus_accepts_the_page(exporter: RunningExporter) -> None:
    """promtool reads the page without an error, and its lint accepts the GPU families."""
    for tool in promtools():
        checked = subprocess.run(
            [tool, "check", "metrics"], input=exporter.get().content, capture_output=True, timeout=20
        )
        printed = (checked.stdout + checked.stderr).decode()

        assert "error while linting" not in printed
        assert [] == [line for line in printed.splitlines() if "gpu" in line and not line.startswith("nv_")]


def test_the_command_chooses_the_source_and_names_it(server: TritonServer) -> None:
    """`tritonwatch exporter` with a dcgm-exporter with names of 4.9 picks it under auto."""
    (port,) = free_ports(1)
    with serving(write("4.9+", [CARD])) as stub:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tritonwatch", "exporter", "--triton", server.http_url),
                *("--triton-metrics", server.metrics_url, "--listen", f"127.0.0.1:{port}"),
                *("--dcgm-url", stub.url, "--gpu-devices", CARD.uuid),
            ],
            stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONWARNINGS": "error"},
        )
        try:
            page = with_gpu(f"http://127.0.0.1:{port}/metrics")
        finally:
            process.terminate()
            _, log = process.communicate(timeout=10)

    assert 1 == page.value(gpu.SOURCE, source="dcgm")
    assert 0.4 == page.value(gpu.UTILIZATION, gpu_uuid=CARD.uuid)
    assert 1 == page.value(gpu.MODEL_GPU_INFO, **MODEL, source="operator", confidence="certain")
    assert 0 == process.returncode
    assert b"Traceback" not in log


def with_gpu(url: str) -> ScrapedPage:
    """Return the first page with a model on a GPU and a source's values of the GPU, which come in any order.

    A model is mapped with the `--gpu-devices` alone, before a source was read for the first time.
    """

    def complete() -> ScrapedPage | None:
        page = ScrapedPage(requests.get(url, timeout=5).text)
        return page if page.series(gpu.MODEL_GPU_INFO) and page.series(gpu.UTILIZATION) else None

    page = eventually(complete, "no model on a GPU that is read")
    assert page is not None
    return page
