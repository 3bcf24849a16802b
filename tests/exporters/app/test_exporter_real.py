"""Test the exporter beside a real Triton."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
import requests

from support.exporter import RunningExporter, exporting
from support.loopback import free_ports
from support.repository import Repository
from support.triton import infer, live_triton
from support.waiting import eventually
from triton_exporter.catalogue import state, triton
from tritonwatch.cli import main
from tritonwatch.local import TritonServer

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    directory = tmp_path_factory.mktemp("exporter-real")
    repository = Repository(directory / "models")
    repository.model("echo", "1", "2", config="version_policy { all {} }")
    repository.model("broken", **{"raise": "weights missing"})
    with live_triton(repository.path, directory) as server:
        yield server


@pytest.fixture(scope="module")
def exporter(server: TritonServer) -> Iterator[RunningExporter]:
    with exporting(server.http_url, server.metrics_url) as running:
        running.wait(lambda page: page.value(state.SERVER_LIVE))
        yield running


def test_tritons_own_series_are_relayed_byte_for_byte(
    server: TritonServer, exporter: RunningExporter
) -> None:
    """Every line of Triton's own page stands unchanged and in order on the exporter's page."""
    assert 200 == infer(server, "echo", "1")
    # Triton counts a request after it has answered it.
    counted = f'{triton.REQUEST_SUCCESS}{{model="echo",version="1"}} 1'
    eventually(
        lambda: counted in requests.get(server.metrics_url, timeout=5).text, "the request was never counted"
    )

    def steady(body: bytes) -> list[bytes]:  # CPU series move between two reads
        return [line for line in body.splitlines() if b"nv_cpu" not in line]

    def pages() -> tuple[list[bytes], list[bytes]]:
        direct = steady(requests.get(server.metrics_url, timeout=5).content)
        relayed = steady(exporter.get().content)
        return direct, relayed[relayed.index(direct[0]) :][: len(direct)]

    # Triton counts its memory at intervals of its own, so a value may move between two reads.
    direct, lines = eventually(
        lambda: both if (both := pages())[0] == both[1] else None, lambda: str(pages())
    )

    assert direct == lines
    assert any(line.startswith(str(triton.REQUEST_SUCCESS).encode()) for line in lines)


def test_ready_models_are_ready_and_the_failed_one_is_not(exporter: RunningExporter) -> None:
    """Readiness and state are reported per version, with the failed model in its own state."""
    page = exporter.scrape()

    assert 1 == page.value(state.UP)
    assert 1 == page.value(state.SERVER_LIVE)
    assert 0 == page.value(state.SERVER_READY)
    assert 1 == page.value(state.MODEL_READY, model="echo", version="1")
    assert 1 == page.value(state.MODEL_READY, model="echo", version="2")
    assert 0 == page.value(state.MODEL_READY, model="broken", version="1")
    assert 1 == page.value(state.MODEL_STATE, model="broken", version="1", state="unavailable")
    assert 1 == page.value(state.MODEL_EXPECTED, model="broken")
    assert {"broken"} == page.labels(state.MODEL_NOT_READY_SINCE, "model")


def test_a_load_failure_is_counted_by_class_after_prometheus_saw_the_zero(exporter: RunningExporter) -> None:
    """The counter stands at 0 on the first page Prometheus takes and at 1 after it, so increase() sees it."""
    first = exporter.scrape(timeout_seconds=5)
    second = exporter.scrape(timeout_seconds=5)

    assert 1 == second.value(state.MODEL_LOAD_FAILURES, model="broken", reason="python_error")
    assert first.series(state.MODEL_LOAD_FAILURES).keys() == second.series(state.MODEL_LOAD_FAILURES).keys()
    assert set(state.LOAD_FAILURE_REASONS) == second.labels(state.MODEL_LOAD_FAILURES, "reason")
    assert 0 == second.value(state.MODEL_LOAD_FAILURES, model="echo", reason="other")


def test_a_dead_triton_is_a_page_with_up_0() -> None:
    """Nothing listens: the exporter still responds, with `triton_up 0`, and counts the class of the failure."""
    http, metrics = free_ports(2)
    with exporting(
        f"http://127.0.0.1:{http}", f"http://127.0.0.1:{metrics}/metrics", {"wanted": ()}
    ) as exporter:
        page = exporter.wait(
            lambda page: page.value(state.MODEL_READY, model="wanted", version="") is not None
        )

        assert 0 == page.value(state.UP)
        assert 0 == page.value(state.SERVER_LIVE)
        assert 0 == page.value(state.MODEL_READY, model="wanted", version="")
        assert 1 == page.value(state.MODEL_STATE, model="wanted", version="", state="unknown")
        assert 1 == page.value(state.MODEL_EXPECTED, model="wanted")


def test_the_command_serves_and_ends_with_sigterm(server: TritonServer) -> None:
    """The command serves the page, logs the failed load, and ends on SIGTERM with 0, long before its next poll."""
    port = free_ports(1)[0]
    command = [sys.executable, "-m", "tritonwatch", "exporter", "--triton", server.http_url]
    command += ["--triton-metrics", server.metrics_url, "--listen", f"127.0.0.1:{port}", "--gpu", "none"]
    command += ["--state-interval", "10m", "--sampling-interval", "10m"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert (
                f"serving http://127.0.0.1:{port}/metrics for {server.http_url}\n"
                == process.stderr.readline()
            )
            assert 200 == requests.get(f"http://127.0.0.1:{port}/metrics", timeout=10).status_code
            printed = process.stderr.readline()
            process.terminate()
            code = process.wait(60)
        finally:
            process.kill()

    assert 0 == code
    assert "model broken version 1 failed to load (python_error): Internal: RuntimeError: weights" in printed


def test_a_port_in_use_is_one_clear_line(server: TritonServer, capsys: pytest.CaptureFixture[str]) -> None:
    """A second listener on a taken port is refused with a sentence, exit code 1."""
    taken = f"127.0.0.1:{server.ports.http}"

    assert 1 == main(["exporter", "--triton", server.http_url, "--listen", taken])
    refused = f"tritonwatch exporter: cannot listen on {taken}: Address already in use\n"
    assert refused == capsys.readouterr().err
