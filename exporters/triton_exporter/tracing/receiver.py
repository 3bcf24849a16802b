"""Receive the traces that Triton posts (OTLP over HTTP) in bounded memory."""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable

from triton_exporter.http.connections import Connections
from triton_exporter.http.server import RefusedError, Request, Response, Server, routed
from triton_exporter.tracing.otlp import (
    Assembler,
    OtlpError,
    Span,
    TooManyError,
    decode_json,
    decode_protobuf,
)
from triton_exporter.tracing.trace import Mailbox

PATH = "/v1/traces"

_RESULTS = {
    400: "malformed",
    408: "slow",
    411: "malformed",
    413: "too_large",
    415: "unsupported",
    503: "over_budget",
}
_DECODERS: dict[str, Callable[[bytes], list[Span]]] = {
    "application/json": decode_json,
    "application/x-protobuf": decode_protobuf,
}


class TraceReceiver:
    """Poller (see `app.parts`) that answers POST /v1/traces and puts the requests into the mailbox.

    At most `connections` batches of `max_body_bytes` are in memory at a time; a peer has `body_seconds` to
    send one. Listens from the start. Raises OSError when it cannot.
    """

    interval_seconds = 0.01

    def __init__(
        self,
        host: str,
        port: int,
        mailbox: Mailbox,
        max_body_bytes: int = 4 * 1024 * 1024,
        connections: int = 4,
        body_seconds: float = 10.0,
    ) -> None:
        self.mailbox = mailbox
        self._max_body_bytes = max_body_bytes
        self._assembler = Assembler(mailbox.count_lost)
        self._one_at_a_time = threading.Lock()
        table = Connections(
            connections, note=lambda reason: mailbox.count_batch("busy" if reason == "refused" else "slow")
        )
        routes = routed({f"POST {PATH}": self.receive})
        self.server = Server(host, port, routes, connections=table, body_seconds=body_seconds)
        self.server.timeout = 0.1

    def poll(self, now: float) -> None:
        """Serve for about a second."""
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline:
            self.server.handle_request()
            self.server.service_actions()

    def close(self) -> None:
        """Stop listening."""
        self.server.server_close()

    def receive(self, request: Request) -> Response:
        """Put one batch into the mailbox."""
        # One batch a connection: Triton sends one every few seconds, and an idle one would count as slow.
        close = {"Connection": "close"}
        try:
            self._receive(request)
        except RefusedError as refused:
            self.mailbox.count_batch(_RESULTS[refused.status])
            return Response(f"{refused}\n".encode(), status=refused.status, headers=close)
        self.mailbox.count_batch("accepted")
        return Response(b"{}", "application/json", headers=close)

    def _receive(self, request: Request) -> None:
        if self.mailbox.budget.is_spent:
            # A sender of OTLP may retry after 503: https://opentelemetry.io/docs/specs/otlp/#failures-1
            raise RefusedError(503, "traces have taken their share of a core; trace fewer requests")
        encoding = request.headers.get("content-encoding", "identity").lower()
        if encoding not in ("identity", "gzip"):
            raise RefusedError(415, "send it plain or gzip")
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        decode = _DECODERS.get(content_type)
        if decode is None:
            raise RefusedError(415, f"send one of {', '.join(_DECODERS)}")
        body = request.read(self._max_body_bytes)
        # Decoded, a batch is some ten times its size: one at a time.
        with self._one_at_a_time, self.mailbox.budget.charged():
            try:
                spans = decode(self._unzip(body) if encoding == "gzip" else body)
            except TooManyError as error:
                raise RefusedError(413, str(error)) from error
            except OtlpError as error:
                raise RefusedError(400, str(error)) from error
            self.mailbox.put(self._assembler.assemble(spans, time.monotonic()))

    def _unzip(self, body: bytes) -> bytes:
        unzip = zlib.decompressobj(wbits=31)
        try:
            plain = unzip.decompress(body, self._max_body_bytes + 1)
        except zlib.error as error:
            raise RefusedError(400, f"not gzip: {error}") from error
        if len(plain) > self._max_body_bytes:
            raise RefusedError(413, f"more than {self._max_body_bytes} bytes")
        return plain
