"""Test a real Envoy and clients with metrics before a real Triton: rules record what the clients counted."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import grpc  # type: ignore[import-untyped]
import pytest
import requests
from prometheus_client import CollectorRegistry, start_http_server
from py_grpc_prometheus.prometheus_client_interceptor import PromClientInterceptor  # type: ignore[import-untyped]
from tritonclient.grpc import service_pb2, service_pb2_grpc  # type: ignore[import-untyped]

from slo.answering import ROUND, SLOW, post, write_models
from slo.envoy import ENVOY, envoy, envoy_counters
from support import history
from support.loopback import free_ports
from support.triton import live_triton
from support.waiting import eventually
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.generate import artifacts
from triton_slo.objective.model import Objective
from triton_slo.prometheus import Prometheus
from triton_slo.server_access import Access
from tritonwatch.cli import main
from tritonwatch.local import TritonServer

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not ENVOY.exists(), reason="no wheel of Envoy for this machine"),
]

ROUNDS = 6
NEAR = 0.02
"""The first of six rounds may be scraped half-way: what a new series begins with is in no rate."""
LIMIT = 0.25
"""Threshold of latency in seconds."""
MODELS = ("mixed", "crowded", "left")
SOURCES = ("envoy", "envoy-virtual-cluster", "grpc-client", "otel-http-client")
CLIENT = """
import sys, time
import requests
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.instrumentation.requests import RequestsInstrumentor
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import start_http_server

url, port, rounds, values = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), map(float, sys.argv[4:])
RequestsInstrumentor().instrument(meter_provider=MeterProvider([PrometheusMetricReader()]))
start_http_server(port, addr="127.0.0.1")
values = list(values)
for turn in range(rounds):
    if turn == 1:
        print("warm", flush=True)
        sys.stdin.readline()
    for value in values:
        tensor = {"name": "X", "shape": [1, 1], "datatype": "FP32", "data": [value]}
        began = time.monotonic()
        status = requests.post(url, json={"inputs": [tensor]}, timeout=9).status_code
        print(status, "slow" if time.monotonic() - began > 0.25 else "", flush=True)
print("done", flush=True)
sys.stdin.readline()
"""


def objectives() -> Iterator[Objective]:
    """Return both indicators of every source, and those of Triton's own counters."""
    yield Objective(name="triton", target=0.99, group_by=("model",), indicator="errors")
    for source in SOURCES:
        yield Objective(name=f"e-{source}", target=0.99, indicator={"kind": "errors", "source": source})
        latency = {"kind": "latency", "source": source, "threshold": "250ms"}
        yield Objective(name=f"l-{source}", target=0.99, indicator=latency)


@dataclass
class Counted:
    """What the clients counted, by source or model, and where to ask what the rules recorded."""

    prometheus: str
    statuses: dict[str, Counter[str]] = field(default_factory=dict)
    slow: dict[str, float] = field(default_factory=dict)
    """Share of the requests to `mixed` that took longer than LIMIT for the client: never less than the truth."""

    def keep(self, source: str, counted: Counter[str]) -> None:
        """Take over what a client counted."""
        self.slow[source] = counted.pop("slow", 0) / (ROUNDS * len(ROUND))
        self.statuses[source] = counted

    def ratio(self, slo: str, model: str = "mixed") -> float:
        """Return the recorded error ratio of the last five minutes."""
        with Prometheus(Access(self.prometheus)) as client:
            query = f'slo:sli_error:ratio_rate5m{{slo="{slo}", model="{model}"}}'
            (sample,) = eventually(lambda: client.instant(query), f"no ratio of {slo}")
        return sample.value


def over_http(url: str, warm: Callable[[], None]) -> Counter[str]:
    """Clients of all models through Envoy; after the first round they wait until it is scraped."""
    counted: Counter[str] = Counter()
    for turn in range(ROUNDS):
        for value in ROUND:
            began = time.monotonic()
            counted[f"mixed {post(url, 'mixed', value)}"] += 1
            counted["slow"] += time.monotonic() - began > LIMIT
        senders = [
            threading.Thread(target=lambda: counted.update([f"crowded {post(url, 'crowded', 2.0)}"]))
            for _ in range(6)
        ]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        counted[f"gone {post(url, 'gone', 0.0)}"] += 1
        counted[f"left {post(url, 'left', 0.0)}"] += 1
        if turn == 0:
            warm()
    with pytest.raises(requests.Timeout):
        post(url, "left", SLOW, timeout=0.1)
    return counted


def over_grpc(server: TritonServer, registry: CollectorRegistry, warm: Callable[[], None]) -> Counter[str]:
    """Return a client straight to Triton, with the interceptor for Prometheus."""
    interceptor = PromClientInterceptor(enable_client_handling_time_histogram=True, registry=registry)
    counted: Counter[str] = Counter()
    with grpc.insecure_channel(f"127.0.0.1:{server.ports.grpc}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(grpc.intercept_channel(channel, interceptor))
        for turn in range(ROUNDS):
            for value in ROUND:
                request = service_pb2.ModelInferRequest(model_name="mixed")
                tensor = request.inputs.add(name="X", datatype="FP32", shape=[1, 1])
                tensor.contents.fp32_contents.append(value)
                began = time.monotonic()
                try:
                    stub.ModelInfer(request, timeout=9)
                    counted["OK"] += 1
                except grpc.RpcError as error:
                    counted[error.code().name] += 1
                counted["slow"] += time.monotonic() - began > LIMIT
            if turn == 0:
                warm()
    return counted


def over_otel(url: str, port: int, warm: Callable[[], None]) -> Iterator[Counter[str]]:
    """Yield a client with OpenTelemetry's instrumentation, in a process that runs until the next turn."""
    arguments = [f"{url}/v2/models/mixed/infer", str(port), str(ROUNDS), *map(str, ROUND)]
    environment = {"OTEL_SEMCONV_STABILITY_OPT_IN": "http"}
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT, *arguments],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert client.stdin is not None
    assert client.stdout is not None
    counted: Counter[str] = Counter()
    try:
        for line in client.stdout:
            if line == "done\n":
                yield counted
                return
            if line == "warm\n":
                warm()
                client.stdin.write("\n")
                client.stdin.flush()
            else:
                counted.update(line.split())
    finally:
        client.kill()
        client.communicate()


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counted]:
    directory = tmp_path_factory.mktemp("stack")
    write_models(directory / "models", *MODELS)
    made = artifacts(list(objectives()), Options(scrape_interval_seconds=1))
    # Budgets are evaluated every four minutes; this test does not wait for them.
    rules = {
        artifact.name: artifact.text.replace("interval: 4m", "interval: 5s")
        for artifact in made
        if artifact.part == "rules"
    }
    grpc_port, otel_port = free_ports(2)
    registry = CollectorRegistry()
    server, thread = start_http_server(grpc_port, addr="127.0.0.1", registry=registry)
    with (
        live_triton(directory / "models", directory) as triton,
        envoy(triton.http_url, directory, (*MODELS, "gone")) as (url, admin),
    ):
        scraped = [
            {"targets": [triton.metrics_url.removeprefix("http://").partition("/")[0]]},
            {"targets": [admin], "labels": {"__metrics_path__": "/stats/prometheus"}},
            *(
                {"targets": [f"127.0.0.1:{port}"], "labels": {"model": "mixed"}}
                for port in (grpc_port, otel_port)
            ),
        ]
        (directory / "targets.json").write_text(json.dumps(scraped))
        with history.serve(
            "", directory / "p", rules=rules, targets=directory / "targets.json"
        ) as prometheus:
            counts = Counted(prometheus)

            def scrapes() -> None:
                """Wait for two scrapes of everything: of a new status the first is in no rate."""
                after = time.time() + 2.5
                with Prometheus(Access(prometheus)) as client:
                    eventually(lambda: client.instant(f"min(timestamp(up)) > {after}"), "not scraped")

            counts.keep("envoy", over_http(url, scrapes))
            counts.statuses["raw"] = envoy_counters(admin)
            counts.keep("grpc-client", over_grpc(triton, registry, scrapes))
            for statuses in over_otel(url, otel_port, scrapes):
                counts.keep("otel-http-client", statuses)
                scrapes()
                evaluated = f"min(timestamp(slo:sli_error:ratio_rate5m)) > {time.time()}"
                with Prometheus(Access(prometheus)) as client:
                    eventually(partial(client.instant, evaluated), "no rule is evaluated")
                yield counts
    server.shutdown()
    thread.join()
    server.server_close()


def failed(counted: Counter[str], *statuses: str) -> float:
    """Share of the answers that have one of these statuses."""
    return sum(counted[status] for status in statuses) / sum(counted.values())


@pytest.mark.parametrize(("source", "client"), [("envoy", "envoy"), ("envoy-virtual-cluster", "envoy")])
def test_errors_at_envoy_are_those_of_its_clients(counted: Counted, source: str, client: str) -> None:
    """Hidden errors, full queues and a lost server count; wrong requests and clients that give up do not.

    Envoy's counters are exact; of a burst, the rules miss what comes before the first scrape of a new status.
    """
    clients = counted.statuses[client]
    for model in ("mixed", "crowded", "left", "gone"):
        own = Counter(
            {key.split()[1]: count for key, count in clients.items() if key.startswith(f"{model} ")}
        )
        recorded = counted.ratio(f"e-{source}", model)
        near = NEAR if model == "mixed" else 0.07
        assert failed(own, "500", "503") == pytest.approx(recorded, abs=near), (model, own)
    assert clients == counted.statuses["raw"]
    assert clients["mixed 400"] == ROUNDS
    assert clients["crowded 503"] > 0
    assert clients["left 200"] == ROUNDS


def test_errors_that_libraries_count_are_those_of_their_clients(counted: Counted) -> None:
    """gRPC's INTERNAL, and 500 in the attribute of OpenTelemetry; INVALID_ARGUMENT and 400 are the client's own."""
    of_grpc, of_otel = counted.statuses["grpc-client"], counted.statuses["otel-http-client"]

    assert {"OK": 17, "INTERNAL": 2, "INVALID_ARGUMENT": 1} == {k: n / ROUNDS for k, n in of_grpc.items()}
    assert {"200": 17, "500": 2, "400": 1} == {k: n / ROUNDS for k, n in of_otel.items()}
    assert failed(of_grpc, "INTERNAL") == pytest.approx(counted.ratio("e-grpc-client"), abs=NEAR)
    assert failed(of_otel, "500") == pytest.approx(counted.ratio("e-otel-http-client"), abs=NEAR)


def test_triton_itself_counts_half_of_them(counted: Counted) -> None:
    """The model answers one in twenty with an error, which is a success in Triton's counters."""
    assert counted.ratio("triton") == pytest.approx(1 / 20, abs=0.01)


@pytest.mark.parametrize("source", SOURCES)
def test_slow_requests_are_those_of_the_clients(counted: Counted, source: str) -> None:
    """One in twenty takes 500 ms, in milliseconds or in seconds; with a status only those count that succeeded."""
    every = 17 if source == "otel-http-client" else 20
    seen = counted.slow.get(source, counted.slow["envoy"])

    # On a busy machine some more are slow, at the proxy or after it, and each of 120 is nearly a point.
    assert 1 / every - NEAR < counted.ratio(f"l-{source}") < seen * 20 / every + 2 * NEAR


def test_status_and_alerts_name_the_model(counted: Counted, capsys: pytest.CaptureFixture[str]) -> None:
    """A label of the proxy is the model's name everywhere: in the page that fires, and in the table."""
    firing = 'ALERTS{alertname="TritonErrorsBudgetBurn", slo="e-envoy", model="gone", tier="page_fast"}'
    with Prometheus(Access(counted.prometheus)) as client:
        eventually(lambda: client.instant(firing), "no page for the model that is gone")
        budget = f'{names.PERIOD_BUDGET_REMAINING}{{slo="e-envoy", model="gone"}}'
        eventually(lambda: client.instant(budget), "no budget of the model that is gone")
    main(["status", "--prometheus", counted.prometheus, "--json"])

    rows = {
        (group_statuse["slo"], group_statuse["group"]["model"]): group_statuse
        for group_statuse in json.loads(capsys.readouterr().out)["group_statuses"]
    }
    assert "burning" != rows["e-envoy", "left"]["state"]
    assert rows["e-envoy", "gone"]["state"] in ("burning", "exhausted")
