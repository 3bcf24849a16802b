"""Webhook endpoint: authenticate the caller, store the notification, then acknowledge it.

Alertmanager retries a 5xx, never a 4xx (429 included), and forgets a notification after 200. So the response is
200 when the notification is on disk, 503 when it cannot be stored, and 4xx for what no retry can fix.
"""

from __future__ import annotations

import hmac
import logging
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass

from triton_alerts.bridge.incidents.history import list_incidents, to_json
from triton_alerts.bridge.incidents.instruments import HEARTBEAT_VALUE, Instruments
from triton_alerts.bridge.incidents.notification import MalformedError, Member, Notification, parse
from triton_alerts.bridge.incidents.store import Store
from triton_exporter.http.certificates import ReloadedTls, ServerCertificates
from triton_exporter.http.connections import Connections
from triton_exporter.http.server import RefusedError, Request, Response, Server, routed
from triton_exporter.http.web_config import WebConfig
from triton_slo.names import SEVERITY

PATH = "/alertmanager"
INCIDENTS_PATH = "/incidents"
"""Path at which `tritonwatch web --bridge-data URL` reads the incidents."""
MAX_BODY_BYTES = 32 * 1024 * 1024
"""Bytes of one body: some 20,000 alerts. A 413 is never retried, so the limit is far above any real group."""
MAX_CONNECTIONS = 64
REQUEST_SECONDS = 30.0
"""Time for the head of a request, and again for its body: 32 MiB within it are 9 Mbit/s."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Webhook:
    """Handler of the bridge's requests. `token` returns the bearer token that Alertmanager must send, if any.

    `may_still_fire` returns whether an alert that a notification omits may fire: see `Store.receive`.
    """

    store: Store
    instruments: Instruments
    clock: Callable[[], float]
    wake: Callable[[], None]
    token: Callable[[], str] | None = None
    ready: Callable[[], str] = lambda: ""
    max_body_bytes: int = MAX_BODY_BYTES
    may_still_fire: Callable[[str, Member], bool] = lambda _fingerprint, _member: False

    def answer(self, request: Request) -> Response:
        """Answer one request; a notification that is refused is counted and logged, since 4xx are not retried."""
        exposition = "text/plain; version=0.0.4; charset=utf-8"
        routes = {
            f"POST {PATH}": self._notification,
            f"GET {INCIDENTS_PATH}": self._incidents,
            "GET /metrics": lambda _: Response(self.instruments.exposition(), exposition),
            "GET /-/healthy": lambda _: Response(b"healthy\n"),
            "GET /-/ready": lambda _: self._readiness(),
        }
        response = routed(routes)(request)
        if request.method == "POST" and response.status != 200:
            text = response.body.decode().strip() if isinstance(response.body, bytes) else ""
            log.warning("refused a request from %s with %d: %s", request.client, response.status, text)
            self.instruments.rejected.labels(str(response.status)).inc()
        return response

    def receive(self, body: bytes, source: str) -> str:
        """Store one notification; return its effect on its incident. Raises RefusedError."""
        try:
            notification = parse(body, source)
            if _is_heartbeat(notification):
                self.store.values.set(HEARTBEAT_VALUE, repr(self.clock()))
                outcome = "heartbeat"
            else:
                outcome = self.store.receive(notification, self.clock(), self.may_still_fire)
        except MalformedError as error:
            raise RefusedError(400, f"not an Alertmanager webhook body, version 4: {error}") from error
        except sqlite3.Error as error:
            self.instruments.store_failures.inc()
            self.store.database.report(error)
            raise RefusedError(503, "cannot store; try again") from error
        self.instruments.received.labels(outcome).inc()
        self.wake()
        return outcome

    def _notification(self, request: Request) -> Response:
        if denied := self._denied(request.headers.get("authorization", "")):
            return denied
        try:
            body = request.read(self.max_body_bytes)
        except RefusedError as refused:
            if refused.status == 408:  # a slow or broken network: Alertmanager must retry
                raise RefusedError(503, str(refused)) from refused
            raise
        return Response(f"{self.receive(body, request.client)}\n".encode())

    def _incidents(self, request: Request) -> Response:
        """Return all recorded incidents to a caller with the token; without --token-file, to no caller."""
        if self.token is None:
            return Response(b"start the bridge with --token-file to have its incidents read\n", status=403)
        if denied := self._denied(request.headers.get("authorization", "")):
            return denied
        try:
            recorded = list_incidents(self.store.database.path.parent)
        except sqlite3.Error as error:
            self.store.database.report(error)
            return Response(b"the database cannot be read; try again\n", status=503)
        return Response(to_json(recorded), "application/json")

    def _denied(self, authorization: str) -> Response | None:
        """Return the response to a caller without the token, which is compared in constant time.

        A token file that is missing or empty, as during a rotation, admits no caller; 503 is retried.
        """
        if self.token is None:
            return None
        try:
            token = self.token()
        except (OSError, UnicodeDecodeError):
            token = ""
        if not token:
            log.error("the file of the bearer token cannot be read or is empty: no caller is admitted")
            return Response(b"the bearer token is not known; try again\n", status=503)
        shown = authorization.removeprefix("Bearer ").strip()
        if hmac.compare_digest(shown.encode("utf-8", "replace"), token.encode()):
            return None
        challenge = {"WWW-Authenticate": "Bearer"}
        return Response(b"wrong or missing bearer token\n", status=401, headers=challenge)

    def _readiness(self) -> Response:
        reason = self.ready()
        return Response(f"{reason or 'ready'}\n".encode(), status=503 if reason else 200)


def _is_heartbeat(notification: Notification) -> bool:
    return all(alert.labels.get(SEVERITY) == "none" for alert in notification.alerts.values())


def listen(
    address: tuple[str, int],
    webhook: Webhook,
    certificates: ServerCertificates | None = None,
    request_seconds: float = REQUEST_SECONDS,
) -> Server:
    """Listen for Alertmanager; `serve_forever` answers. Raises OSError."""
    web = WebConfig(ReloadedTls(certificates) if certificates else None)
    connections = Connections(MAX_CONNECTIONS, request_seconds=request_seconds)
    return Server(*address, webhook.answer, web, connections, request_seconds)
