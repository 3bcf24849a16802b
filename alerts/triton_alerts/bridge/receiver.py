"""HTTP endpoint of the bridge: notifications and the bridge's own metrics.

A notification is stored, then acknowledged. Alertmanager retries a 5xx, never a 4xx (429 included), and forgets a
notification after 200. So the response is 200 when the notification is on disk, 503 when it cannot be stored, and 4xx
for what no retry can fix.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from triton_alerts.bridge.incidents.history import list_incidents, to_json
from triton_alerts.bridge.incidents.notification import MalformedError, Member, parse
from triton_alerts.bridge.incidents.store import Store
from triton_exporter.catalogue.metric import Metric
from triton_exporter.common.installed_version import installed_version
from triton_exporter.http.certificates import ReloadedTls, ServerCertificates
from triton_exporter.http.server import Connections, RefusedError, Request, Response, Server, routed
from triton_exporter.http.web_config import WebConfig
from triton_slo import bridge_series
from triton_slo.names import SEVERITIES, SEVERITY

HEARTBEAT_VALUE = "heartbeat"


class Instruments:
    """Counters that start at 0 for every known label value, and gauges read from the store when scraped."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self.registry = CollectorRegistry()
        self.received = self._counter(bridge_series.RECEIVED, bridge_series.OUTCOMES)
        self.rejected = self._counter(bridge_series.REJECTED, ("400", "401", "413"))
        self.store_failures = self._counter(bridge_series.STORE_FAILURES)
        self.delivered = self._counter(bridge_series.DELIVERED, bridge_series.MESSAGE_KINDS)
        self.failed = self._counter(bridge_series.SEND_FAILURES, bridge_series.ERROR_KINDS)
        self.unconfirmed = self._counter(bridge_series.IN_DOUBT, ("found", "resent"))
        self.actions = self._counter(bridge_series.ACTIONS)
        self.enrichment_failures = self._counter(
            bridge_series.ENRICHMENT_FAILURES, bridge_series.EVIDENCE_SOURCES
        )
        self._gauge(bridge_series.BUILD_INFO).labels(installed_version("unknown")).set(1)
        self.registry.register(_StoreState(store, clock))

    def count(self, what: str, kind: str) -> None:
        """Count what a delivery worker did: delivered, failed or unconfirmed."""
        counters = {"delivered": self.delivered, "failed": self.failed, "unconfirmed": self.unconfirmed}
        counters[what].labels(kind).inc()

    def show_socket(self, connected: Callable[[], bool]) -> None:
        """Expose whether buttons work; without this the series is absent."""
        self._gauge(bridge_series.SOCKET_CONNECTED).set_function(lambda: float(connected()))

    def exposition(self) -> bytes:
        return generate_latest(self.registry)

    def _counter(self, row: Metric, values: Iterable[str] = ()) -> Counter:
        counter = Counter(row.name, row.help, row.labels, registry=self.registry)
        for value in values:
            counter.labels(value)
        return counter

    def _gauge(self, row: Metric) -> Gauge:
        return Gauge(row.name, row.help, row.labels, registry=self.registry)


class _StoreState(Collector):
    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock

    def collect(self) -> Iterable[GaugeMetricFamily]:
        try:
            yield from self._collected()
        except sqlite3.Error as error:  # the other metrics show that notifications are refused
            self._store.database.report(error)

    def _collected(self) -> Iterable[GaugeMetricFamily]:
        undelivered, oldest = self._store.outbox.backlog()
        age = 0.0 if oldest is None else max(0.0, self._clock() - oldest)
        yield _gauge_family(bridge_series.OLDEST_UNDELIVERED_AGE, age)
        yield _gauge_family(bridge_series.UNDELIVERED, undelivered)
        count = self._store.incidents.count_open()
        family = GaugeMetricFamily(
            str(bridge_series.OPEN_INCIDENTS), bridge_series.OPEN_INCIDENTS.help, labels=["severity"]
        )
        for severity in SEVERITIES[:-1]:
            family.add_metric([severity], count.get(severity, 0))
        yield family
        if heartbeat := self._store.values.get(HEARTBEAT_VALUE):
            yield _gauge_family(bridge_series.HEARTBEAT, float(heartbeat))
        yield _gauge_family(bridge_series.DATABASE_SIZE, self._size())

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return ()

    def _size(self) -> float:
        size, path = 0, self._store.database.path
        for suffix in ("", "-wal"):
            with contextlib.suppress(OSError, sqlite3.Error):
                size += path.with_name(path.name + suffix).stat().st_size
        return float(size)


def _gauge_family(row: Metric, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(row.name, row.help, value=value)


PATH = "/alertmanager"
INCIDENTS_PATH = "/incidents"
"""Path at which `tritonwatch web --bridge-url` reads the incidents."""
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
            if all(alert.labels.get(SEVERITY) == "none" for alert in notification.alerts.values()):
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
