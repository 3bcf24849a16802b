"""Run servers on loopback for the duration of a block: one of this process in a thread, or a program."""

from __future__ import annotations

import json
import os
import random
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count, islice
from pathlib import Path
from socketserver import BaseServer
from typing import Any, TypeVar

import requests

from support.waiting import eventually
from tritonwatch.local import port_is_free

_S = TypeVar("_S", bound=BaseServer)


def _ports() -> Iterator[int]:
    """Ports below those that the kernel chooses: a share for each worker of pytest, beginning at a random one.

    One that was bound and given back to the kernel was at times another test's before its server took it.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 15
    first, begin = 11_500 + 1_000 * worker, random.randrange(1_000)
    return (first + (begin + step) % 1_000 for step in count())


_PORTS = _ports()


def free_ports(number: int) -> list[int]:
    """Ports of 127.0.0.1 that are free now, and that no other test is given while this one runs."""
    return list(islice(filter(port_is_free, _PORTS), number))


class Handler(BaseHTTPRequestHandler):
    """A request: its `command`, `path`, `headers` and `body()`; `reply` answers it."""

    # Headers and body are two segments: the second would wait 40 ms for the peer to acknowledge the first.
    disable_nagle_algorithm = True

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def reply(self, body: object = b"", status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """Answer with bytes, with a text, or with any other value as JSON."""
        text = isinstance(body, str | bytes)
        kind = "text/plain; version=0.0.4" if text else "application/json"
        content = body if isinstance(body, bytes) else str(body if text else json.dumps(body)).encode()
        self.send_response(status)
        own = {"Content-Type": kind, "Content-Length": str(len(content))}
        for name, value in {**own, **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


class HttpServer(ThreadingHTTPServer):
    """A server of `Handler`s, for `served`."""

    def __init__(self, handler: type[Handler], port: int = 0, host: str = "127.0.0.1") -> None:
        super().__init__((host, port), handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def answering(answer: Callable[[Handler], None] | str | Mapping[str, object], port: int = 0) -> Iterator[str]:
    """Answer every GET and POST until the block ends; yields the address.

    `answer` is a body for all, or is called with each request and calls its `reply`.
    """

    class Answering(Handler):
        def do_GET(self) -> None:
            answer(self) if callable(answer) else self.reply(answer)

        def do_POST(self) -> None:
            self.do_GET()

    with served(HttpServer(Answering, port)) as server:
        yield server.url


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
def started(
    command: Sequence[object], url: str, log: Path, probe: Mapping[str, Any] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program until the block ends, which begins when the URL is answered with 200.

    `probe` is what requests needs for that (verify, cert, auth).
    """
    with log.open("ab") as file:
        process = subprocess.Popen([str(word) for word in command], stdout=file, stderr=file)
    try:
        eventually(
            lambda: (
                process.poll() is not None or requests.get(url, timeout=5, **(probe or {})).status_code == 200
            ),
            f"{url} never answered 200, see {log}",
        )
        assert process.poll() is None, f"it ended: {log.read_text(errors='replace')[-2000:]}"
        yield process
    finally:
        process.terminate()
        process.wait(60)


def until_answers(url: str) -> None:
    """Ask until the answer is 200; fails if it never is."""
    eventually(lambda: requests.get(url, timeout=5).status_code == 200, f"{url} never answered 200")
