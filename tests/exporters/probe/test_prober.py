"""Test the load of the prober on a server: seldom, one at a time, never a burst, and marked as probes."""

from __future__ import annotations

import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from exporters.faults import body, faulty
from support.waiting import eventually
from triton_exporter.catalogue import probe
from triton_exporter.http.certificates import Certificates
from triton_exporter.lifecycle.tracker import Lifecycle
from triton_exporter.probe.payload import Tensor
from triton_exporter.probe.probe_settings import ProbeSettings
from triton_exporter.probe.prober import MAX_AT_ONCE, RETRY_SECONDS, ProbeOutcome, Prober
from triton_exporter.probe.send import PROBE_HEADER, REQUEST_ID, sender
from triton_exporter.snapshot import (
    IndexEntry,
    InputTensor,
    ModelConfig,
    ModelStatistics,
    ModelVersion,
    Snapshot,
)

INTERVAL = 30.0
_TENSOR = Tensor("X", "FP32", (1, 1), None)


class ProbedModels:
    """A prober over ready models, whose probes end when the test ends them."""

    def __init__(self, models: int, jitter: Callable[[], float], *, hold: bool = False) -> None:
        self.sent: Counter[str] = Counter()
        self.most = 0
        self.most_of_a_model = 0
        self.release = threading.Event()
        self._now: Counter[str] = Counter()
        self._lock = threading.Lock()
        if not hold:
            self.release.set()
        settings = ProbeSettings(models=("*",), interval_seconds=INTERVAL)
        self.outcome = ProbeOutcome("success", 0.01)
        self.lifecycle = Lifecycle()
        self.prober = Prober(settings, self.lifecycle, self._send, jitter)
        self._names = [f"m{number}" for number in range(models)]
        self.observe(0.0)

    def observe(self, at: float, successes: int = 0) -> None:
        """Show the prober that all models are ready, and how many requests each has answered."""
        self.prober.observe_snapshot(
            Snapshot(
                at,
                live=True,
                index=tuple(IndexEntry(name, "1", "READY") for name in self._names),
                statistics=tuple(ModelStatistics(name, "1", success=successes) for name in self._names),
                configs={
                    ModelVersion(name, "1"): ModelConfig(name, inputs=(InputTensor("X", "FP32", (1,)),))
                    for name in self._names
                },
            )
        )

    def poll(self, now: float) -> Counter[str]:
        """Start due probes, and wait for their end unless probes are blocked; return how often each was probed."""
        self.prober.poll(now)
        if self.release.is_set():
            self.wait_for_end()
        return self.sent

    def wait_for_end(self) -> None:
        """Wait until no probe is in flight."""
        eventually(lambda: not self.prober._in_flight, "no probe is in flight")

    def _send(self, target: ModelVersion, _inputs: Sequence[Tensor], _decoupled: bool) -> ProbeOutcome:
        with self._lock:
            self.sent[target.model] += 1
            self._now[target.model] += 1
            self.most = max(self.most, self._now.total())
            self.most_of_a_model = max(self.most_of_a_model, self._now[target.model])
        assert self.release.wait(10)
        with self._lock:
            self._now[target.model] -= 1
        return self.outcome


@pytest.mark.parametrize(("jitter", "first", "again"), [(0.0, 0.0, 27.0), (0.5, 1.0, 30.0), (1.0, 2.0, 33.0)])
def test_a_model_is_probed_once_an_interval_give_or_take_a_tenth(
    jitter: float, first: float, again: float
) -> None:
    """Jitter spreads the first probe over two seconds, and each later one over 90 % to 110 % of the interval."""
    probed = ProbedModels(1, lambda: jitter)

    assert 0 == probed.poll(first - 0.01)["m0"]
    assert 1 == probed.poll(first)["m0"]
    assert 1 == probed.poll(first + again - 0.01)["m0"]
    assert 2 == probed.poll(first + again)["m0"]


def test_a_failed_probe_is_repeated_within_three_seconds_and_an_unproven_one_is_not() -> None:
    """Input that has worked is tried again soon; input that has never worked waits for its interval."""
    probed = ProbedModels(1, lambda: 0.5)
    probed.outcome = ProbeOutcome("failed", 0.01, "no")
    probed.poll(1.0)
    assert 1 == probed.poll(30.9)["m0"]
    assert {} == probed.lifecycle.failed_probes

    probed.outcome = ProbeOutcome("success", 0.01)
    assert 2 == probed.poll(31.0)["m0"]
    probed.outcome = ProbeOutcome("failed", 0.01, "no")
    assert 3 == probed.poll(61.0)["m0"]
    probed.observe(61.5)
    assert {"m0"} == {key.model for key in probed.lifecycle.failed_probes}
    assert 4 == probed.poll(61.0 + RETRY_SECONDS + 0.02)["m0"]


def test_an_outage_weighs_in_the_counter_as_long_as_it_lasts() -> None:
    """Each interval counts one probe, however often one that failed was repeated meanwhile."""
    probed = ProbedModels(1, lambda: 0.5)
    for second in range(1, 3001):
        failing = 1000 <= second < 1300
        probed.outcome = ProbeOutcome("failed" if failing else "success", 0.01)
        probed.poll(float(second))

    families = {str(family.metric): family for family in probed.prober.families(3000.0)}
    counted = [sample.value for sample in families[str(probe.REQUESTS)].samples]
    assert {"success": 90, "failed": 10} == {
        result: value for result, value in zip(probe.RESULTS, counted, strict=True) if value
    }
    assert 150 < probed.sent["m0"]
    probed.observe(3000.0)
    assert 60 < probed.lifecycle.probe_failures[ModelVersion("m0", "1")]


def test_a_dead_process_is_a_failure_though_no_probe_has_worked_before() -> None:
    """An exporter that starts after the process has died cannot have seen its input work."""
    probed = ProbedModels(1, lambda: 0.5)
    probed.outcome = ProbeOutcome("failed", 0.01, "[500] Stub process 'm0_0' is not healthy.")
    probed.poll(1.0)
    probed.observe(1.5)

    assert {"m0"} == {key.model for key in probed.lifecycle.failed_probes}


def test_requests_of_others_that_work_outweigh_a_failed_probe() -> None:
    """Probes that worked are not among them, and what stopped growing an interval ago does not count."""
    probed = ProbedModels(1, lambda: 0.5)
    probed.poll(1.0)
    probed.observe(2.0, successes=1)
    probed.outcome = ProbeOutcome("failed", 0.01, "no")
    probed.poll(31.0)
    probed.observe(32.0, successes=1)
    assert probed.lifecycle.failed_probes

    probed.observe(33.0, successes=2)
    assert {} == probed.lifecycle.failed_probes
    probed.observe(33.0 + INTERVAL + 1, successes=2)
    assert probed.lifecycle.failed_probes

    probed.observe(70.0, successes=0)
    probed.observe(71.0, successes=1)
    assert {} == probed.lifecycle.failed_probes


def test_a_model_never_has_two_probes_in_flight() -> None:
    """A probe that hangs delays the next one of its model, and of no other."""
    probed = ProbedModels(1, lambda: 0.0, hold=True)
    for now in (0.0, INTERVAL, 2 * INTERVAL):
        probed.poll(now)
    probed.release.set()
    probed.wait_for_end()

    assert 1 == probed.sent["m0"]
    assert 2 == probed.poll(3 * INTERVAL)["m0"]
    assert 1 == probed.most_of_a_model


def test_probes_of_a_thousand_models_are_spread_out() -> None:
    """All due at once: four are in flight, the others wait their turn, and each gets it."""
    probed = ProbedModels(40, lambda: 0.0, hold=True)
    probed.poll(0.0)
    probed.poll(0.1)
    held = probed.prober._in_flight
    probed.release.set()
    probed.wait_for_end()
    for tick in range(1, 10):
        probed.poll(tick / 10)

    assert MAX_AT_ONCE == held
    assert probed.most <= MAX_AT_ONCE
    assert {1} == set(probed.sent.values())
    assert 40 == len(probed.sent)


def test_a_probe_over_http_is_marked_as_a_probe() -> None:
    """Header and request id distinguish it from a user's request; headers of restricted endpoints are sent, too."""
    path = "/v2/models/m/versions/1/infer"
    with faulty({path: body(b'{"model_name":"m","model_version":"1","outputs":[]}')}) as target:
        send = sender(target.url, ProbeSettings(), {"admin-key": "one"}, Certificates())
        outcome = send(ModelVersion("m", "1"), [_TENSOR], False)
    ((method, asked, headers),) = target.requests

    assert "success" == outcome.result
    assert ("POST", path) == (method, asked)
    assert ("1", "one") == (headers[PROBE_HEADER], headers["admin-key"])


def test_a_probe_without_tls_reads_no_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading the roots of the system takes 20 ms of CPU, ten times what the probe itself takes."""
    read: list[object] = []
    monkeypatch.setattr(ssl, "create_default_context", lambda **files: read.append(files))
    send = sender("http://127.0.0.1:9", ProbeSettings(), {}, Certificates())

    assert "unreachable" == send(ModelVersion("m", "1"), [_TENSOR], False).result
    assert [] == read


def test_a_probe_over_grpc_is_marked_as_a_probe() -> None:
    """The same as metadata, and in the request itself."""
    with _grpc_server() as (address, seen):
        settings = ProbeSettings(grpc_address=address, timeout_seconds=2)
        sender("http://unused", settings, {"Admin-Key": "one"}, Certificates())(
            ModelVersion("m", "1"), [_TENSOR], True
        )

    assert {PROBE_HEADER: "1", "admin-key": "one"}.items() <= seen["metadata"].items()
    assert REQUEST_ID.encode() in seen["request"]


@contextmanager
def _grpc_server() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a gRPC server that keeps what a stream brings and ends it."""
    seen: dict[str, Any] = {}

    def stream(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        seen["metadata"] = dict(context.invocation_metadata())
        seen["request"] = next(requests)
        return iter(())

    class Handler(grpc.GenericRpcHandler):
        def service(self, _details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
            return grpc.stream_stream_rpc_method_handler(stream)

    with futures.ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool, handlers=[Handler()])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"127.0.0.1:{port}", seen
        finally:
            server.stop(None).wait()
