"""Traffic for the demo's models: real KServe v2 inferences over HTTP, from threads of this process."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import requests

from triton_exporter.http.client import model_path


@dataclass(frozen=True, slots=True)
class Flow:
    """Traffic of one model: `clients` threads, each pausing between its requests."""

    model: str
    version: str
    input_name: str
    shape: tuple[int, ...]
    clients: int
    pause_seconds: float

    @property
    def path(self) -> str:
        return f"{model_path(self.model, self.version)}/infer"

    @property
    def body(self) -> dict[str, object]:
        size = 1
        for dimension in self.shape:
            size *= dimension
        data = [((i % 7) - 3) / 4 for i in range(size)]
        return {
            "inputs": [{"name": self.input_name, "shape": list(self.shape), "datatype": "FP32", "data": data}]
        }


FLOWS: Sequence[Flow] = (
    Flow("embedder", "", "FEATURES", (2, 16), clients=3, pause_seconds=0.1),
    Flow("classifier", "1", "EMBEDDING", (1, 32), clients=1, pause_seconds=0.1),
    Flow("classifier", "2", "EMBEDDING", (1, 32), clients=1, pause_seconds=0.1),
    Flow("pipeline", "", "FEATURES", (1, 16), clients=1, pause_seconds=0.15),
    # Eight clients without pauses on an instance that serves ten requests a second: about 0.7 s in the queue.
    Flow("saturated", "", "X", (1,), clients=8, pause_seconds=0.0),
)


class LoadGenerator:
    """Sends the requests of every flow until stopped, also while Triton is down."""

    def __init__(self, base_url: str, flows: Sequence[Flow] = FLOWS) -> None:
        self._base_url = base_url
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._call, args=(flow,), name=f"load-{flow.model}", daemon=True)
            for flow in flows
            for _ in range(flow.clients)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop all clients, and wait for their last responses."""
        self._stop.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout=5)

    def _call(self, flow: Flow) -> None:
        with requests.Session() as session:
            session.trust_env = False  # a proxy of the user's must not see loopback traffic
            while not self._stop.is_set():
                try:
                    good = session.post(self._base_url + flow.path, json=flow.body, timeout=10).ok
                except requests.RequestException:
                    good = False
                self._stop.wait(flow.pause_seconds if good else 0.5)
