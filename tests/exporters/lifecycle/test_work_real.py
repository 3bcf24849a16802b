"""Test configuration and statistics of a real Triton's models as series, through reloads of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
import requests

from support.exporter import RunningExporter, ScrapedPage, exporting
from support.repository import Repository, write
from support.triton import control, infer, live_triton
from triton_exporter.catalogue import models, state
from tritonwatch.local.triton import TritonServer

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

    def executed(self, page: ScrapedPage) -> float:
        return page.value(models.BATCH_SIZE.sum, model="worker", version="1") or 0.0


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
    assert 8 == page.value(models.MAX_BATCH_SIZE, **mine)
    assert 1 == page.value(models.INSTANCES, **mine, kind="cpu", gpu="")
    assert 0.2 == page.value(models.MAX_QUEUE_DELAY, **mine)
    assert 50 == page.value(models.QUEUE_SIZE_LIMIT, **mine, priority="")
    assert 7 == page.value(models.QUEUE_SIZE_LIMIT, **mine, priority="1")
    assert 3 == page.value(models.QUEUE_TIMEOUT, **mine, priority="", action="reject")
    assert 2 == page.value(models.PRIORITY_LEVELS, **mine)
    assert 0 == page.value(models.DECOUPLED, **mine)
    assert 0 == page.value(models.RESPONSE_CACHE, **mine)
    step = {"model": "both", "version": "1", "step_version": "-1"}
    assert 1 == page.value(models.ENSEMBLE_STEP, **step, step_model="plain")
    assert 2 == page.value(models.ENSEMBLE_STEP, **step, step_model="worker")
    assert page.value(models.MAX_QUEUE_DELAY, model="plain", version="1") is None


def test_work_is_counted_per_execution_and_survives_every_reload(worker: Worker) -> None:
    """A batch of 4 is one execution of 4; unload, load and hot reload turn nothing back and lose nothing."""
    mine = {"model": "worker", "version": "1"}
    worker.infer(4)
    first = worker.exporter.wait(lambda page: worker.executed(page) == 4)
    executions = first.value(models.BATCH_SIZE.count, **mine)
    busy = first.value(models.BUSY_SECONDS, **mine)
    last = first.value(models.LAST_INFERENCE, **mine)
    assert executions is not None
    assert busy is not None

    assert executions < 4, "requests within the queue delay share an execution"
    assert 0.05 * executions <= busy
    assert busy == pytest.approx(_seconds_of_triton(worker.server))

    assert 200 == control(worker.server, "unload", "worker")
    gone = worker.exporter.wait(lambda page: page.value(state.MODEL_STATE, **mine, state="unloaded"))
    assert 4 == worker.executed(gone)
    assert 200 == control(worker.server, "load", "worker")
    worker.infer(2)
    worker.exporter.wait(lambda page: worker.executed(page) == 6)

    write(worker.repository.path / "worker" / "1" / "delay_seconds", "0.001")
    write(worker.repository.path / "worker" / "config.pbtxt", _with_more_delay(worker.repository))
    assert 200 == control(worker.server, "load", "worker")
    statistics = requests.get(f"{worker.server.http_url}/v2/models/worker/stats", timeout=5).json()
    assert 0 == statistics["model_stats"][0]["inference_count"], "a hot reload starts statistics again"
    worker.infer(3)
    page = worker.exporter.wait(lambda page: worker.executed(page) == 9)

    assert (page.value(models.BUSY_SECONDS, **mine) or 0) > busy
    assert (page.value(models.LAST_INFERENCE, **mine) or 0) >= (last or 0)
    page = worker.exporter.wait(lambda page: page.value(models.MAX_QUEUE_DELAY, **mine) == 0.1)
    buckets = page.series(models.BATCH_SIZE.bucket)
    bounds = {dict(labels)["le"] for labels in buckets if ("model", "worker") in labels}
    assert {"1.0", "2.0", "4.0", "8.0", "+Inf"} == bounds


def _seconds_of_triton(server: TritonServer) -> float:
    """Time of the executions of `worker` as Triton counts it: on a busy machine longer than the model's delay."""
    statistics = requests.get(f"{server.http_url}/v2/models/worker/stats", timeout=5).json()
    parts = ("compute_input", "compute_infer", "compute_output")
    batches = statistics["model_stats"][0]["batch_stats"]
    return sum(batch[part]["ns"] for batch in batches for part in parts) / 1e9


def _with_more_delay(repository: Repository) -> str:
    text = (repository.path / "worker" / "config.pbtxt").read_text()
    return text.replace("max_queue_delay_microseconds: 200000", "max_queue_delay_microseconds: 100000")
