"""Test what each part between client and model counts of known failures, against docs/gateways.md."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import grpc  # type: ignore[import-untyped]
import pytest
import requests
from prometheus_client import CollectorRegistry
from py_grpc_prometheus.prometheus_client_interceptor import PromClientInterceptor  # type: ignore[import-untyped]
from tritonclient.grpc import service_pb2, service_pb2_grpc  # type: ignore[import-untyped]

from slo.answering import HIDDEN, RAISED, REFUSED, post, write_models
from slo.envoy import ENVOY, envoy, envoy_counters
from slo.nginx import NGINX, nginx
from support.exporter import RunningExporter, ScrapedPage, exporting
from support.loopback import free_ports
from support.tools import ROOT
from support.triton import live_triton
from support.waiting import eventually
from triton_exporter.catalogue import state, triton
from triton_exporter.catalogue.external import gateway
from triton_exporter.tracing.trace import OUTCOMES

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not (ENVOY.exists() and NGINX.exists()), reason="no Envoy or no nginx"),
]
SOURCES = ("clients", "nginx", "Envoy", "gRPC client", "Triton's counters", "summary", "traces")
LONG = 20.0
"""An input for which the model takes 2 s."""


@dataclass(frozen=True)
class Chain:
    """Clients -> nginx -> Envoy -> Triton <- exporter, and gRPC clients straight to Triton."""

    url: str
    log: Path
    admin: str
    exporter: RunningExporter
    stub: service_pb2_grpc.GRPCInferenceServiceStub
    registry: CollectorRegistry
    clients: Counter[str]

    def http(self, value: float, model: str = "mixed", timeout: float = 9.0) -> None:
        """One request through both proxies."""
        try:
            self.clients[str(post(self.url, model, value, timeout))] += 1
        except requests.Timeout:
            self.clients["cancelled"] += 1

    def rpc(self, value: float, timeout: float = 9.0) -> None:
        """Send the request over gRPC."""
        request = service_pb2.ModelInferRequest(model_name="mixed")
        tensor = request.inputs.add(name="X", datatype="FP32", shape=[1, 1])
        tensor.contents.fp32_contents.append(value)
        try:
            self.stub.ModelInfer(request, timeout=timeout)
            self.clients["OK"] += 1
        except grpc.RpcError as error:
            self.clients[error.code().name] += 1

    def counted(self) -> Mapping[str, Counter[str]]:
        """Return what each source has counted until now, by its own labels."""
        page, model = self.exporter.scrape(), {"model": "mixed", "version": "1"}
        counts = {source: Counter[str]() for source in SOURCES}
        counts["clients"] = Counter(self.clients)
        counts["nginx"] = Counter(json.loads(line)["status"] for line in self.log.read_text().splitlines())
        for key, count in envoy_counters(self.admin).items():
            counts["Envoy"][key.split()[1]] += count
        for metric in self.registry.collect():
            for sample in metric.samples:
                if sample.name == str(gateway.GRPC_CLIENT_REQUESTS):
                    counts["gRPC client"][sample.labels["grpc_code"]] += int(sample.value)
        counters = counts["Triton's counters"]
        counters["success"] = int(page.value(triton.REQUEST_SUCCESS, **model) or 0)
        for reason in ("BACKEND", "OTHER", "REJECTED", "CANCELED"):
            counters[reason] = int(page.value(triton.REQUEST_FAILURE, **model, reason=reason) or 0)
        counts["summary"]["observed"] = int(page.value(triton.REQUEST_SUMMARY_US.count, **model) or 0)
        for outcome in OUTCOMES:
            counts["traces"][outcome] = int(page.value(state.TRACED_REQUESTS, **model, outcome=outcome) or 0)
        return counts


def repeat(count: int, send: Callable[..., None], *given: object) -> None:
    """Send requests, one after the other."""
    for _ in range(count):
        send(*given)


def rejected(chain: Chain, send: Callable[[float], None]) -> None:
    """Fill the model and its queue with two long requests; four more are rejected at once."""
    senders = [threading.Thread(target=send, args=(LONG,)) for _ in range(2)]
    for sender in senders:
        sender.start()
        time.sleep(0.2)
    for _ in range(4):
        send(0.0)
    for sender in senders:
        sender.join()


def cancelled(send: Callable[..., None]) -> None:
    """Wait half of the time that the model takes, one request after the other; a busy server begins it in time."""
    for _ in range(5):
        send(8.0, timeout=0.4)
        time.sleep(0.6)


ACTIONS: Mapping[str, Callable[[Chain], object]] = {
    "20 requests that are answered": lambda chain: repeat(20, chain.http, 0.0),
    "10 requests that the model answers with an error response": lambda chain: repeat(10, chain.http, HIDDEN),
    "10 requests in which the model raises an exception": lambda chain: repeat(10, chain.http, RAISED),
    "10 requests that the model rejects as invalid": lambda chain: repeat(10, chain.http, REFUSED),
    "2 requests that fill the queue, 4 rejected": lambda chain: rejected(chain, chain.http),
    "5 requests that the client cancels": lambda chain: cancelled(chain.http),
    "5 requests to a server that is down": lambda chain: repeat(5, chain.http, 0.0, "gone"),
    "gRPC: 20 requests that are answered": lambda chain: repeat(20, chain.rpc, 0.0),
    "gRPC: 10 requests that the model answers with an error response": lambda chain: repeat(
        10, chain.rpc, HIDDEN
    ),
    "gRPC: 10 requests in which the model raises an exception": lambda chain: repeat(10, chain.rpc, RAISED),
    "gRPC: 10 requests that the model rejects as invalid": lambda chain: repeat(10, chain.rpc, REFUSED),
    "gRPC: 2 requests that fill the queue, 4 rejected": lambda chain: rejected(chain, chain.rpc),
    "gRPC: 5 requests with a deadline that is too short": lambda chain: cancelled(chain.rpc),
}


@contextmanager
def chain(directory: Path) -> Iterator[Chain]:
    """Start all of it, every request traced."""
    write_models(directory / "models", "mixed")
    (port,) = free_ports(1)
    trace = ("mode=opentelemetry", "level=TIMESTAMPS", "rate=1", "opentelemetry,bsp_schedule_delay=200")
    given = [f"--trace-config={setting}" for setting in trace]
    given += [f"--trace-config=opentelemetry,url=http://127.0.0.1:{port}/v1/traces"]
    given += ["--metrics-config=summary_latencies=true"]
    registry = CollectorRegistry()
    with (
        live_triton(directory / "models", directory, arguments=given) as server,
        exporting(server.http_url, server.metrics_url, otlp_listen=("127.0.0.1", port)) as exporter,
        envoy(server.http_url, directory, ("mixed", "gone")) as (proxy, admin),
        nginx(proxy, directory, gone=proxy) as (url, log),
        grpc.insecure_channel(f"127.0.0.1:{server.ports.grpc}") as channel,
    ):
        exporter.wait(lambda page: page.value(state.MODEL_READY, model="mixed", version="1"))
        stub = service_pb2_grpc.GRPCInferenceServiceStub(
            grpc.intercept_channel(channel, PromClientInterceptor(registry=registry))
        )
        yield Chain(url, log, admin, exporter, stub, registry, Counter())


def rows() -> Mapping[str, str]:
    """Return the page's row of each action, as one line."""
    page = (ROOT / "docs" / "gateways.md").read_text()
    section = page.partition("## Example: the same requests counted by each source")[2].partition("\n## ")[0]
    lines = [line.strip("| ") for line in section.splitlines() if line.startswith("| ")]
    heading, *body = (line.split(" | ") for line in lines)
    assert SOURCES == tuple(heading[1:])
    return {what: " | ".join(cells) for what, *cells in body}


def words(counted: Counter[str]) -> str:
    """`4 503, 2 200`; a dash for nothing."""
    return ", ".join(f"{count} {what}" for what, count in sorted(counted.items()) if count) or "-"


def test_each_source_counts_what_the_page_states(tmp_path: Path) -> None:
    """Every row, measured once more: the proxies and the clients' library count what the clients saw."""
    expected = rows()
    assert expected.keys() == ACTIONS.keys()
    with chain(tmp_path) as sources:
        for what, send in ACTIONS.items():
            before = sources.counted()
            send(sources)
            seen = [""]

            def as_expected(cells: str, before: Mapping[str, Counter[str]], seen: list[str]) -> bool:
                after = sources.counted()
                seen.append(" | ".join(words(after[source] - before[source]) for source in SOURCES))
                return seen[-1] == cells

            eventually(
                partial(as_expected, expected[what], before, seen),
                partial(lambda what, seen: f"{what}: {expected[what]}, but {seen[-1]}", what, seen),
            )

        def in_the_histogram(page: ScrapedPage) -> bool:
            series = page.series(state.REQUEST_DURATION.count)
            return sum(series.values()) == page.value(triton.REQUEST_SUCCESS, model="mixed", version="1")

        sources.exporter.wait(in_the_histogram)
