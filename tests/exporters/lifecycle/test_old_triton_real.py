"""Test a real Triton a year older than the others (2.41, 23.12), which shows less, and some things otherwise."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pytest

from support.repository import Repository
from support.tools import ROOT
from support.triton import drained, infer, live_triton, over_both
from triton_exporter.catalogue import state, triton
from tritonwatch.cli import main
from tritonwatch.local import TritonServer

_WHEEL = ROOT / ".cache" / "old-triton"
_STUB = _WHEEL / "pytriton/tritonserver/python_backend_stubs" / f"3.{sys.version_info.minor}"

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not _STUB.is_dir(), reason="no older Triton for this Python; try: make tools-next"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """Yield a server that serves two models, and has failed to load a third."""
    directory = tmp_path_factory.mktemp("old-triton")
    repository = Repository(directory / "models")
    repository.model("echo")
    repository.model("slowly", delay_seconds=4)
    repository.model("broken", **{"raise": "weights missing"})
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(_WHEEL)
        with live_triton(repository.path, directory) as server:
            yield server


def test_models_of_an_older_triton_are_seen_whole(server: TritonServer) -> None:
    """States, the failed load with its reason, histograms, and failures that have no reason there."""
    with over_both(server) as exporters:
        for exporter in exporters:
            exporter.wait(lambda page: page.value(state.UP))
        assert 200 == infer(server, "echo")
        for exporter in exporters:
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


def test_the_doctor_reports_what_a_newer_triton_shows(
    server: TritonServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """An upgrade is advised, with what it brings."""
    asked = ["--triton", server.http_url, "--triton-metrics", server.metrics_url]
    main(["doctor", *asked, "--json", "--gpu", "none", "--watch", "0"])
    advice = {finding["title"]: finding["do"] for finding in json.loads(capsys.readouterr().out)}

    assert "2.48 (24.07): failures by reason" in advice["Triton 2.41.0 is not the newest"]


def test_the_drain_of_an_older_triton_is_reported(server: TritonServer) -> None:
    """Its API stays open and reports that the server is not live: draining, and no model ready."""
    # The last test of this file: it ends the server.
    with over_both(server) as exporters:
        for page, phase in drained(server, exporters, "slowly"):
            assert (1, "draining") == (page.value(state.UP), phase)
            assert 0 == page.value(state.MODEL_READY, model="slowly", version="1")
