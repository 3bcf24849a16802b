"""Test the recipes about object storage with a real Triton whose repository is a bucket."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
import requests

from docs.object_store import ObjectStore, serving
from support.exporter import RunningExporter, exporting
from support.triton import live_triton
from support.waiting import eventually
from triton_exporter.catalogue import own, state
from tritonwatch.local import TritonServer

pytestmark = pytest.mark.real
LARGE = {"model": "large", "version": "1"}
_CONFIG = """\
backend: "python"
input [{ name: "X" data_type: TYPE_FP32 dims: [ 1 ] }]
output [{ name: "Y" data_type: TYPE_FP32 dims: [ 1 ] }]
instance_group [{ kind: KIND_CPU count: 1 }]
"""
_MODEL = """\
class TritonPythonModel:
    def execute(self, requests):
        raise NotImplementedError
"""


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    folder = tmp_path_factory.mktemp("bucket")
    version = folder / "models" / "large" / "1"
    version.mkdir(parents=True)
    (version.parent / "config.pbtxt").write_text(_CONFIG)
    (version / "model.py").write_text(_MODEL)
    (version / "weights.bin").write_bytes(b"w" * 1_000_000)
    with serving(folder) as store:
        yield store


@pytest.fixture(scope="module")
def triton(bucket: ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    directory = tmp_path_factory.mktemp("triton")
    (directory / "none").mkdir()
    arguments = [f"--model-repository={bucket.repository}"]
    with live_triton(
        directory / "none", directory, "explicit", arguments, environment=bucket.environment
    ) as server:
        yield server


@pytest.fixture(scope="module")
def exporter(triton: TritonServer) -> Iterator[RunningExporter]:
    with exporting(triton.http_url, triton.metrics_url) as running:
        running.wait(lambda page: page.value(state.UP) == 1)
        yield running


def test_a_download_is_a_load_and_no_loss(
    triton: TritonServer, bucket: ObjectStore, exporter: RunningExporter
) -> None:
    """While the weights come, the model is loading for the first time and the server is not ready; then it is."""
    bucket.weights_seconds = 1.5
    load = threading.Thread(
        target=requests.post,
        args=(f"{triton.http_url}/v2/repository/models/large/load",),
        kwargs={"timeout": 30},
    )
    load.start()

    page = exporter.wait(lambda page: page.value(state.MODEL_STATE, **LARGE, state="loading") == 1)
    ready = requests.get(f"{triton.http_url}/v2/health/ready", timeout=5)
    load.join()

    assert 0 == page.value(state.MODEL_READY, **LARGE)
    assert 1 == page.value(state.MODEL_FIRST_LOAD, **LARGE)
    assert 400 == ready.status_code
    done = exporter.wait(lambda page: page.value(state.MODEL_READY, **LARGE) == 1)
    took = done.value(state.MODEL_LOAD_DURATION_ESTIMATED, **LARGE)
    if took is None:  # a poll of a busy machine that failed leaves the duration out, on purpose
        assert any(done.series(own.SCRAPE_FAILURES).values())
    else:
        assert 1.0 < took


def test_most_polls_send_no_request_to_the_bucket(bucket: ObjectStore, exporter: RunningExporter) -> None:
    """A poll of the index lists the bucket; where that is slow, polls take at most a fifth of the time."""
    bucket.list_seconds = 0.2
    time.sleep(3)  # two polls: after one slow index there is no pause
    bucket.listed.clear()
    began = time.monotonic()
    eventually(lambda: len(bucket.listed) >= 6, "the bucket is not listed")
    polls, seconds = len(bucket.listed), time.monotonic() - began
    bucket.list_seconds = 0.0

    assert 0.2 * polls <= seconds / 5 + 0.4, "a fifth, and the polls at both ends"
