"""Test the prober against a real Triton: every datatype, batched or not, decoupled, broken, dead and hung."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import requests

from exporters.faults import faulty
from support.exporter import RunningExporter, exporting
from support.loopback import free_ports
from support.repository import Repository, write
from support.triton import infer, live_triton
from support.waiting import eventually
from triton_exporter.catalogue import probe, state, triton
from triton_exporter.http.certificates import Certificates
from triton_exporter.probe.payload import DATATYPES, Tensor, load_payloads
from triton_exporter.probe.probe_settings import ProbeSettings
from triton_exporter.probe.send import sender
from triton_exporter.snapshot import ModelVersion
from tritonwatch.local import TritonPorts, TritonServer

pytestmark = pytest.mark.real

_SINK = """\
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("Y", pb_utils.get_input_tensor_by_name(request, "FP32").as_numpy())]
            )
            for request in requests
        ]
"""

_STREAM = """\
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for number in range(3):
                tensor = pb_utils.Tensor("Y", np.array([[number]], dtype=np.float32))
                sender.send(pb_utils.InferenceResponse([tensor]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""

_PICKY = """\
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            if x[0, 0] != 42:
                raise ValueError("the answer is 42")
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)]))
        return responses
"""

_CHOOSY = _PICKY.replace(
    'if x[0, 0] != 42:\n                raise ValueError("the answer is 42")',
    'if x[0, 0] == 0 and (self.here / "strict").exists():\n                raise ValueError("no zeros")',
).replace(
    "    def execute",
    """\
    def initialize(self, args):
        self.here = Path(args["model_repository"]) / args["model_version"]

    def execute""",
)
_CHOOSY = f"from pathlib import Path\n\n{_CHOOSY}"


def _every_datatype(repository: Repository, name: str, max_batch_size: int) -> None:
    folder = repository.version(name, "1")
    write(folder / "model.py", _SINK)
    inputs = [
        f'{{ name: "{kind}" data_type: TYPE_{kind.replace("BYTES", "STRING")} dims: [ -1, 2 ] }}'
        for kind in DATATYPES
    ]
    inputs.append('{ name: "MORE" data_type: TYPE_FP32 dims: [ 4 ] optional: true }')
    config = f"""\
backend: "python"
max_batch_size: {max_batch_size}
input [ {", ".join(inputs)} ]
output [{{ name: "Y" data_type: TYPE_FP32 dims: [ -1, 2 ] }}]
instance_group [{{ kind: KIND_CPU count: 1 }}]
"""
    write(repository.path / name / "config.pbtxt", config)


@dataclass(frozen=True)
class Probed:
    """A real Triton with models of every kind, and an exporter that probes most of them."""

    server: TritonServer
    repository: Repository
    exporter: RunningExporter

    def successes(self, model: str) -> float:
        page = self.exporter.scrape()
        return page.value(probe.REQUESTS, model=model, version="1", result="success") or 0


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Probed]:
    directory = tmp_path_factory.mktemp("probe")
    repository = Repository(directory / "models")
    _every_datatype(repository, "batched", 4)
    _every_datatype(repository, "unbatched", 0)
    repository.model("echo")
    repository.model("a+b,v=1@%41")
    repository.model("private")
    repository.model("killed")
    repository.model("hung")
    repository.model("choosy")
    write(repository.path / "choosy" / "1" / "model.py", _CHOOSY)
    repository.ensemble("both", "echo", "echo")
    repository.model("picky")
    write(repository.path / "picky" / "1" / "model.py", _PICKY)
    repository.model("stateful", config="sequence_batching { }")
    folder = repository.model("stream", config="model_transaction_policy { decoupled: true }")
    write(folder / "1" / "model.py", _STREAM)
    payloads = directory / "payloads"
    payloads.mkdir()
    answer = {"inputs": [{"name": "X", "shape": [1, 1], "datatype": "FP32", "data": [[42]]}]}
    (payloads / "picky.json").write_text(json.dumps(answer))
    ports = TritonPorts(*free_ports(3))
    settings = ProbeSettings(
        models=("*",),
        exclude=("priv*", "choosy"),
        interval_seconds=0.5,
        timeout_seconds=0.8,
        grpc_address=f"127.0.0.1:{ports.grpc}",
        payloads=load_payloads(payloads),
    )
    with (
        live_triton(repository.path, directory, ports=ports) as server,
        exporting(server.http_url, server.metrics_url, probes=settings) as exporter,
    ):
        yield Probed(server, repository, exporter)


@pytest.mark.parametrize("model", ["batched", "unbatched", "echo", "a+b,v=1@%41", "both", "stream", "picky"])
def test_a_model_that_works_is_probed_with_success(probed: Probed, model: str) -> None:
    """Every datatype with free dims, batched or not, an ensemble, a stream, and an own payload."""
    mine = {"model": model, "version": "1"}
    page = probed.exporter.wait(lambda page: (page.value(probe.REQUESTS, **mine, result="success") or 0) >= 2)

    assert 1 == page.value(probe.SUCCESS, **mine)
    assert 0 == page.value(probe.REQUESTS, **mine, result="failed")
    assert 1 == page.value(state.MODEL_READY, **mine)


def test_an_excluded_model_gets_no_request(probed: Probed) -> None:
    """What the operator excluded never sees a probe, by Triton's own count."""
    page = probed.exporter.wait(lambda _: probed.successes("echo") >= 2)

    assert 0 == page.value(triton.REQUEST_SUCCESS, model="private", version="1")
    assert page.value(probe.SUCCESS, model="private", version="1") is None


def test_a_model_that_needs_more_than_zeros_is_reported(probed: Probed) -> None:
    """A stateful model is not probed without a payload, and the reason is shown."""
    page = probed.exporter.wait(
        lambda page: page.value(probe.UNPROBED, model="stateful", version="1", reason="stateful")
    )

    assert page.value(probe.REQUESTS, model="stateful", version="1", result="success") is None


def _signal_stubs(server: TritonServer, model: str, number: signal.Signals) -> None:
    """Send a signal to the python processes of a model."""
    assert server.process is not None
    stubs = [
        child
        for child in psutil.Process(server.process.pid).children(recursive=True)
        if any(f"/{model}/" in word for word in child.cmdline())
    ]
    assert stubs
    for stub in stubs:
        os.kill(stub.pid, number)


def test_a_hung_model_is_loaded_but_not_ready(probed: Probed) -> None:
    """Triton calls it ready; the probe, which has worked before, ends with timeout, one in flight at a time."""
    mine = {"model": "hung", "version": "1"}
    probed.exporter.wait(lambda page: page.value(probe.SUCCESS, **mine))
    _signal_stubs(probed.server, "hung", signal.SIGSTOP)
    page = probed.exporter.wait(lambda page: page.value(probe.REQUESTS, **mine, result="timeout"))
    page = probed.exporter.wait(lambda page: page.value(state.MODEL_READY, **mine) == 0)
    models = probed.exporter.get("/state").json()["models"]
    hung = next(model for model in models if model["model"] == "hung")

    assert 1 == page.value(state.MODEL_STATE, **mine, state="ready")
    assert 0 == page.value(probe.SUCCESS, **mine)
    assert "probe" == hung["source"]
    assert hung["reason"].startswith("its last probe ended with timeout")


def test_a_model_that_serves_others_is_ready_though_its_probe_fails(probed: Probed) -> None:
    """Once nobody is served any more the failed probe counts; a repetition that works ends it."""
    mine = {"model": "choosy", "version": "1"}
    stop, statuses, ready = threading.Event(), set(), set()
    strict = probed.repository.path / "choosy" / "1" / "strict"

    def serve() -> None:
        while not stop.wait(0.5):
            statuses.add(infer(probed.server, "choosy"))

    # For so long a request shows that the model works: a busy machine stands still for less.
    settings = ProbeSettings(models=("choosy",), interval_seconds=12)
    with exporting(probed.server.http_url, probed.server.metrics_url, probes=settings) as exporter:
        exporter.wait(lambda page: page.value(probe.SUCCESS, **mine))
        traffic = threading.Thread(target=serve)
        traffic.start()
        try:
            write(strict, "")
            exporter.wait(lambda page: page.value(probe.REQUESTS, **mine, result="failed"))
            # No reason of a model that serves others; the error is there all the same.
            eventually(lambda: "ValueError: no zeros" in _probe_error(exporter, "choosy"), "no error")
            until = time.monotonic() + 4
            while time.monotonic() < until:
                page = exporter.scrape()
                ready.add((page.value(state.MODEL_READY, **mine), page.value(probe.SUCCESS, **mine)))
                time.sleep(0.25)
        finally:
            stop.set()
            traffic.join()
        exporter.wait(lambda page: page.value(state.MODEL_READY, **mine) == 0)
        strict.unlink()
        exporter.wait(lambda page: page.value(state.MODEL_READY, **mine) == 1)

    assert {200} == statuses
    assert {(1, None)} == ready


def _probe_error(exporter: RunningExporter, model: str) -> str:
    (entry,) = (entry for entry in exporter.get("/state").json()["models"] if entry["model"] == model)
    return str((entry["last_probe_error"] or {}).get("text", ""))


def test_a_model_whose_process_died_is_not_ready_by_its_probe(probed: Probed) -> None:
    """Up to 25.11 Triton calls a model ready whose process is dead; a real request does not work."""
    mine = {"model": "killed", "version": "1"}
    probed.exporter.wait(lambda page: page.value(probe.SUCCESS, **mine))
    _signal_stubs(probed.server, "killed", signal.SIGKILL)
    page = probed.exporter.wait(lambda page: page.value(probe.SUCCESS, **mine) == 0)
    page = probed.exporter.wait(lambda page: page.value(state.MODEL_READY, **mine) == 0)
    index = requests.post(f"{probed.server.http_url}/v2/repository/index", timeout=5).json()

    assert "READY" == next(entry["state"] for entry in index if entry["name"] == "killed")
    assert page.value(state.MODEL_NOT_READY_SINCE, **mine) is not None


def test_a_model_that_does_not_take_made_up_input_is_not_called_broken(
    probed: Probed, tmp_path: Path
) -> None:
    """A refused input, or one that has never worked, is not evidence against the readiness of the model."""
    settings = ProbeSettings(
        models=("picky", "batched"), interval_seconds=0.3, payloads=_wrong_shape(tmp_path)
    )
    server = probed.server
    with exporting(server.http_url, server.metrics_url, probes=settings) as exporter:
        bad = {"model": "batched", "version": "1"}
        page = exporter.wait(lambda page: page.value(probe.REQUESTS, **bad, result="bad_input"))
        raised = {"model": "picky", "version": "1"}
        page = exporter.wait(lambda page: page.value(probe.REQUESTS, **raised, result="unproven"))
        time.sleep(0.3)
        page = exporter.scrape()

    for mine in (bad, raised):
        assert 1 == page.value(state.MODEL_READY, **mine)
        assert page.value(probe.SUCCESS, **mine) is None


def _wrong_shape(folder: Path) -> dict[str, object]:
    request = {"inputs": [{"name": "FP32", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]}
    (folder / "batched.json").write_text(json.dumps(request))
    return dict(load_payloads(folder))


def test_a_server_that_hangs_up_is_unreachable() -> None:
    """A connection that ends without an answer is a result, and no exception."""
    with faulty({"/v2/models/echo/versions/1/infer": lambda _connection, _stop: None}) as target:
        send = sender(target.url, ProbeSettings(), {}, Certificates())

        assert (
            "unreachable"
            == send(ModelVersion("echo", "1"), [Tensor("X", "FP32", (1, 1), None)], False).result
        )
