"""Test what Triton counts of each way to fail, against the tables of docs/exporter.md."""

from __future__ import annotations

import importlib.util
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import requests
import tritonclient.grpc as grpc

from support.exporter import RunningExporter, exporting
from support.loopback import free_ports
from support.tools import ROOT
from support.triton import live_triton
from support.waiting import eventually
from triton_exporter.catalogue import state, triton
from triton_exporter.tracing.trace import OUTCOMES
from tritonwatch.local import TritonServer

pytestmark = pytest.mark.real

_PAGE = (ROOT / "docs" / "exporter.md").read_text()
_OLD = ROOT / ".cache" / "old-triton"
_OLD_STUB = _OLD / "pytriton/tritonserver/python_backend_stubs" / f"3.{sys.version_info.minor}"


@dataclass(frozen=True, slots=True)
class Row:
    """What one such request does: what its client sees, and by how much the counters grow."""

    client: str
    success: str
    failure: str
    trace: str


def rows(heading: str) -> Mapping[str, Row]:
    """Return the measured rows below a heading of the page."""
    section = _PAGE.partition(f"### {heading}")[2].partition("\n### ")[0]
    cells = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in section.splitlines()
        if line.startswith("| ")
    ]
    return {what: Row(*counted) for what, *counted, _ in cells[1:]}


NEW, OLD = rows("Measured on Triton 2.51"), rows("Measured on Triton 2.41")

_MODEL = """
import os
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        value = float(x[0, 0])
        if value == -1:
            raise RuntimeError("raised")
        if value == -2:
            return pb_utils.InferenceResponse([], error=pb_utils.TritonError("answered"))
        if value == -3:
            os._exit(1)
        if value == -4:
            return None
        if value == -5:
            return pb_utils.InferenceResponse([])
        time.sleep(value)
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)])
"""
_CALLER = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "X")
        inner = pb_utils.InferenceRequest(model_name="plain", requested_output_names=["Y"], inputs=[x])
        inner.exec().has_error()
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", x.as_numpy())])
"""
_STREAM = """
import threading
import time

import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            self.answer(request)

    def answer(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        value, sender = float(x[0, 0]), request.get_response_sender()
        good = pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)])
        bad = pb_utils.InferenceResponse([], error=pb_utils.TritonError("answered"))
        if value in (-3, -4):
            sender.send(good)
        if value in (-1, -4):
            raise RuntimeError("raised")
        if value == -5:
            later = lambda: (time.sleep(0.1), sender.send(bad, flags=FINAL))
            threading.Thread(target=later).start()
        elif value == -6:
            sender.send(flags=FINAL)
        else:
            sender.send(bad if value in (-2, -3) else good, flags=FINAL)
"""
_TENSORS = """max_batch_size: 1
input [{ name: "X" data_type: TYPE_FP32 dims: [ 1 ] }]
output [{ name: "Y" data_type: TYPE_FP32 dims: [ 1 ] }]
"""
_PYTHON = f'backend: "python"\n{_TENSORS}instance_group [{{ kind: KIND_CPU count: 1 }}]\n'
_DECOUPLED = "model_transaction_policy { decoupled: true }\n"
_FIRST = "priority_queue_policy { key: 1 value { max_queue_size: 1 } }"
_LEVELS = f"priority_levels: 2 default_priority_level: 1 {_FIRST}"
_TIMEOUT = "default_queue_policy {{ timeout_action: {} default_timeout_microseconds: 50000 }}"
_MODELS = {
    "plain": (_MODEL, ""),
    "dying": (_MODEL, ""),
    "tight": (_MODEL, "dynamic_batching { default_queue_policy { max_queue_size: 1 } }\n"),
    "ranked": (_MODEL, f"dynamic_batching {{ {_LEVELS} }}\n"),
    "reject": (_MODEL, f"dynamic_batching {{ {_TIMEOUT.format('REJECT')} }}\n"),
    "delay": (_MODEL, f"dynamic_batching {{ {_TIMEOUT.format('DELAY')} }}\n"),
    "cached": (_MODEL, "response_cache { enable: true }\n"),
    "sequence": (_MODEL, "sequence_batching { max_sequence_idle_microseconds: 60000000 }\n"),
    "caller": (_CALLER, ""),
    "stream": (_STREAM, _DECOUPLED),
}
_ENSEMBLES = {"of_plain": "plain", "of_tight": "tight", "of_reject": "reject", "of_stream": "stream"}


def write_models(repository: Path) -> None:
    for name, (code, more) in _MODELS.items():
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "1" / "model.py").write_text(code)
        (repository / name / "config.pbtxt").write_text(_PYTHON + more)
    for name, step in _ENSEMBLES.items():
        (repository / name / "1").mkdir(parents=True)
        maps = 'input_map { key: "X" value: "X" } output_map { key: "Y" value: "Y" }'
        steps = f'ensemble_scheduling {{ step [ {{ model_name: "{step}" model_version: -1 {maps} }} ] }}\n'
        more = _DECOUPLED if step == "stream" else ""
        (repository / name / "config.pbtxt").write_text(f'platform: "ensemble"\n{_TENSORS}{steps}{more}')


@dataclass(frozen=True, slots=True)
class TracedTriton:
    """A Triton whose every request is traced, and the exporter beside it."""

    server: TritonServer
    exporter: RunningExporter

    def http(
        self, name: str, value: float, *, timeout: float = 30, version: str = "", body: object = None
    ) -> str:
        """Send a request; return its status. `body` replaces all of it, as text or as what becomes JSON."""
        sent = body if isinstance(body, str) else json.dumps(body or asking(value))
        url = f"{self.server.http_url}/v2/models/{name}{version}/infer"
        try:
            answer = requests.post(url, data=sent, timeout=timeout)
        except requests.Timeout:
            return "no answer"
        empty = answer.status_code == 200 and not answer.json()["outputs"] and name == "cached"
        return f"{answer.status_code}{' without outputs' if empty else ''}"

    def rpc(self, model: str, value: float, cancel_after: float | None = None) -> str:
        """Send a request over gRPC; return its status."""
        ended: list[str] = []
        done = threading.Event()

        def take(result: object, error: grpc.InferenceServerException | None) -> None:
            ended.append("200" if error is None else str(error.status()).removeprefix("StatusCode."))
            done.set()

        with grpc.InferenceServerClient(f"127.0.0.1:{self.server.ports.grpc}") as client:
            call = client.async_infer(model, [_input(value)], take)
            if cancel_after is None:
                assert done.wait(30)
                return ended[0]
            time.sleep(cancel_after)
            call.cancel()
        return "cancelled"

    def stream(self, model: str, value: float) -> str:
        """Return what comes of a stream until it ends."""
        parts: list[str] = []
        done = threading.Event()

        def take(result: grpc.InferResult | None, error: object) -> None:
            if error or result is None:
                parts.append("error")
                done.set()
                return
            answer = result.get_response()
            if answer.outputs:
                parts.append("response")
            if answer.parameters["triton_final_response"].bool_param:
                parts.append("end")
                done.set()

        with grpc.InferenceServerClient(f"127.0.0.1:{self.server.ports.grpc}") as client:
            client.start_stream(take)
            client.async_stream_infer(model, [_input(value)], enable_empty_final_response=True)
            assert done.wait(30)
            client.stop_stream()
        return ", ".join(parts)

    def counts(self, name: str) -> Counter[str]:
        """Return what the page shows of a model: successes, failures by reason, and traces by outcome."""
        page, counted = self.exporter.scrape(), Counter[str]()
        labels = {"model": name, "version": "1"}
        counted["success"] = int(page.value(triton.REQUEST_SUCCESS, **labels) or 0)
        for reason in ("", "BACKEND", "OTHER", "REJECTED", "CANCELED"):
            by_reason = {"reason": reason} if reason else {}
            failed = int(page.value(triton.REQUEST_FAILURE, **labels, **by_reason) or 0)
            counted[f"failure {reason}".strip()] = failed
        for outcome in OUTCOMES:
            counted[outcome] = int(page.value(state.TRACED_REQUESTS, **labels, outcome=outcome) or 0)
        return counted


def asking(value: float, **changed: object) -> dict[str, object]:
    """Return the body of a request, whose tensor may be changed."""
    tensor = {"name": "X", "shape": [1, 1], "datatype": "FP32", "data": [value]}
    return {"inputs": [{**tensor, **changed}]}


def _input(value: float) -> grpc.InferInput:
    tensor = grpc.InferInput("X", [1, 1], "FP32")
    return tensor.set_data_from_numpy(np.array([[value]], np.float32))


Statuses = Sequence[str]
Send = Callable[[TracedTriton], Statuses]


def each(status: Callable[[TracedTriton], str]) -> Send:
    """Send it twice, one after the other."""
    return lambda traced: [status(traced) for _ in range(2)]


def at_once(number: int, status: Callable[[TracedTriton], str]) -> Send:
    """Send some together; the queue takes one, and one is executed meanwhile."""

    def send(traced: TracedTriton) -> Statuses:
        with ThreadPoolExecutor(number) as pool:
            return list(pool.map(lambda _: status(traced), range(number)))

    return send


def behind(name: str, blockers: int, status: Callable[[TracedTriton], str]) -> Send:
    """Send one while others keep the model busy."""

    def send(traced: TracedTriton) -> Statuses:
        with ThreadPoolExecutor(blockers) as pool:
            busy = []
            for _ in range(blockers):
                busy.append(pool.submit(traced.http, name, 1.0))
                time.sleep(0.1)
            mine = status(traced)
            return [*(answer.result() for answer in busy), mine]

    return send


def after_a_failure(traced: TracedTriton) -> Statuses:
    """Let the cache store a failed request before the counters are read."""
    return [traced.http("cached", -1) for _ in range(2)]


Action = tuple[str, Send]
"""The model whose counters are read, and how requests are sent."""
ACTIONS: Mapping[str, Action] = {
    "Python model raises in `execute`": ("plain", each(lambda client: client.http("plain", -1))),
    "Python model answers `InferenceResponse(error=...)`": (
        "plain",
        each(lambda client: client.http("plain", -2)),
    ),
    "the same, over gRPC": ("plain", each(lambda client: client.rpc("plain", -2))),
    "Python model returns `None` for a request": (
        "plain",
        each(lambda client: client.http("plain", -4, timeout=1)),
    ),
    "Python model leaves out an output": ("plain", each(lambda client: client.http("plain", -5))),
    "Python model's process has died": ("dying", each(lambda client: client.http("dying", -3))),
    "stream: raises before a response": ("stream", each(lambda client: client.stream("stream", -1))),
    "stream: answers with an error": ("stream", each(lambda client: client.stream("stream", -2))),
    "stream: a response, then an error": ("stream", each(lambda client: client.stream("stream", -3))),
    "stream: a response, then raises": ("stream", each(lambda client: client.stream("stream", -4))),
    "stream: a thread answers with an error later": (
        "stream",
        each(lambda client: client.stream("stream", -5)),
    ),
    "stream: ends without a response": ("stream", each(lambda client: client.stream("stream", -6))),
    "ensemble: a step raises": ("of_plain", each(lambda client: client.http("of_plain", -1))),
    "ensemble: a step answers with an error": ("of_plain", each(lambda client: client.http("of_plain", -2))),
    "ensemble: the queue of a step is full": (
        "of_tight",
        at_once(6, lambda client: client.http("of_tight", 0.5)),
    ),
    "ensemble: a step times out in its queue": (
        "of_reject",
        at_once(4, lambda client: client.http("of_reject", 0.5)),
    ),
    "ensemble: a streaming step answers with an error": (
        "of_stream",
        each(lambda client: client.stream("of_stream", -2)),
    ),
    "BLS: the called model fails, the caller answers": (
        "caller",
        each(lambda client: client.http("caller", -2)),
    ),
    "the queue is full": ("tight", at_once(6, lambda client: client.http("tight", 0.5))),
    "the queue is full, over gRPC": ("tight", at_once(6, lambda client: client.rpc("tight", 0.5))),
    "the queue of a priority level is full": (
        "ranked",
        at_once(6, lambda client: client.http("ranked", 0.5)),
    ),
    "queue timeout, action REJECT": ("reject", at_once(4, lambda client: client.http("reject", 0.5))),
    "queue timeout, action DELAY": ("delay", at_once(4, lambda client: client.http("delay", 0.5))),
    "client cancels over HTTP": (
        "plain",
        lambda client: [client.http("plain", 1, timeout=0.3).replace("no answer", "cancelled")],
    ),
    "client cancels over gRPC while the model executes": (
        "plain",
        lambda client: [client.rpc("plain", 1, cancel_after=0.3)],
    ),
    "client cancels over gRPC, waiting in a dynamic batcher": (
        "delay",
        behind("delay", 2, lambda client: client.rpc("delay", 0, cancel_after=0.3)),
    ),
    "client cancels over gRPC, waiting without one": (
        "plain",
        behind("plain", 1, lambda client: client.rpc("plain", 0, cancel_after=0.3)),
    ),
    "response cache: an answer after a failed request": ("cached", after_a_failure),
    "wrong shape": (
        "plain",
        each(lambda client: client.http("plain", 0, body=asking(0, shape=[1, 3], data=[1, 2, 3]))),
    ),
    "wrong datatype": (
        "plain",
        each(lambda client: client.http("plain", 0, body=asking(0, datatype="INT32"))),
    ),
    "batch too large": (
        "plain",
        each(lambda client: client.http("plain", 0, body=asking(0, shape=[3, 1], data=[1, 2, 3]))),
    ),
    "missing input": ("plain", each(lambda client: client.http("plain", 0, body={"inputs": []}))),
    "unknown output": (
        "plain",
        each(lambda client: client.http("plain", 0, body=asking(0) | {"outputs": [{"name": "Z"}]})),
    ),
    "malformed JSON": ("plain", each(lambda client: client.http("plain", 0, body="{"))),
    "unknown version of a model": (
        "plain",
        each(lambda client: client.http("plain", 0, version="/versions/9")),
    ),
    "sequence without its start": (
        "sequence",
        each(lambda client: client.http("sequence", 0, body=asking(0) | {"parameters": {"sequence_id": 7}})),
    ),
    "streaming model, over HTTP": ("stream", each(lambda client: client.http("stream", 0))),
    "unknown or unloaded model": ("gone", each(lambda client: client.http("gone", 0))),
}


def test_every_row_of_the_page_is_measured() -> None:
    """Every row has a way to measure it, and every measured row is on the page."""
    assert set(ACTIONS) == set(NEW)
    assert set(OLD) <= set(ACTIONS)


@contextmanager
def traced(directory: Path, *arguments: str) -> Iterator[TracedTriton]:
    write_models(directory / "models")
    (port,) = free_ports(1)
    wheel = importlib.util.find_spec("pytriton")
    assert wheel is not None
    assert wheel.origin is not None
    caches = Path(wheel.origin).parent / "tritonserver" / "caches"
    given = ["--load-model=*", f"--cache-directory={caches}", "--cache-config=local,size=1048576"]
    given += ["--trace-config=mode=opentelemetry", "--trace-config=level=TIMESTAMPS", "--trace-config=rate=1"]
    given += [f"--trace-config=opentelemetry,url=http://127.0.0.1:{port}/v1/traces", *arguments]
    with live_triton(directory / "models", directory, "explicit", given) as server:
        listen = ("127.0.0.1", port)
        with exporting(server.http_url, server.metrics_url, otlp_listen=listen) as exporter:
            models = (*_MODELS, *_ENSEMBLES)
            exporter.wait(
                lambda page: all(page.value(state.MODEL_READY, model=name, version="1") for name in models)
            )
            yield TracedTriton(server, exporter)


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TracedTriton]:
    arguments = "--trace-config=opentelemetry,bsp_schedule_delay=200"
    with traced(tmp_path_factory.mktemp("uncounted"), arguments) as started:
        yield started


@pytest.mark.parametrize("what", NEW)
def test_triton_counts_what_the_page_states(new: TracedTriton, what: str) -> None:
    """Triton 2.51: client, counters, statistics and traces of each way to fail."""
    assert_counted(new, NEW[what], *ACTIONS[what])


def test_python_streams_have_no_statistics_by_response(new: TracedTriton) -> None:
    """Triton 2.51: for any responses of a stream, the statistics by response stay empty."""
    assert "response, error" == new.stream("stream", -3)
    [statistics] = requests.get(f"{new.server.http_url}/v2/models/stream/stats", timeout=5).json()[
        "model_stats"
    ]

    assert not statistics["response_stats"]


@pytest.mark.thorough
@pytest.mark.skipif(not _OLD_STUB.is_dir(), reason="no older Triton for this Python; try: make tools-next")
def test_an_older_triton_counts_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton 2.41: the rows that the page has of it."""
    monkeypatch.syspath_prepend(_OLD)
    with traced(tmp_path) as old:
        for what, row in OLD.items():
            assert_counted(old, row, *ACTIONS[what])


def assert_counted(traced: TracedTriton, row: Row, name: str, send: Send) -> None:
    """Check the row's failed statuses, and the growth of each of its counters."""
    if name == "cached":
        send(traced)
        eventually(lambda: traced.counts(name)["not_executed"], "no trace of a cache hit")
    before = traced.counts(name)
    statuses = send(traced)
    fine = [] if row.client.startswith("200") else [status for status in statuses if status == "200"]
    failed = [status for status in statuses if status not in fine]
    assert failed
    assert {row.client} == set(failed)
    if name == "plain" and row.client != "no answer":  # what comes later shows that nothing is counted late
        assert "200" == traced.http("plain", 0)
        fine.append("200")
    assert_grown(traced, row, name, before, len(failed), len(fine))


def assert_grown(
    traced: TracedTriton, row: Row, name: str, before: Counter[str], failed: int, fine: int
) -> None:
    expected = before + Counter()
    expected.update({"success": fine + failed * int(row.success), "completed": fine})
    number, _, reason = row.failure.partition(" ")
    expected[f"failure {reason}".strip()] += failed * int(number)
    if row.trace != "none":
        expected[row.trace] += failed
    seen: list[Counter[str]] = []

    def as_expected() -> bool:
        seen.append(traced.counts(name))
        return grown(before, seen[-1]) == grown(before, expected)

    eventually(as_expected, lambda: f"{grown(before, expected)}, but {grown(before, seen[-1])}")


def grown(before: Counter[str], after: Counter[str]) -> dict[str, int]:
    return {name: after[name] - before[name] for name in {*after, *before} if after[name] != before[name]}
