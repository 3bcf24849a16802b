"""The door Alertmanager knocks on: checks who it is, stores what it says, and only then answers 200.

What Alertmanager does with the answer decides what it may be: 5xx is retried, any 4xx never (429 included),
and after 200 it forgets. So: 200 when it is on disk, 503 when it cannot be, 4xx for what no retry can mend.
"""

from __future__ import annotations

import hmac
import io
import logging
import socket
import sqlite3
import ssl
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from triton_alerts.bridge.incidents.instruments import HEARTBEAT_FACT, Instruments
from triton_alerts.bridge.incidents.notification import MalformedError, Notification, parse
from triton_alerts.bridge.incidents.store import Store
from triton_slo.conventions import SEVERITY

PATH = "/alertmanager"
LARGEST_BODY = 32 * 1024 * 1024
"""Bytes of one body: some 20,000 alerts. A 413 is never retried, so the limit is far above any real group."""
MOST_CONNECTIONS = 64
SOCKET_TIMEOUT_SECONDS = 15.0
REQUEST_SECONDS = 30.0
"""How long a whole request may take, or a connection be idle: 32 MiB within it are 9 Mbit/s."""
LINGER_SECONDS = 2.0
"""How long a caller may go on sending what is not read any more."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Tls:
    """Paths of the server's certificate and key; with `client_ca` only clients it signed may connect."""

    certificate: str
    key: str
    client_ca: str = ""

    def context(self) -> ssl.SSLContext:
        """Raises OSError (ssl.SSLError is one) when a file cannot be used."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        if self.client_ca:
            context.load_verify_locations(self.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


@dataclass(frozen=True, slots=True)
class Door:
    """What the receiver needs: the store, the token callers must show if there is one, and whom to wake."""

    store: Store
    instruments: Instruments
    clock: Callable[[], float]
    wake: Callable[[], None]
    token: Callable[[], str] | None = None
    ready: Callable[[], str] = lambda: ""
    largest_body: int = LARGEST_BODY

    def receive(self, body: bytes, source: str) -> tuple[int, str]:
        """Take in one body; returns the HTTP status and a line for the caller's log."""
        try:
            heard = parse(body, source)
            if _is_heartbeat(heard):
                self.store.remember(HEARTBEAT_FACT, repr(self.clock()))
                outcome = "heartbeat"
            else:
                outcome = self.store.receive(body, source, self.clock())
        except MalformedError as error:
            return 400, f"not an Alertmanager webhook body, version 4: {error}"
        except sqlite3.Error as error:
            self.instruments.store_failures.inc()
            log.error("cannot store a notification: %s", error)
            return 503, "cannot store; try again"
        self.instruments.received.labels(outcome).inc()
        self.wake()
        return 200, outcome

    def objection(self, authorization: str) -> tuple[int, str] | None:
        """Why the caller is not let in: it does not show the token, compared in constant time.

        A token file that is gone or empty, as in the midst of a rotation, lets nobody in; 503 is retried.
        """
        if self.token is None:
            return None
        try:
            token = self.token()
        except (OSError, UnicodeDecodeError):
            token = ""
        if not token:
            log.error("the file of the bearer token cannot be read or is empty: nobody is let in")
            return 503, "the bearer token is not known; try again"
        shown = authorization.removeprefix("Bearer ").strip()
        good = hmac.compare_digest(shown.encode("utf-8", "replace"), token.encode())
        return None if good else (401, "wrong or missing bearer token")


def _is_heartbeat(heard: Notification) -> bool:
    return all(alert.labels.get(SEVERITY) == "none" for alert in heard.alerts)


class Receiver(ThreadingHTTPServer):
    """The HTTP server around a Door; `serve_forever` in a thread, `shutdown` to stop it."""

    daemon_threads = True
    request_queue_size = 128
    request_seconds = REQUEST_SECONDS
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], door: Door, tls: Tls | None = None) -> None:
        self.door = door
        self._slots = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._tls = tls.context() if tls is not None else None
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)  # Alertmanager sees a broken connection and tries again
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            if self._tls is not None:
                request.settimeout(SOCKET_TIMEOUT_SECONDS)
                request = self._tls.wrap_socket(request, server_side=True)
            super().process_request_thread(request, client_address)
        except OSError as error:  # a handshake that failed; ssl.SSLError is an OSError
            log.info("connection from %s ended: %s", client_address[0], error)
            self.shutdown_request(request)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that hangs up is no event worth a traceback; anything else is."""
        error = sys.exception()
        if isinstance(error, OSError):
            log.info("connection from %s broke: %s", client_address[0], error)
        else:
            log.exception("answering %s failed", client_address[0])


class _Handler(BaseHTTPRequestHandler):
    server: Receiver
    protocol_version = "HTTP/1.1"
    server_version = "tritonwatch-bridge"
    sys_version = ""
    timeout = SOCKET_TIMEOUT_SECONDS

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self._wire = _Wire(self.connection)
        self.rfile = io.BufferedReader(self._wire)

    def handle_one_request(self) -> None:
        self._wire.deadline = time.monotonic() + self.server.request_seconds
        super().handle_one_request()

    def do_POST(self) -> None:
        door = self.server.door
        last = self.close_connection  # as the caller asked
        self.close_connection = True  # unless the body was read in full
        if self.path.partition("?")[0] != PATH:
            return self._reject(404, f"post to {PATH}")
        if objection := door.objection(self.headers.get("Authorization") or ""):
            return self._reject(*objection)
        length = self.headers.get("Content-Length") or ""
        if not (length.isascii() and length.isdigit()):
            return self._reject(411, "a Content-Length is required")
        length = length.lstrip("0") or "0"  # zeros in front must not hide how large it is
        if int(length[:12]) > door.largest_body:
            return self._reject(413, f"larger than {door.largest_body} bytes")
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            return None  # the caller went away; it will try again
        self.close_connection = last
        status, line = door.receive(body, self.client_address[0])
        if status == 400:
            return self._reject(status, line)
        return self._answer(status, line)

    def do_GET(self) -> None:
        door = self.server.door
        path = self.path.partition("?")[0]
        if path == "/-/healthy":
            self._answer(200, "healthy")
        elif path == "/-/ready":
            reason = door.ready()
            self._answer(503 if reason else 200, reason or "ready")
        elif path == "/metrics":
            self._answer(200, door.instruments.exposition(), "text/plain; version=0.0.4; charset=utf-8")
        else:
            self._answer(404, f"{PATH}, /metrics, /-/healthy, /-/ready")

    def finish(self) -> None:
        super().finish()
        with suppress(OSError):
            _linger(self.connection)

    def log_message(self, format: str, *args: Any) -> None:
        # The request line could hold a token somebody put into the address; the path alone is enough.
        log.debug("%s %s", self.client_address[0], (getattr(self, "path", "") or "").partition("?")[0][:200])

    def _reject(self, status: int, line: str) -> None:
        # A notification that is refused with 4xx never comes again: whoever looks for it finds it here.
        log.warning("refused a request from %s with %d: %s", self.client_address[0], status, line)
        self.server.door.instruments.rejected.labels(str(status)).inc()
        self._answer(status, line)

    def _answer(self, status: int, body: str | bytes, kind: str = "text/plain; charset=utf-8") -> None:
        data = body if isinstance(body, bytes) else f"{body}\n".encode("utf-8", "replace")
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        if status == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)


class _Wire(socket.SocketIO):
    """Reads until a deadline, so that callers who send a byte now and then cannot hold all connections."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection, "r")
        self._connection = connection
        self.deadline = float("inf")

    def readinto(self, buffer: Any) -> int | None:
        left = min(self.deadline - time.monotonic(), SOCKET_TIMEOUT_SECONDS)
        self._connection.settimeout(max(left, 0.001))
        return super().readinto(buffer)


def _linger(connection: socket.socket) -> None:
    """Take in what the caller still sends: closing on unread bytes resets the connection and loses the answer.

    Alertmanager would report a broken pipe, and try again, where it was told 401 or 413.
    """
    connection.shutdown(socket.SHUT_WR)
    deadline = time.monotonic() + LINGER_SECONDS
    while (left := deadline - time.monotonic()) > 0:
        connection.settimeout(left)
        if not connection.recv(65536):
            return
