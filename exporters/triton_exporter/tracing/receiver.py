"""Receive the traces that Triton posts (OTLP over HTTP), without ever holding much of them."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import zlib
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from triton_exporter.http.connections import Connection, Connections
from triton_exporter.tracing.otlp import (
    Assembler,
    OtlpError,
    Span,
    UnsupportedError,
    decode_json,
    decode_protobuf,
)
from triton_exporter.tracing.trace import Mailbox

PATH = "/v1/traces"

_STATUS = {"accepted": 200, "busy": 503, "malformed": 400, "slow": 408, "too_large": 413, "unsupported": 415}
_DECODERS: dict[str, Callable[[bytes], list[Span]]] = {
    "application/json": decode_json,
    "application/x-protobuf": decode_protobuf,
}


class _RefusedError(Exception):
    """A batch that is not taken; `result` is one of RESULTS."""

    def __init__(self, result: str, detail: str) -> None:
        super().__init__(detail)
        self.result = result


class TraceReceiver(ThreadingHTTPServer):
    """Poller (see `family`) that answers POST /v1/traces and puts the requests into the mailbox.

    At most `connections` batches of `max_body_bytes` are held at a time; a peer has `patience_seconds` to
    send one. Listens from the start. Raises OSError when it cannot.
    """

    daemon_threads = True
    block_on_close = False
    interval_seconds = 0.01

    def __init__(
        self,
        host: str,
        port: int,
        mailbox: Mailbox,
        max_body_bytes: int = 4 * 1024 * 1024,
        connections: int = 4,
        patience_seconds: float = 10.0,
    ) -> None:
        self.mailbox = mailbox
        self.max_body_bytes = max_body_bytes
        self.patience_seconds = patience_seconds
        self._assembler = Assembler(mailbox.lose)
        self._one_at_a_time = threading.Lock()
        self.connections = Connections(
            connections, note=lambda reason: mailbox.batch("busy" if reason == "refused" else "slow")
        )
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)
        self.timeout = 0.1

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server_address[1])

    def poll(self, now: float) -> None:
        """Serve for about a second."""
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline:
            self.handle_request()

    def close(self) -> None:
        """Stop listening."""
        self.server_close()

    def take(self, body: bytes, content_type: str, encoding: str) -> None:
        """Read one batch into the mailbox. Raises _RefusedError."""
        decode = _DECODERS.get(content_type.partition(";")[0].strip().lower())
        if decode is None:
            raise _RefusedError("unsupported", f"send one of {', '.join(_DECODERS)}")
        # Decoded, a batch is some ten times its size: one at a time.
        with self._one_at_a_time:
            try:
                spans = decode(self._unzip(body) if encoding == "gzip" else body)
            except UnsupportedError as error:
                raise _RefusedError("unsupported", str(error)) from error
            except OtlpError as error:
                raise _RefusedError("malformed", str(error)) from error
            self.mailbox.put(self._assembler.take(spans, time.monotonic()))

    def handle_request(self) -> None:
        """Take a new connection, if one comes, and drop those without a request in time."""
        super().handle_request()
        self.connections.drop_slow()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give the connection a thread, or refuse it when all others send a batch."""
        connection = self.connections.admit(request)
        if connection is not None:
            super().process_request(connection, client_address)  # type: ignore[arg-type]
            return
        with contextlib.suppress(OSError):
            request.sendall(b"HTTP/1.1 503 busy\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n")
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one connection."""
        connection: Connection = request
        try:
            # A peer that hangs up is not an event worth a traceback.
            with contextlib.suppress(OSError):
                _Handler(connection, client_address, self)
        finally:
            self.connections.leave(connection)
            self.shutdown_request(connection.socket)

    def _unzip(self, body: bytes) -> bytes:
        unzip = zlib.decompressobj(wbits=31)
        try:
            plain = unzip.decompress(body, self.max_body_bytes + 1)
        except zlib.error as error:
            raise _RefusedError("malformed", f"not gzip: {error}") from error
        if len(plain) > self.max_body_bytes:
            raise _RefusedError("too_large", f"more than {self.max_body_bytes} bytes")
        return plain


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "tritonwatch"
    sys_version = ""
    timeout: ClassVar[float] = 5.0

    server: TraceReceiver

    def __init__(self, connection: Connection, client_address: Any, server: TraceReceiver) -> None:
        self.held = connection
        super().__init__(connection.socket, client_address, server)

    def do_POST(self) -> None:
        self.server.connections.answer(self.held)
        # One batch a connection: Triton sends one every few seconds, and no idle peer holds a slot.
        self.close_connection = True
        if self.path.partition("?")[0] != PATH:
            self._answer(404, f"traces go to {PATH}\n")
            return
        result, detail = "accepted", ""
        try:
            headers = self.headers
            encoding = headers.get("Content-Encoding", "identity").lower()
            if encoding not in ("identity", "gzip"):
                raise _RefusedError("unsupported", "send it plain or gzip")
            self.server.take(self._body(), headers.get("Content-Type", ""), encoding)
        except _RefusedError as refused:
            result, detail = refused.result, f"{refused}\n"
        self.server.mailbox.batch(result)
        self._answer(_STATUS[result], detail)

    def _body(self) -> bytes:
        text = self.headers.get("Content-Length", "")
        if not text.isdecimal() or len(text) > 18:
            raise _RefusedError("malformed", "a batch needs a Content-Length")
        wanted, limit = int(text), self.server.max_body_bytes
        if wanted > limit:
            raise _RefusedError(
                "too_large", f"more than {limit} bytes; lower Triton's bsp_max_export_batch_size"
            )
        return self._read(wanted)

    def _read(self, wanted: int) -> bytes:
        deadline = time.monotonic() + self.server.patience_seconds
        body = bytearray()
        while len(body) < wanted:
            try:
                chunk = self.rfile.read1(wanted - len(body))
            except TimeoutError:
                chunk = b""
            if time.monotonic() > deadline or not chunk:
                raise _RefusedError("slow", f"{len(body)} of {wanted} bytes came in time")
            body += chunk
        return bytes(body)

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8" if text else "application/json")
        body = (text or "{}").encode()
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Batches are counted, not logged."""
