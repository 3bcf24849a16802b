"""Test a real Triton a year older than the others (2.41, 23.12), which shows less, and some things otherwise."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.exporter import exporting
from support.repository import Repository
from support.tools import ROOT
from support.triton import api_of, drained, infer, live_triton
from triton_exporter.catalogue import state, triton
from tritonwatch.local import TritonServer

_WHEEL = ROOT / ".cache" / "old-triton"
_STUB = _WHEEL / "pytriton/tritonserver/python_backend_stubs" / f"3.{sys.version_info.minor}"

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not _STUB.is_dir(), reason="no older Triton for this Python; try: make tools-next"),
]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TritonServer]:
    """Yield a server that serves two models, and has failed to load a third."""
    monkeypatch.syspath_prepend(_WHEEL)
    repository = Repository(tmp_path / "models")
    repository.model("echo")
    repository.model("slowly", delay_seconds=2)
    repository.model("broken", **{"raise": "weights missing"})
    with live_triton(repository.path, tmp_path) as server:
        yield server


@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_models_of_an_older_triton_are_seen_whole(server: TritonServer, transport: str) -> None:
    """States, the failed load with its reason, histograms, and failures that have no reason there."""
    with exporting(api_of(server, transport), server.metrics_url) as exporter:
        exporter.wait(lambda page: page.value(state.UP))
        assert 200 == infer(server, "echo")
        page = exporter.wait(
            lambda page: (
                page.value(state.MODEL_READY, model="echo", version="1")
                and page.value(state.MODEL_LOAD_FAILURES, model="broken", reason="python_error")
                and page.value(state.REQUEST_DURATION.count, model="echo", version="1")
            )
        )
        models = {model["model"]: model for model in exporter.get("/state").json()["models"]}

    assert (1, 0) == tuple(
        page.value(state.MODEL_READY, model=model, version="1") for model in ("slowly", "broken")
    )
    assert "weights missing" in models["broken"]["reason"]
    assert 0 == page.value(triton.REQUEST_FAILURE, model="echo", version="1")


@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_the_drain_of_an_older_triton_is_reported(server: TritonServer, transport: str) -> None:
    """Its API stays open and reports that the server is not live: draining, and no model ready."""
    with exporting(api_of(server, transport), server.metrics_url) as exporter:
        page, phase = drained(server, exporter, "slowly")

    assert (1, "draining") == (page.value(state.UP), phase)
    assert 0 == page.value(state.MODEL_READY, model="slowly", version="1")


def test_the_doctor_reports_what_a_newer_triton_shows(server: TritonServer) -> None:
    """An upgrade is advised, with what it brings."""
    command = [sys.executable, "-m", "tritonwatch", "doctor", "--triton", server.http_url, "--json"]
    command += ["--triton-metrics", server.metrics_url, "--gpu", "none", "--watch", "0"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    advice = {finding["title"]: finding["do"] for finding in json.loads(ended.stdout)}

    assert "2.48 (24.07): failures by reason" in advice["Triton 2.41.0 is not the newest"]
