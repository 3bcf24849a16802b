"""Serve faults that no healthy Triton can be made to show."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

Answer = Callable[[socket.socket, threading.Event], None]
"""Write a response to a connection whose request has been read; the event is set when to stop."""


@dataclass
class FaultyServer:
    """What a running server answers, by path, and what it was asked: both may be read and changed."""

    port: int
    answers: dict[str, Answer] = field(default_factory=dict)
    requests: list[tuple[str, str, Mapping[str, str]]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def faulty(answers: Mapping[str, Answer]) -> Iterator[FaultyServer]:
    """Serve until the block ends. /v2 names Triton, any other path without an answer gets an empty 200."""
    stop = threading.Event()
    threads: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)
        server = FaultyServer(listener.getsockname()[1], {"/v2": body(b'{"name":"triton"}'), **answers})

        def accept() -> None:
            while not stop.is_set():
                try:
                    connection, _ = listener.accept()
                except TimeoutError:
                    continue
                thread = threading.Thread(target=_serve, args=(connection, server, stop))
                thread.start()
                threads.append(thread)

        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield server
        finally:
            stop.set()
            accepting.join()
            for thread in threads:
                thread.join()


def _serve(connection: socket.socket, server: FaultyServer, stop: threading.Event) -> None:
    with connection, suppress(OSError):
        connection.settimeout(0.1)
        request = b""
        while b"\r\n\r\n" not in request and not stop.is_set():
            try:
                chunk = connection.recv(65536)
            except TimeoutError:
                continue
            if not chunk:
                return
            request += chunk
        if b"\r\n\r\n" not in request:
            return
        head, *lines = request.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
        method, path, _ = head.split(" ", 2)
        server.requests.append((method, path, dict(line.split(": ", 1) for line in lines)))
        connection.settimeout(5)
        server.answers.get(path, body(b""))(connection, stop)
        # A close with unread input would reset the connection and lose the answer.
        with suppress(OSError):
            connection.shutdown(socket.SHUT_WR)


def body(content: bytes, status: str = "200 OK", **headers: str) -> Answer:
    """Write an ordinary answer."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(content)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return raw("\r\n".join(lines).encode() + b"\r\n\r\n" + content)


def raw(content: bytes) -> Answer:
    """Exactly these bytes, then the end of the connection."""
    return lambda connection, _: connection.sendall(content)


def reset(content: bytes, seconds: float) -> Answer:
    """Exactly these bytes, and after so many seconds a reset of the connection."""

    def answer(connection: socket.socket, stop: threading.Event) -> None:
        connection.sendall(content)
        stop.wait(seconds)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()

    return answer


def hang(connection: socket.socket, stop: threading.Event) -> None:
    """Never answers."""
    stop.wait()


def drip(content: bytes, seconds: float) -> Answer:
    """One byte at a time with a pause after each."""

    def answer(connection: socket.socket, stop: threading.Event) -> None:
        for byte in content:
            connection.sendall(bytes([byte]))
            if stop.wait(seconds):
                return

    return answer


def flood(chunk: bytes, times: int) -> Answer:
    """Write an answer without a length, of many chunks."""

    def answer(connection: socket.socket, stop: threading.Event) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        for _ in range(times):
            if stop.is_set():
                return
            connection.sendall(chunk)

    return answer
