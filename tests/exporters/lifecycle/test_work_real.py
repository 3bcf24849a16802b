"""Test configuration and statistics of a real Triton's models as series, through reloads of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
import requests

from support.exporter import RunningExporter, exporting
from support.repository import Repository, write
from support.triton import control, infer, live_triton
from support.waiting import eventually
from triton_exporter.catalogue import models, state
from tritonwatch.local import TritonServer

pytestmark = pytest.mark.real

_BATCHING = """\
dynamic_batching {
  max_queue_delay_microseconds: 200000
  priority_levels: 2
  default_priority_level: 2
  default_queue_policy { max_queue_size: 50 default_timeout_microseconds: 3000000 timeout_action: REJECT }
  priority_queue_policy { key: 1 value { max_queue_size: 7 } }
}
"""


@dataclass(frozen=True)
class Worker:
    """A real Triton that batches, and an exporter beside it."""

    server: TritonServer
    repository: Repository
    exporter: RunningExporter

    def infer(self, times: int = 1, model: str = "worker") -> None:
        with ThreadPoolExecutor(times) as pool:
            statuses = list(pool.map(lambda _: infer(self.server, model), range(times)))
        assert [200] * times == statuses

    def wait_for_busy_seconds(self, since: float, requests_since_load: int) -> float:
        """Wait until the page shows what Triton counted since a (re)load, beside what it had shown before."""
        eventually(
            lambda: _statistics(self.server)["inference_count"] == requests_since_load,
            "Triton has not counted its requests",
        )
        wanted = pytest.approx(since + _seconds_of_triton(self.server))
        labels = {"model": "worker", "version": "1"}
        page = self.exporter.wait(lambda page: page.value(models.BUSY_SECONDS, **labels) == wanted)
        return page.value(models.BUSY_SECONDS, **labels) or 0.0


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    directory = tmp_path_factory.mktemp("work")
    repository = Repository(directory / "models")
    repository.model("worker", config=_BATCHING, delay_seconds=0.05)
    repository.model("plain")
    repository.ensemble("both", "plain", "worker")
    with (
        live_triton(repository.path, directory, "explicit", ["--load-model=*"]) as server,
        exporting(server.http_url, server.metrics_url) as exporter,
    ):
        exporter.wait(lambda page: page.value(models.MAX_BATCH_SIZE, model="worker", version="1"))
        yield Worker(server, repository, exporter)


def test_configuration_is_shown_as_triton_normalised_it(worker: Worker) -> None:
    """Backend, batching, queue limits by priority, instances and ensemble steps of ready models."""
    page = worker.exporter.scrape()
    mine = {"model": "worker", "version": "1"}

    assert 1 == page.value(models.INFO, **mine, backend="python", platform="")
    nothing = {"preferred_batch_sizes": "", "priority_levels": "", "rate_limiter": ""}
    # Triton itself prefers full batches where there is a delay.
    levels = {**nothing, "preferred_batch_sizes": "8", "priority_levels": "2"}
    assert 1 == page.value(models.SCHEDULER_INFO, **mine, scheduler="dynamic", **levels)
    assert 1 == page.value(models.SCHEDULER_INFO, model="plain", version="1", scheduler="none", **nothing)
    assert 1 == page.value(models.SCHEDULER_INFO, model="both", version="1", scheduler="ensemble", **nothing)
    assert 8 == page.value(models.MAX_BATCH_SIZE, **mine)
    assert 1 == page.value(models.INSTANCES, **mine, kind="cpu", gpu="")
    assert 0.2 == page.value(models.MAX_QUEUE_DELAY, **mine)
    assert 50 == page.value(models.QUEUE_SIZE_LIMIT, **mine, priority="")
    assert 7 == page.value(models.QUEUE_SIZE_LIMIT, **mine, priority="1")
    assert 3 == page.value(models.QUEUE_TIMEOUT, **mine, priority="", action="reject")
    assert page.value(models.DECOUPLED, **mine) is page.value(models.RESPONSE_CACHE, **mine) is None
    step = {"model": "both", "version": "1", "step_version": "-1"}
    assert 1 == page.value(models.ENSEMBLE_STEP, **step, position="1", step_model="plain")
    assert 1 == page.value(models.ENSEMBLE_STEP, **step, position="2", step_model="worker")
    assert page.value(models.MAX_QUEUE_DELAY, model="plain", version="1") is None


def test_work_is_counted_per_execution_and_survives_every_reload(worker: Worker) -> None:
    """Unload, load and hot reload turn nothing back and lose nothing; batches are counted once."""
    mine = {"model": "worker", "version": "1"}
    worker.infer(4)
    busy = worker.wait_for_busy_seconds(0, 4)
    assert _statistics(worker.server)["execution_count"] < 4, (
        "requests within the queue delay share an execution"
    )
    assert busy >= 0.05
    squares = worker.exporter.scrape().value(models.BATCH_SIZE_SQUARES, **mine)
    assert squares == sum(
        int(batch["batch_size"]) ** 2 * batch["compute_infer"]["count"]
        for batch in _statistics(worker.server)["batch_stats"]
    )

    assert 200 == control(worker.server, "unload", "worker")
    gone = worker.exporter.wait(lambda page: page.value(state.MODEL_STATE, **mine, state="unloaded"))
    assert busy == gone.value(models.BUSY_SECONDS, **mine)
    assert squares == gone.value(models.BATCH_SIZE_SQUARES, **mine)
    assert 200 == control(worker.server, "load", "worker")
    worker.infer(2)
    after_load = worker.wait_for_busy_seconds(busy, 2)

    write(worker.repository.path / "worker" / "1" / "delay_seconds", "0.001")
    write(worker.repository.path / "worker" / "config.pbtxt", _with_more_delay(worker.repository))
    assert 200 == control(worker.server, "load", "worker")
    assert 0 == _statistics(worker.server)["inference_count"], "a hot reload starts statistics again"
    worker.infer(3)

    assert worker.wait_for_busy_seconds(after_load, 3) > after_load > busy
    worker.exporter.wait(lambda page: page.value(models.MAX_QUEUE_DELAY, **mine) == 0.1)


def _statistics(server: TritonServer) -> Any:
    return requests.get(f"{server.http_url}/v2/models/worker/stats", timeout=5).json()["model_stats"][0]


def _seconds_of_triton(server: TritonServer) -> float:
    """Time of the executions of `worker` as Triton counts it: on a busy machine longer than the model's delay."""
    parts = ("compute_input", "compute_infer", "compute_output")
    batches = _statistics(server)["batch_stats"]
    return sum(batch[part]["ns"] for batch in batches for part in parts) / 1e9


def _with_more_delay(repository: Repository) -> str:
    text = (repository.path / "worker" / "config.pbtxt").read_text()
    return text.replace("max_queue_delay_microseconds: 200000", "max_queue_delay_microseconds: 100000")
