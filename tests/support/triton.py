"""Run a real Triton for the duration of a block, and send requests to the models of `support.repository`."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import requests

from support.exporter import RunningExporter, ScrapedPage, exporting
from support.loopback import free_ports
from support.repository import Repository
from support.waiting import eventually
from triton_exporter.catalogue import state
from tritonwatch.local import TritonPorts, TritonServer

REQUEST = {"inputs": [{"name": "X", "shape": [1, 1], "datatype": "FP32", "data": [1.0]}]}


@contextmanager
def live_triton(
    repository: Path,
    directory: Path,
    control: str = "none",
    arguments: Sequence[str] = (),
    ports: TritonPorts | None = None,
    environment: Mapping[str, str] | None = None,
    auto_complete: bool = False,
) -> Iterator[TritonServer]:
    """Run a Triton that is live until the block ends; then it is killed, because a graceful end takes 3 s.

    Tests of loads and reloads ask for `auto_complete`, which is slow and Triton's default.
    """
    chosen = ports or TritonPorts(*free_ports(3))
    server = TritonServer(
        repository,
        directory,
        chosen,
        control,
        arguments,
        environment=environment or {},
        auto_complete=auto_complete,
    )
    try:
        server.start()
        server.wait_live()
        yield server
    finally:
        server.kill()


def api_of(server: TritonServer, transport: str) -> str:
    """Address of its API over `http` or `grpc`; the same answers are expected of both."""
    return server.http_url if transport == "http" else f"grpc://{server.address}:{server.ports.grpc}"


@contextmanager
def over_both(server: TritonServer) -> Iterator[tuple[RunningExporter, RunningExporter]]:
    """Run an exporter that reads the API over HTTP, and one that reads it over gRPC."""
    with (
        exporting(server.http_url, server.metrics_url) as http,
        exporting(api_of(server, "grpc"), server.metrics_url) as grpc,
    ):
        yield http, grpc


def infer(server: TritonServer, model: str, version: str = "") -> int:
    """HTTP status of one inference, of the version that Triton chooses if none is given."""
    chosen = f"/versions/{version}" if version else ""
    url = f"{server.http_url}/v2/models/{model}{chosen}/infer"
    return requests.post(url, json=REQUEST, timeout=30).status_code


def drained(
    server: TritonServer, exporters: Sequence[RunningExporter], model: str
) -> list[tuple[ScrapedPage, str]]:
    """Stop a server while a model works; return each exporter's first page that shows it not live, and its phase."""
    for exporter in exporters:
        exporter.wait(lambda page: page.value(state.MODEL_READY, model=model, version="1"))
    worker = threading.Thread(target=infer_and_lose, args=(server, model))
    worker.start()
    eventually(lambda: Repository(server.repository).is_executing(model), f"{model} does not work")
    assert server.process is not None
    server.process.terminate()
    seen = []
    for exporter in exporters:
        page = exporter.wait(lambda page: page.value(state.SERVER_LIVE) == 0)
        seen.append((page, exporter.get("/state").json()["triton"]["phase"]))
    worker.join()
    return seen


def infer_and_lose(server: TritonServer, model: str) -> None:
    """Send an inference to a server that may close the connection before it answers."""
    with contextlib.suppress(requests.ConnectionError):
        infer(server, model)


def control(server: TritonServer, action: str, model: str, /, **parameters: object) -> int:
    """HTTP status of a `load` or `unload`."""
    url = f"{server.http_url}/v2/repository/models/{model}/{action}"
    return requests.post(url, json={"parameters": parameters}, timeout=60).status_code
