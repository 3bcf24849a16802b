"""Test failures of models under explicit control, and of a server that restarts repeatedly.

Real Triton under explicit model control, real exporter, real Prometheus; durations are divided by 120.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import pytest
import requests

from support.exporter import exporting
from support.fast_prometheus import INTERVAL_SECONDS, FastPrometheus, fast_prometheus
from support.repository import Repository
from support.triton import control, infer, live_triton
from triton_alerts.generate import artifacts
from triton_exporter.catalogue import state, triton
from triton_slo.artifact import Options
from tritonwatch.local import TritonServer

pytestmark = pytest.mark.real
OPTIONS = Options(time_scale=1 / 120, scrape_interval_seconds=INTERVAL_SECONDS)
"""Half an hour is 15 s: long enough to start a server three times."""


@dataclass(frozen=True)
class Stage:
    """One Triton that loads what it is asked to, watched."""

    server: TritonServer
    watch: FastPrometheus

    def ask(self, what: str, model: str) -> int:
        """Load or unload a model; returns the HTTP status."""
        return control(self.server, what, model)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Start Triton with two of its models loaded; one more is expected, and one nobody ever asked for."""
    directory = tmp_path_factory.mktemp("explicit-failures")
    repository = Repository(directory / "models")
    for name in ("used", "flappy", "expected", "spare"):
        repository.model(name)
    repository.model("raises", **{"raise": "weights missing"})
    repository.model("endless", load_seconds=30)
    loaded = ["--load-model=used", "--load-model=flappy"]
    expected: dict[str, tuple[str, ...]] = {"used": (), "expected": ()}
    with (
        live_triton(repository.path, directory, "explicit", loaded) as server,
        exporting(server.http_url, server.metrics_url, expected, triton_log=server.log) as exporter,
        fast_prometheus(exporter.url, artifacts((), OPTIONS), directory / "watch") as watch,
    ):
        yield Stage(server, watch)


def test_an_expected_model_that_nobody_loaded_is_missing(stage: Stage) -> None:
    """Triton lists only its name, as for an unwanted model; the operator's list distinguishes the two."""
    stage.watch.wait("TritonExpectedModelMissing", model="expected")
    stage.watch.wait("TritonModelNotReadyProlonged", model="expected")

    for name in ("TritonExpectedModelMissing", "TritonModelNotReadyProlonged", "TritonModelLoadFailed"):
        assert [] == stage.watch.alerts(name, model="spare")


def test_a_load_that_was_asked_for_and_failed_fires_and_unloading_does_not_hide_it(stage: Stage) -> None:
    """Triton keeps the model unavailable with its old reason, however it is unloaded."""
    assert 400 <= stage.ask("load", "raises") < 600
    stage.watch.wait_cause("python_error", "TritonModelLoadFailed", model="raises")
    stage.ask("unload", "raises")

    stage.watch.wait("TritonModelNotReadyProlonged", model="raises")
    stage.watch.wait("TritonServerNotReady")


def test_unloading_a_model_in_use_fires_although_triton_calls_it_healthy(stage: Stage) -> None:
    """It received requests and was then unloaded; loading it again ends the alert, idle models raise none."""
    counted = f'{triton.REQUEST_SUCCESS}{{model="used"}}'
    stage.watch.wait_seen(counted)
    assert 200 == infer(stage.server, "used")
    stage.watch.wait_seen(f"{counted} > 0")
    assert 200 == stage.ask("unload", "used")
    stage.watch.wait("TritonModelUnloadedInUse", model="used")
    stage.watch.wait("TritonModelDownEverywhere", model="used")
    assert [] == stage.watch.alerts("TritonModelUnloadedInUse", model="flappy")

    assert 200 == stage.ask("load", "used")
    stage.watch.wait_gone("TritonModelUnloadedInUse", model="used")
    stage.watch.wait_gone("TritonModelDownEverywhere", model="used")


def test_a_model_that_comes_and_goes_is_flapping(stage: Stage) -> None:
    """Each gap is too short for an alert; all of them together fire one."""
    # Three times in its half hour, which is 15 s: on a busy machine the first ones may take longer.
    for _ in range(12):
        for what, ready in (("unload", 0), ("load", 1)):
            assert 200 == stage.ask(what, "flappy")
            stage.watch.wait_seen(f'{state.MODEL_READY}{{model="flappy"}} == {ready}')
        if stage.watch.alerts("TritonModelFlapping", model="flappy"):
            break

    stage.watch.wait("TritonModelFlapping", model="flappy", version="1")
    assert [] == stage.watch.alerts("TritonModelFlapping", model="used")


def test_a_load_that_never_ends_is_stuck(stage: Stage) -> None:
    """The model has been LOADING for half an hour."""

    def load() -> None:
        with suppress(requests.RequestException):  # the server is killed in the midst of it
            stage.ask("load", "endless")

    hanging = threading.Thread(target=load)
    hanging.start()
    stage.watch.wait("TritonModelStuckLoading", model="endless")
    stage.server.kill()
    hanging.join()


def test_a_server_that_dies_and_comes_back_is_restarting(stage: Stage) -> None:
    """The server lives too briefly for any other alert to fire."""
    stage.server.kill()
    stage.watch.wait_seen(f"{state.SERVER_LIVE} == 0")
    # Without models it starts in time on a busy machine, too.
    stage.server.arguments = [
        argument for argument in stage.server.arguments if "--load-model" not in argument
    ]
    for _ in range(3):
        stage.server.start()
        stage.watch.wait_seen(f"{state.SERVER_LIVE} == 1")
        stage.server.kill()
        stage.watch.wait_seen(f"{state.SERVER_LIVE} == 0")

    stage.watch.wait("TritonServerRestarting")
