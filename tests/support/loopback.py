"""Servers on loopback for the length of a block: one of this process in a thread, or a program."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from socketserver import BaseServer
from typing import TypeVar

import requests

from support.waiting import eventually

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


@contextmanager
def started(command: Sequence[object], url: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program until the block ends, which begins when the URL is answered with 200."""
    with log.open("ab") as file:
        process = subprocess.Popen([str(word) for word in command], stdout=file, stderr=file)
    try:
        eventually(
            lambda: process.poll() is not None or requests.get(url, timeout=5).status_code == 200,
            f"{url} never answered 200, see {log}",
            90,
        )
        assert process.poll() is None, f"it ended: {log.read_text(errors='replace')[-2000:]}"
        yield process
    finally:
        process.terminate()
        process.wait(60)


def until_answers(url: str) -> None:
    """Ask until the answer is 200; fails if it never is."""
    eventually(lambda: requests.get(url, timeout=5).status_code == 200, f"{url} never answered 200")
