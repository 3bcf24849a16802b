"""Test that every way in which a real Triton fails to load or serve a model leads to an alert.

Real Triton, real exporter, real Prometheus with the generated rules; durations are divided by 360.
"""

from __future__ import annotations

import re
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests

from support.exporter import exporting
from support.fast_prometheus import INTERVAL_SECONDS, SCALE, FastPrometheus, fast_prometheus
from support.loopback import free_ports
from support.repository import Repository, write
from support.triton import infer, live_triton
from triton_alerts.bridge.evidence.facts import servers
from triton_alerts.bridge.incidents.incident import Incident, key_of
from triton_alerts.bridge.incidents.notification import Member
from triton_alerts.generate import artifacts
from triton_slo.artifact import Options
from triton_slo.prometheus import Prometheus
from triton_slo.server_access import Access
from tritonwatch.local import TritonPorts, TritonServer

pytestmark = pytest.mark.real
OPTIONS = Options(time_scale=SCALE, scrape_interval_seconds=INTERVAL_SECONDS)
POLL_SECONDS = 5
"""At each poll Triton loads every broken model again, which takes as much as all the rest."""
EXPECTED = ("badconfig", "noversion", "pipeline", "twice", "absent")
"""Models of the operator's list: Triton itself reports nothing, or too little, about these."""


@dataclass(frozen=True)
class Stage:
    """A Triton in poll mode with every kind of broken model, an exporter and a Prometheus."""

    server: TritonServer
    repository: Repository
    watch: FastPrometheus


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Start Triton over the broken models, then exporter and Prometheus: all failures are older than they."""
    directory = tmp_path_factory.mktemp("load-failures")
    repository, twin = Repository(directory / "models"), Repository(directory / "others")
    repository.model("good")
    repository.model("hot")
    repository.model("slow", delay_seconds=7)
    repository.model("crawls", delay_seconds=1)
    repository.model("raises", **{"raise": "weights missing"})
    write(repository.model("badconfig") / "config.pbtxt", "nonsense {")
    write(repository.model("nobackend") / "config.pbtxt", 'backend: "nosuch"\nmax_batch_size: 1\n')
    shutil.rmtree(repository.model("noversion") / "1")
    repository.ensemble("pipeline", "good", "raises")
    repository.model("twice")
    twin.model("twice")
    arguments = [
        f"--model-repository={twin.path}",
        f"--repository-poll-secs={POLL_SECONDS}",
        "--exit-timeout-secs=20",
    ]
    expected = dict.fromkeys(EXPECTED, ())
    with (
        live_triton(repository.path, directory, "poll", arguments) as server,
        exporting(server.http_url, server.metrics_url, expected, triton_log=server.log) as exporter,
        fast_prometheus(exporter.url, artifacts((), OPTIONS), directory / "watch") as watch,
    ):
        yield Stage(server, repository, watch)


def test_a_server_that_dies_at_start_up_of_a_bad_model_does_not_start(tmp_path: Path) -> None:
    """With Triton's default one bad model ends the server before it ever answers, start after start.

    Nobody can ask it why; however often it is started again, it is one lasting alert.
    """
    repository = Repository(tmp_path / "models")
    repository.model("raises", **{"raise": "weights missing"})
    server = TritonServer(
        repository.path, tmp_path, TritonPorts(*free_ports(3)), arguments=["--exit-on-error=true"]
    )
    server.start()
    try:
        with (
            exporting(server.http_url, server.metrics_url) as exporter,
            fast_prometheus(exporter.url, artifacts((), OPTIONS), tmp_path / "watch") as watch,
        ):
            assert server.process is not None
            assert 0 != server.process.wait(120)
            before = watch.wait("TritonServerNotStarting")
            server.start()
            assert 0 != server.process.wait(120)
            assert before["activeAt"] == watch.wait("TritonServerNotStarting")["activeAt"]
            assert [] == watch.alerts("TritonServerDown")
    finally:
        server.kill()


def infer_and_lose(server: TritonServer, model: str) -> None:
    """Send one inference and ignore its result."""
    with suppress(requests.RequestException):
        infer(server, model)


def test_a_failure_older_than_the_exporter_fires_with_its_cause(stage: Stage) -> None:
    """A model that failed to load before the exporter started fires both alerts, with the cause."""
    stage.watch.wait_cause("python_error", "TritonModelLoadFailed", model="raises")
    stage.watch.wait_cause("python_error", "TritonModelNotReadyProlonged", model="raises", version="1")


@pytest.mark.parametrize("model", ["badconfig", "noversion", "pipeline", "absent"])
def test_an_expected_model_that_triton_does_not_list_is_missing(stage: Stage, model: str) -> None:
    """No reason, no version or no entry at all in Triton's index: expected models fire all the same."""
    stage.watch.wait("TritonExpectedModelMissing", model=model)
    stage.watch.wait("TritonModelNotReadyProlonged", model=model)


def test_an_unknown_backend_fires_with_its_cause(stage: Stage) -> None:
    """A model whose backend is not installed fails to load."""
    stage.watch.wait_cause("missing_backend", "TritonModelLoadFailed", model="nobackend")
    stage.watch.wait("TritonModelNotReadyProlonged", model="nobackend")


def test_one_name_in_two_repositories_fires(stage: Stage) -> None:
    """Triton refuses such a model and stays ready itself."""
    stage.watch.wait("TritonModelNotReadyProlonged", model="twice")


def test_healthy_models_fire_nothing(stage: Stage) -> None:
    """Broken models have no effect on the others."""
    for model in ("good", "hot", "slow"):
        for name in ("TritonModelLoadFailed", "TritonModelNotReadyProlonged", "TritonExpectedModelMissing"):
            assert [] == stage.watch.alerts(name, model=model)


def test_requests_that_pile_up_are_told_before_they_are_answered(stage: Stage) -> None:
    """One is answered a second: the last of sixty waits for a minute."""
    for _ in range(60):
        threading.Thread(target=infer_and_lose, args=(stage.server, "crawls"), daemon=True).start()
    stage.watch.wait("TritonQueueBacklog", model="crawls")
    assert [] == stage.watch.alerts("TritonModelStalled")


def test_retries_of_poll_mode_are_one_lasting_alert(stage: Stage) -> None:
    """Triton loads the model again at each poll; the alert neither ends nor begins anew."""
    before = stage.watch.wait("TritonModelNotReadyProlonged", model="raises")
    retried = stage.server.log.read_text(errors="replace").count("failed to load 'raises'")
    stage.watch.until(
        lambda: stage.server.log.read_text(errors="replace").count("failed to load 'raises'") >= retried + 1,
        "Triton never retried",
    )

    assert before["activeAt"] == stage.watch.wait("TritonModelNotReadyProlonged", model="raises")["activeAt"]


def test_a_failed_hot_reload_fires_while_the_old_copy_serves(stage: Stage) -> None:
    """Triton reports READY throughout; its log contains the failure."""
    write(stage.repository.path / "hot" / "1" / "raise", "CUDA out of memory")
    stage.watch.wait_cause("out_of_memory", "TritonModelLoadFailed", model="hot")

    assert 200 == requests.get(f"{stage.server.http_url}/v2/models/hot/ready", timeout=5).status_code
    assert [] == stage.watch.alerts("TritonModelNotReadyProlonged", model="hot")


def test_a_strict_server_with_a_broken_model_is_not_ready(stage: Stage) -> None:
    """One failed model makes the readiness check of the whole server fail."""
    stage.watch.wait("TritonServerNotReady")


def test_repairing_the_models_ends_their_alerts(stage: Stage) -> None:
    """Triton finds the repaired files at its next poll, and the alerts resolve on their own.

    Until they do, the bridge says since when the model is ready again; of a copy that was served all the time nothing.
    """
    write(stage.repository.path / "hot" / "1" / "raise", "CUDA out of memory")
    fired = {
        model: stage.watch.wait("TritonModelLoadFailed", model=model)["labels"] for model in ("raises", "hot")
    }
    at = time.time()
    for model in ("raises", "hot"):
        (stage.repository.path / model / "1" / "raise").unlink()
    stage.repository.model("badconfig")
    stage.repository.version("noversion", "1")

    for model in ("raises", "badconfig", "noversion"):
        stage.watch.wait_gone("TritonModelNotReadyProlonged", model=model)
    with Prometheus(Access(stage.watch.url)) as client:
        over = {
            model: servers(client)(
                Incident(
                    name="n",
                    key="k",
                    receiver="r",
                    opened_at=at,
                    members={"a": Member(labels=labels, starts_at=at)},
                )
            )
            .faults[key_of(labels)]
            .over
            for model, labels in fired.items()
        }
    assert re.fullmatch("ready again at [0-9:]{5} UTC", over["raises"] or "")
    assert "" == over["hot"]
    for model in ("raises", "hot"):
        stage.watch.wait_gone("TritonModelLoadFailed", model=model)
    stage.watch.wait_gone("TritonModelNotReadyProlonged", model="pipeline")
    stage.watch.wait_gone("TritonExpectedModelMissing", model="badconfig")


def test_a_stalled_model_a_draining_server_and_a_dead_one_raise_different_alerts(stage: Stage) -> None:
    """Requests that hang show in the queue alone; a server that drains has only its API closed."""
    assert stage.server.process is not None
    hanging = [threading.Thread(target=infer_and_lose, args=(stage.server, "slow")) for _ in range(3)]
    for thread in hanging:
        thread.start()
    stage.watch.wait("TritonModelStalled", model="slow")

    # Triton waits for the requests in flight, with its API closed and its metrics port open.
    stage.server.process.send_signal(signal.SIGTERM)
    stage.watch.wait("TritonServerNotLive")
    assert [] == stage.watch.alerts("TritonServerDown")

    stage.watch.wait("TritonServerDown")
    stage.watch.wait("TritonAllServersDown")
    stage.watch.wait_gone("TritonServerNotLive")
    for thread in hanging:
        thread.join()
