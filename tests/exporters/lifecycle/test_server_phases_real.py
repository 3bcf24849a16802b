"""Test what the exporter and the doctor say of a real Triton that is not as it should be."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from exporters.faults import body, faulty
from support.exporter import exporting
from support.loopback import free_ports
from support.waiting import eventually
from triton_exporter.catalogue import state
from triton_exporter.http.client import LIVE_PATH, SERVER_PATH
from tritonwatch.cli import main
from tritonwatch.local import TritonPorts, TritonServer

pytestmark = pytest.mark.real

MISSING_CACHE = "unable to find 'libtritoncache_nosuch.so' for cache."


@contextmanager
def started(directory: Path, *arguments: str) -> Iterator[TritonServer]:
    """Run a Triton without models until the block ends; its metrics answer."""
    (directory / "models").mkdir()
    ports = TritonPorts(*free_ports(3))
    server = TritonServer(directory / "models", directory, ports, "explicit", arguments)
    try:
        server.start()
        eventually(lambda: requests.get(server.metrics_url, timeout=2).ok, server.log.read_text)
        yield server
    finally:
        server.kill()


def problems(server: TritonServer, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, str]:
    """Return the title of each problem that the doctor finds, with what it saw and advises."""
    urls = ("--triton", server.http_url, "--triton-metrics", server.metrics_url)
    assert 1 == main(["doctor", *urls, "--gpu=none", "--watch=10ms", "--json", *options])
    findings = json.loads(capsys.readouterr().out)
    return {
        finding["title"]: f"{finding['seen']} {finding['do']}"
        for finding in findings
        if finding["grade"] == "problem"
    }


def test_a_failed_start_is_neither_a_drain_nor_healthy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --exit-on-error=false the process stays: not live, its index refused, its metrics answered."""
    with (
        started(tmp_path, "--cache-config=nosuch,size=1048576") as server,
        exporting(server.http_url, server.metrics_url, triton_log=server.log) as exporter,
    ):
        page = exporter.wait(lambda page: page.value(state.SERVER_LIVE) is not None)
        shown = exporter.get("/state").json()["triton"]
        found = problems(server, capsys, "--triton-log", str(server.log))

    assert 0 == page.value(state.SERVER_LIVE)
    assert "failed to start" == shown["phase"]
    assert MISSING_CACHE in shown["start_failure"]
    assert MISSING_CACHE in found["Triton failed to start"]


def test_a_triton_without_http_is_unknown_rather_than_draining(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is healthy and serves over gRPC: whether it is live is not shown, and the doctor names the option."""
    with (
        started(tmp_path, "--allow-http=false") as server,
        exporting(server.http_url, server.metrics_url) as exporter,
    ):
        page = exporter.wait(lambda page: page.value(state.UP) and exporter.get("/-/ready").ok)
        phase = exporter.get("/state").json()["triton"]["phase"]
        found = problems(server, capsys)

    assert "unknown" == phase
    assert {} == {**page.series(state.SERVER_LIVE), **page.series(state.SERVER_READY)}
    assert "--allow-http=true" in found["Triton's metrics answer and its API does not"]


def test_a_triton_that_restarts_without_http_does_not_drain_for_ever(tmp_path: Path) -> None:
    """Both its ports were closed: what answers now is another process, which need not have an API."""
    with started(tmp_path) as server, exporting(server.http_url, server.metrics_url) as exporter:
        exporter.wait(lambda page: page.value(state.SERVER_LIVE) == 1)
        server.stop()
        exporter.wait(lambda page: page.value(state.UP) == 0)
        server.arguments = ("--allow-http=false",)
        server.start()
        # The page that shows it up first was begun before; its API is asked once a second.
        exporter.wait(lambda page: page.value(state.UP) == 1 and not page.series(state.SERVER_LIVE))
        phase = exporter.get("/state").json()["triton"]["phase"]

    assert "unknown" == phase


def test_a_triton_that_wants_a_header_is_not_another_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Where all is restricted, the status and the option are named; where health is, the index shows life."""
    caplog.set_level(logging.WARNING)
    groups = "health,metadata,model-config,model-repository,statistics"
    with started(tmp_path, f"--http-restricted-api={groups}:admin-key=secret") as server:
        with exporting(server.http_url, server.metrics_url) as exporter:
            exporter.wait(lambda page: page.value(state.UP) and exporter.get("/-/ready").ok)
            shown = exporter.get("/state").json()["triton"]
        found = problems(server, capsys)

    refused = "GET /v2/health/live answers HTTP 403: This API is restricted, expecting header 'admin-key'"
    assert ("unknown", refused) == (shown["phase"], shown["api_failure_text"])
    for text in (found["Triton's API does not answer"], caplog.text):
        assert refused in text
        assert "--triton-headers-file" in text


@pytest.mark.parametrize("status", ["401 Unauthorized", "503 Service Unavailable"])
def test_a_proxy_that_refuses_is_named_with_its_status(
    status: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A stand-in for a proxy in front of Triton: it answers the same to every path."""
    refusal = body(b"no", status)
    paths = (LIVE_PATH, SERVER_PATH, "/metrics")
    with faulty(dict.fromkeys(paths, refusal)) as proxy:
        urls = ("--triton", proxy.url, "--triton-metrics", f"{proxy.url}/metrics")
        assert 1 == main(["doctor", *urls, "--gpu=none", "--watch=10ms"])
    printed = " ".join(capsys.readouterr().out.split())

    assert f"GET /v2 answers HTTP {status[:3]} do: put the header" in printed
    assert (
        f"/metrics: HTTP {status[:3]} do: put the header that is wanted there into --triton-headers-file"
        in printed
    )


def test_health_that_is_restricted_is_not_an_outage(tmp_path: Path) -> None:
    """The index answers: the server is live. Whether it is ready is not known."""
    with (
        started(tmp_path, "--http-restricted-api=health:admin-key=secret") as server,
        exporting(server.http_url, server.metrics_url) as exporter,
    ):
        page = exporter.wait(lambda page: page.value(state.SERVER_LIVE))

    assert {} == page.series(state.SERVER_READY)
