"""Test a load that never ends: a Python model without its model.py (triton-inference-server/server#8766)."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pytest
import requests

from support.exporter import exporting
from support.fast_prometheus import INTERVAL_SECONDS, fast_prometheus
from support.repository import Repository
from support.triton import control, live_triton
from support.waiting import eventually
from triton_alerts.generate import artifacts
from triton_exporter.catalogue import state
from triton_slo.artifact import Options

pytestmark = pytest.mark.real

VERSION = {"model": "served", "version": "1"}
REASON = "Python model file not found in"


def test_a_model_that_does_not_come_back_pages_with_the_reason(tmp_path: Path) -> None:
    """It served, was unloaded, and is LOADING for ever: no first load. At a start all ports stay closed."""
    repository = Repository(tmp_path / "models")
    repository.model("served")
    rules = artifacts((), Options(time_scale=1 / 120, scrape_interval_seconds=INTERVAL_SECONDS))
    with live_triton(repository.path, tmp_path, "explicit", ["--load-model=served"]) as server:
        urls = (server.http_url, server.metrics_url)
        with (
            exporting(*urls, triton_log=server.log) as exporter,
            fast_prometheus(exporter.url, rules, tmp_path / "watch") as watch,
        ):
            watch.wait_seen(f'{state.MODEL_READY}{{model="served"}} == 1')
            assert 200 == control(server, "unload", "served")
            exporter.wait(lambda page: page.value(state.MODEL_STATE, **VERSION, state="unloaded"))
            (repository.path / "served" / "1" / "model.py").unlink()

            def load() -> None:
                with contextlib.suppress(requests.RequestException):  # the server is killed meanwhile
                    control(server, "load", "served")

            loading = threading.Thread(target=load)
            loading.start()
            page = exporter.wait(
                lambda page: page.value(state.MODEL_LOAD_FAILURES, model="served", reason="missing_file")
            )
            # The log says why before the next poll shows the state.
            (shown,) = eventually(
                lambda: [m for m in exporter.get("/state").json()["models"] if m["state"] == "loading"],
                lambda: exporter.get("/state").text,
            )
            with exporting(*urls, triton_log=server.log) as restarted:
                restarted.wait(
                    lambda page: (
                        page.value(state.MODEL_STATE, **VERSION, state="loading")
                        and not page.series(state.MODEL_FIRST_LOAD)
                    )
                )
            watch.wait_cause("missing_file", "TritonModelDownEverywhere", model="served")
            watch.wait_cause("missing_file", "TritonModelLoadFailed", model="served")

            server.kill()
            loading.join()
            server.start()

            def failed() -> bool:
                answer = exporter.get("/state").json()["triton"]
                return answer["phase"] == "down or starting" and REASON in answer["start_failure"]

            eventually(failed, "the reason of the hanging start was not found")

    assert REASON in shown["reason"]
    assert 1 == page.value(state.MODEL_EXPECTED, model="served")
    assert {} == page.series(state.MODEL_FIRST_LOAD)
