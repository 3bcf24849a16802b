"""Servers on loopback: one of this process in a thread, and waiting for one that is another's."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from socketserver import BaseServer
from typing import TypeVar

import requests

_S = TypeVar("_S", bound=BaseServer)


@contextmanager
def served(server: _S) -> Iterator[_S]:
    """Serve in a thread until the block ends, then close."""
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def until_answers(url: str, timeout_seconds: float = 30.0) -> None:
    """Ask until the answer is 200; fails if it never is."""
    deadline = time.monotonic() + timeout_seconds
    while time.monotonic() < deadline:
        with suppress(requests.ConnectionError, requests.Timeout):
            if requests.get(url, timeout=5).status_code == 200:
                return
        time.sleep(0.05)
    raise AssertionError(f"{url} never answered 200")
