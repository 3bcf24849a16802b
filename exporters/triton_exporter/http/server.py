"""The exporter's own HTTP server."""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from triton_exporter.http.connections import Connection, Connections
from triton_exporter.http.web_config import WebConfig

_LOG = logging.getLogger(__name__)

Query = Mapping[str, list[str]]


@dataclass(frozen=True, slots=True)
class Request:
    """What a page needs to know about the request; names of headers are in lower case."""

    query: Query
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Page:
    """One answer, its body whole or in pieces that are sent as they are made."""

    body: bytes | Generator[bytes]
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[[Request], Page]


class Server(ThreadingHTTPServer):
    """Serve pages by path; each connection has its own thread, and `connections` bounds how many there are."""

    daemon_threads = True
    # Many Prometheus servers may come at the same second.
    request_queue_size = 64

    def __init__(
        self,
        host: str,
        port: int,
        pages: Mapping[str, Handler],
        web: WebConfig | None = None,
        connections: Connections | None = None,
    ) -> None:
        self.pages = pages
        self.web = web or WebConfig()
        self.connections = Connections() if connections is None else connections
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _RequestHandler)

    @property
    def url(self) -> str:
        host, port = self.server_address[:2]
        scheme = "https" if self.web.tls else "http"
        return f"{scheme}://[{host!s}]:{port}" if ":" in str(host) else f"{scheme}://{host!s}:{port}"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give the connection a thread, unless there are too many."""
        connection = self.connections.admit(request)
        if connection is None:
            self.shutdown_request(request)
        else:
            super().process_request(connection, client_address)  # type: ignore[arg-type]

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one connection, in its own thread."""
        connection: Connection = request
        try:
            self._shake_hands(connection)
            _RequestHandler(connection, client_address, self)
        except Exception:  # noqa: BLE001 - the boundary: the end of one connection, not of the server
            self.handle_error(connection, client_address)
        finally:
            self.connections.leave(connection)
            self.shutdown_request(connection.socket)

    def _shake_hands(self, connection: Connection) -> None:
        """Wrap it in TLS where asked for; here, because a handshake that hangs must not keep others out."""
        connection.socket.settimeout(_RequestHandler.timeout)
        if self.web.tls is not None:
            connection.socket = self.web.tls().wrap_socket(
                connection.socket, server_side=True, do_handshake_on_connect=False
            )
            connection.socket.do_handshake()

    def service_actions(self) -> None:
        """Drop connections without a request in time; called several times a second."""
        self.connections.drop_slow()

    def handle_error(self, request: object, client_address: object) -> None:
        """A peer that hangs up, or speaks no TLS, is no event worth a traceback; anything else is."""
        if not isinstance(sys.exception(), OSError):
            _LOG.exception("answering %s failed", client_address)


class _RequestHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "tritonwatch"
    sys_version = ""
    # A page is sent in pieces, some of them small: none waits for the peer to have acknowledged the last.
    disable_nagle_algorithm = True
    timeout: ClassVar[float] = 30.0  # for a single read or write

    server: Server

    def __init__(self, connection: Connection, client_address: Any, server: Server) -> None:
        self.held = connection
        super().__init__(connection.socket, client_address, server)

    def do_GET(self) -> None:
        self.server.connections.answer(self.held)
        self._serve()
        self.server.connections.await_next(self.held)

    def _serve(self) -> None:
        if not self.server.web.admits(self.headers.get("Authorization", "")):
            challenge = {"WWW-Authenticate": "Basic"}
            self._answer(Page(b"unauthorized\n", status=401, headers=challenge))
            return
        parts = urlsplit(self.path)
        handler = self.server.pages.get(parts.path)
        if handler is None:
            self._answer(Page(b"not found\n", status=404))
            return
        query = parse_qs(parts.query, keep_blank_values=True)
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            page = handler(Request(query, headers))
        except Exception:  # noqa: BLE001 - the boundary: a bug in a page is an answer and a line in the log
            _LOG.exception("%s failed", parts.path)
            page = Page(b"the exporter failed; its log says why\n", status=500)
        self._answer(page)

    do_HEAD = do_GET  # noqa: N815 - the name http.server looks for

    def _answer(self, page: Page) -> None:
        if isinstance(page.body, bytes):
            self._head(page, {"Content-Length": str(len(page.body))})
            if self.command != "HEAD":
                self.wfile.write(page.body)
            return
        with closing(page.body) as pieces:
            self._stream(page, pieces)

    def _stream(self, page: Page, pieces: Iterable[bytes]) -> None:
        """Send a body whose length nobody knows yet: in chunks, or to a peer of old until the connection ends."""
        chunked = self.request_version >= "HTTP/1.1"
        self._head(page, {"Transfer-Encoding": "chunked"} if chunked else {"Connection": "close"})
        if self.command == "HEAD":
            return
        # What a piece raises ends the connection: without a last chunk, the peer takes no half for the whole.
        for piece in filter(None, pieces):
            self._write_piece(piece, chunked)
        if chunked:
            self.wfile.write(b"0\r\n\r\n")

    def _write_piece(self, piece: bytes, chunked: bool) -> None:
        if chunked:
            self.wfile.write(b"%x\r\n" % len(piece))
        self.wfile.write(piece)
        if chunked:
            self.wfile.write(b"\r\n")

    def _head(self, page: Page, length: Mapping[str, str]) -> None:
        self.send_response(page.status)
        headers = {"Content-Type": page.content_type, **length, **self.server.web.headers, **page.headers}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """A line per scrape would drown what matters."""
