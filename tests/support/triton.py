"""A real Triton for the length of a block, and the request that the models of `support.repository` answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import requests

from tritonwatch.local.triton import TritonPorts, TritonServer, free_ports

REQUEST = {"inputs": [{"name": "X", "shape": [1, 1], "datatype": "FP32", "data": [1.0]}]}


@contextmanager
def live_triton(
    repository: Path,
    directory: Path,
    control: str = "none",
    arguments: Sequence[str] = (),
    ports: TritonPorts | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[TritonServer]:
    """Run a Triton that is live until the block ends; then it is killed, as a graceful end takes 3 s."""
    chosen = ports or TritonPorts(*free_ports(3))
    server = TritonServer(repository, directory, chosen, control, arguments, environment=environment or {})
    try:
        server.start()
        server.wait_live()
        yield server
    finally:
        server.kill()


def infer(server: TritonServer, model: str, version: str = "") -> int:
    """HTTP status of one inference, of the version that Triton chooses if none is given."""
    chosen = f"/versions/{version}" if version else ""
    url = f"{server.http_url}/v2/models/{model}{chosen}/infer"
    return requests.post(url, json=REQUEST, timeout=30).status_code


def control(server: TritonServer, action: str, model: str, /, **parameters: object) -> int:
    """HTTP status of a `load` or `unload`."""
    url = f"{server.http_url}/v2/repository/models/{model}/{action}"
    return requests.post(url, json={"parameters": parameters}, timeout=60).status_code
