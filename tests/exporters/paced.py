"""Send requests to a sleeper at a pace that can change, and record their planned and measured durations."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from support.sleeper import sleep_request
from tritonwatch.local import TritonServer

SLOW, FAST = 0.4, 0.002


class Traffic:
    """Sends requests at random times until the block ends, one in twenty of them slow."""

    def __init__(self, server: TritonServer, model: str, per_second: float) -> None:
        self.per_second = per_second
        self.times: list[tuple[float, float]] = []  # seconds asked for, seconds taken
        self._server, self._model = server, model
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._send)

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _send(self) -> None:
        rng = random.Random(5)
        due = time.monotonic()
        with ThreadPoolExecutor(32) as pool:
            while not self._end.is_set():
                due += rng.expovariate(self.per_second)
                self._end.wait(max(0.0, due - time.monotonic()))
                pool.submit(self._request, SLOW if rng.random() < 0.05 else FAST)

    def _request(self, seconds: float) -> None:
        started = time.time()
        if sleep_request(self._server.http_url, self._model, [seconds], started) == 200:
            self.times.append((seconds, time.time() - started))
