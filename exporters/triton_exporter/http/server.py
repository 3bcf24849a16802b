"""The HTTP server of every part that listens: exporter, trace receiver, bridge and web pages.

`Connections` bounds the open connections, so that callers who send nothing useful cannot shut out the others.
"""

from __future__ import annotations

import io
import logging
import re
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import FrameType
from typing import Any, ClassVar
from urllib.parse import parse_qs

from triton_exporter.catalogue import own
from triton_exporter.family import Family
from triton_exporter.http.web_config import CrowdedError, WebConfig

MAX_CONNECTIONS = 200
"""Connections open at a time, by default."""

REQUEST_SECONDS = 10.0
"""Time for a new connection to send the head of its request, the TLS handshake included."""

IDLE_SECONDS = 30.0
"""Time after an answer until the next request must be complete; Prometheus opens a new connection otherwise."""

ANSWER_SECONDS = 10.0
"""An answer that takes longer gives way to a new connection when all are in use."""

DROPS = ("slow_request", "crowded", "refused")
"""Closed set of values of the label `reason`.

`slow_request`: no complete request in time; `crowded`: the one that waited longest, closed in favour of a
new one; `refused`: a new one, when every other one is being answered.
"""


@dataclass(eq=False, slots=True)
class Connection:
    """One open connection: since when (monotonic seconds) it is `answering`, or waits for a request."""

    socket: socket.socket
    since: float
    patience: float = REQUEST_SECONDS
    answering: bool = False


class Connections:
    """Collector (see `app.exporter`) of dropped connections, and the table of the open ones. Safe for threads.

    A dropped socket is only shut down, which wakes the thread that reads or writes it; that thread closes it.
    `note` is called with the reason of each drop, one of DROPS.
    """

    def __init__(
        self,
        max_open: int = MAX_CONNECTIONS,
        now: Callable[[], float] = time.monotonic,
        note: Callable[[str], None] = lambda reason: None,
        request_seconds: float = REQUEST_SECONDS,
    ) -> None:
        self._max_open = max_open
        self._request_seconds = request_seconds
        self._now = now
        self._note = note
        self._lock = threading.Condition()
        self._open: dict[Connection, None] = {}
        self._dropped: Counter[str] = Counter()

    def open(self) -> Collection[Connection]:
        """Return the connections that are open now."""
        with self._lock:
            return tuple(self._open)

    def admit(self, accepted: socket.socket) -> Connection | None:
        """Add a new connection, in place of another one when there are too many; None refuses it."""
        with self._lock:
            if len(self._open) >= self._max_open and not self._evict():
                self._count_dropped("refused")
                return None
            connection = Connection(accepted, self._now(), self._request_seconds)
            self._open[connection] = None
            return connection

    def answer(self, connection: Connection) -> None:
        """Note that a complete request came."""
        connection.since, connection.answering = self._now(), True

    def await_next(self, connection: Connection) -> None:
        """Note that it was answered, and may be used again."""
        connection.since, connection.answering = self._now(), False
        connection.patience = IDLE_SECONDS

    def leave(self, connection: Connection) -> None:
        """Forget a connection; after that its socket may be closed."""
        with self._lock:
            self._open.pop(connection, None)
            self._lock.notify_all()

    def drop_slow(self) -> None:
        """Drop those whose request is overdue."""
        now = self._now()
        with self._lock:
            overdue = [each for each in self._open if not each.answering and now - each.since > each.patience]
            for connection in overdue:
                self._drop(connection, "slow_request")

    def drain(self, seconds: float) -> None:
        """Close the connections without a request, and wait for the others to leave."""
        deadline = time.monotonic() + seconds
        with self._lock:
            while self._open and time.monotonic() < deadline:
                for connection in self._open:
                    if not connection.answering:
                        _shut(connection)
                self._lock.wait(0.05)

    def families(self, now: float) -> Iterable[Family]:
        """Yield dropped connections by reason."""
        with self._lock:
            dropped = dict(self._dropped)
        yield Family.of(own.CONNECTIONS_DROPPED, (((reason,), dropped.get(reason, 0)) for reason in DROPS))

    def _evict(self) -> bool:
        oldest = min(self._open, key=lambda each: (each.answering, each.since))
        if oldest.answering and self._now() - oldest.since < ANSWER_SECONDS:
            return False
        self._drop(oldest, "crowded")
        return True

    def _drop(self, connection: Connection, reason: str) -> None:
        del self._open[connection]
        self._count_dropped(reason)
        _shut(connection)

    def _count_dropped(self, reason: str) -> None:
        self._dropped[reason] += 1
        self._note(reason)


def _shut(connection: Connection) -> None:
    # Not SSLSocket.shutdown, which takes the TLS state away from under the thread that uses it.
    with suppress(OSError):
        socket.socket.shutdown(connection.socket, socket.SHUT_RDWR)


MAX_HEAD_BYTES = 32 * 1024
"""Largest request line with its headers: the standard library reads 6.5 MB of them, for each connection."""
BODY_SECONDS = 30.0
"""Time for a peer to send the body of a request."""
LINGER_SECONDS = 2.0
"""Time for which a peer may go on sending a body that is not read."""
STOP_SECONDS = 5.0
"""Time for the responses under way to end when the server is closed."""

_LOG = logging.getLogger(__name__)

Query = Mapping[str, list[str]]


class RefusedError(Exception):
    """A request that gets an error status; the text is the body of the response."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Request:
    """One request; names of headers are in lower case, `target` is path and query as sent. `read`: see `Server`."""

    query: Query
    headers: Mapping[str, str]
    method: str = "GET"
    target: str = "/"
    client: str = ""
    read: Callable[[int], bytes] = lambda _limit: b""

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]


@dataclass(frozen=True, slots=True)
class Response:
    """One response, its body whole or in pieces that are sent as they are made."""

    body: bytes | Generator[bytes]
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[[Request], Response]


def routed(routes: Mapping[str, Handler]) -> Handler:
    """Choose the handler by method and path: a key is `METHOD PATH`; a GET route answers HEAD, too."""

    def handle(request: Request) -> Response:
        handler = routes.get(f"{request.method.replace('HEAD', 'GET')} {request.path}")
        try:
            if handler is not None:
                return handler(request)
        except RefusedError as refused:
            return Response(f"{refused}\n".encode("utf-8", "replace"), status=refused.status)
        keys = [key.partition(" ") for key in routes]
        allowed = [method for method, _, path in keys if path == request.path]
        if not allowed:
            return Response(f"not found; there is: {', '.join(routes)}\n".encode(), status=404)
        return Response(b"method not allowed\n", status=405, headers={"Allow": ", ".join(allowed)})

    return handle


class Server(ThreadingHTTPServer):
    """Serve one handler; each connection has its own thread, and `connections` bounds how many there are.

    A handler reads the body with `Request.read(limit)`, which raises RefusedError: 411 without a
    Content-Length, 413 for more than `limit` bytes, 408 after `body_seconds`. A body that was not read ends
    the connection with the response. Closing the server lets responses under way end.
    """

    daemon_threads = True
    # Many Prometheus servers may come at the same second.
    request_queue_size = 128

    def __init__(
        self,
        host: str,
        port: int,
        handler: Handler,
        web: WebConfig | None = None,
        connections: Connections | None = None,
        body_seconds: float = BODY_SECONDS,
    ) -> None:
        self.handler = handler
        self.web = web or WebConfig()
        self.connections = Connections() if connections is None else connections
        self.body_seconds = body_seconds
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _RequestHandler)

    @property
    def url(self) -> str:
        host, port = self.server_address[:2]
        scheme = "https" if self.web.tls else "http"
        return f"{scheme}://[{host!s}]:{port}" if ":" in str(host) else f"{scheme}://{host!s}:{port}"

    def serve_until_signal(self) -> None:
        """Serve until SIGTERM or Ctrl-C; to be called by the main thread."""

        def end(_signal: int, _frame: FrameType | None) -> None:
            # shutdown() waits for serve_forever to return, which this very thread is running.
            threading.Thread(target=self.shutdown, daemon=True).start()

        signal.signal(signal.SIGTERM, end)
        signal.signal(signal.SIGINT, end)
        self.serve_forever(poll_interval=0.5)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give the connection a thread, unless there are too many."""
        connection = self.connections.admit(request)
        if connection is not None:
            super().process_request(connection, client_address)  # type: ignore[arg-type]
            return
        if self.web.tls is None:
            with suppress(OSError):
                request.setblocking(False)
                request.sendall(b"HTTP/1.1 503 busy\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n")
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one connection, in its own thread."""
        connection: Connection = request
        try:
            connection.socket.settimeout(_RequestHandler.timeout)
            if self.web.tls is not None:
                # Here, because a handshake that hangs must not keep others out.
                connection.socket = self.web.tls().wrap_socket(
                    connection.socket, server_side=True, do_handshake_on_connect=False
                )
                connection.socket.do_handshake()
            _RequestHandler(connection, client_address, self)
        except Exception:  # noqa: BLE001 - the boundary: the end of one connection, not of the server
            self.handle_error(connection, client_address)
        finally:
            self.connections.leave(connection)
            self.shutdown_request(connection.socket)

    def service_actions(self) -> None:
        """Drop connections without a request in time; called several times a second."""
        self.connections.drop_slow()

    def handle_error(self, request: object, client_address: object) -> None:
        """Log a traceback for a defect, and a line for a peer that closes the connection or does not use TLS."""
        error = sys.exception()
        if isinstance(error, OSError):
            _LOG.debug("the connection from %s broke: %s", client_address, error)
        else:
            _LOG.exception("answering %s failed", client_address)

    def server_close(self) -> None:
        """Stop listening, and wait for the responses under way."""
        super().server_close()
        self.connections.drain(STOP_SECONDS)


_HEADER = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\0\r\n]*\r?")


class _RequestHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "tritonwatch"
    sys_version = ""
    # A page is sent in pieces, some of them small: none waits for the peer to have acknowledged the last.
    disable_nagle_algorithm = True
    timeout: ClassVar[float] = 30.0  # for a single read or write

    server: Server

    def __init__(self, connection: Connection, client_address: Any, server: Server) -> None:
        self.accepted = connection
        super().__init__(connection.socket, client_address, server)

    def handle_one_request(self) -> None:
        """Read a whole head of bounded size before any of it is parsed, then answer."""
        self.close_connection = True
        self.requestline, self.request_version, self.command = "", "HTTP/1.1", ""
        try:
            head = self._read_head()
            if head is None:
                return
            self.raw_requestline, _, headers = head.partition(b"\n")
            body, self.rfile = self.rfile, io.BytesIO(headers)
            try:
                parsed = self.parse_request()
            finally:
                self.rfile = body
            if not parsed:
                return  # the error is sent
            _check_framing(headers, self.headers)
            if self.command not in ("GET", "HEAD", "POST"):
                raise RefusedError(501, "only GET, HEAD and POST are served")
        except RefusedError as refused:
            self.close_connection, self._unread = True, False
            self._answer(Response(f"{refused}\n".encode(), status=refused.status))
            return
        except TimeoutError:
            return
        self.server.connections.answer(self.accepted)
        self._unread = self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers
        self._serve()
        self.server.connections.await_next(self.accepted)

    def _read_head(self) -> bytes | None:
        """Return the request line and the headers; None if the peer ends before they are complete."""
        head = bytearray()
        while line := self.rfile.readline(MAX_HEAD_BYTES - len(head) + 1):
            head += line
            if len(head) > MAX_HEAD_BYTES:
                raise RefusedError(431, f"the head of a request has at most {MAX_HEAD_BYTES} bytes")
            if line in (b"\r\n", b"\n"):
                return bytes(head) if len(head) > len(line) else None
        return None

    def _serve(self) -> None:
        client = str(self.client_address[0])
        try:
            admitted = self.server.web.admits(self.headers.get("Authorization", ""), client)
        except CrowdedError as error:
            self._answer(Response(f"{error}\n".encode(), status=429, headers={"Retry-After": "1"}))
            return
        if not admitted:
            challenge = {"WWW-Authenticate": 'Basic realm="tritonwatch"'}
            self._answer(Response(b"unauthorized\n", status=401, headers=challenge))
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(
            parse_qs(self.path.partition("?")[2], keep_blank_values=True),
            headers,
            self.command,
            self.path,
            client,
            self._read_body,
        )
        try:
            response = self.server.handler(request)
        except Exception:  # noqa: BLE001 - the boundary: a defect is a response and a line in the log
            _LOG.exception("%s failed", request.path)
            response = Response(b"this request failed; see the log\n", status=500)
        self._answer(response)

    def _read_body(self, limit: int) -> bytes:
        text = self.headers.get("Content-Length", "")
        if not (text.isascii() and text.isdigit()):
            raise RefusedError(411, "a Content-Length is required")
        text = text.lstrip("0") or "0"  # zeros in front must not hide how large it is
        # Python refuses to read a number of thousands of digits.
        wanted = int(text[:18])
        if wanted > limit:
            raise RefusedError(413, f"larger than {limit} bytes")
        deadline = time.monotonic() + self.server.body_seconds
        body = bytearray()
        try:
            while len(body) < wanted:
                self.connection.settimeout(_left(deadline))
                chunk = self.rfile.read1(wanted - len(body))
                if not chunk:
                    raise ConnectionResetError
                body += chunk
        except OSError as error:
            raise RefusedError(408, f"{len(body)} of {wanted} bytes came in time") from error
        finally:
            self.connection.settimeout(self.timeout)
        self._unread = False
        return bytes(body)

    def _answer(self, response: Response) -> None:
        if self._unread:
            self.close_connection = True
        if isinstance(response.body, bytes):
            self._send_head(response, {"Content-Length": str(len(response.body))})
            if self.command != "HEAD":
                self.wfile.write(response.body)
            return
        with closing(response.body) as pieces:
            self._stream(response, pieces)

    def _stream(self, response: Response, pieces: Iterable[bytes]) -> None:
        """Send a body of unknown length: in chunks, or to an HTTP/1.0 peer until the connection ends."""
        chunked = self.request_version >= "HTTP/1.1"
        self.close_connection |= not chunked
        self._send_head(response, {"Transfer-Encoding": "chunked"} if chunked else {})
        if self.command == "HEAD":
            return
        # An exception in a piece ends the connection without a last chunk, so the peer knows that the page is cut.
        for piece in filter(None, pieces):
            self.wfile.writelines((b"%x\r\n" % len(piece), piece, b"\r\n") if chunked else (piece,))
        if chunked:
            self.wfile.write(b"0\r\n\r\n")

    def _send_head(self, response: Response, length: Mapping[str, str]) -> None:
        self.send_response(response.status)
        headers = {
            "Content-Type": response.content_type,
            **length,
            **({"Connection": "close"} if self.close_connection else {}),
            **self.server.web.headers,
            **response.headers,
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def finish(self) -> None:
        """Read what the peer still sends: closing on unread bytes would reset the connection."""
        super().finish()
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            deadline = time.monotonic() + LINGER_SECONDS
            more = True
            while more:
                self.connection.settimeout(_left(deadline))
                more = bool(self.connection.recv(65536))

    def log_message(self, format: str, *args: object) -> None:
        """Log the path alone, for a request line could contain a token."""
        _LOG.debug("%s %s", self.client_address[0], getattr(self, "path", "").partition("?")[0][:200])


def _check_framing(raw: bytes, headers: Message) -> None:
    """Refuse what a proxy in front may have read as another request than we do."""
    if not all(_HEADER.fullmatch(line) for line in raw.rstrip(b"\r\n").split(b"\n") if raw.strip()):
        raise RefusedError(400, "a line of the head is not a header")
    lengths = {text.strip() for name, text in headers.items() if name.lower() == "content-length"}
    if len(lengths) > 1 or (lengths and "Transfer-Encoding" in headers):
        raise RefusedError(400, "the length of the body is given twice")


def _left(deadline: float) -> float:
    """Return seconds until the deadline (monotonic). Raises TimeoutError after it."""
    if (left := deadline - time.monotonic()) <= 0:
        raise TimeoutError
    return left
