"""The bridge's own metrics, named in its catalogue."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from triton_alerts.bridge.incidents.store import Store
from triton_exporter.catalogue.external import bridge
from triton_exporter.catalogue.metric import Metric
from triton_exporter.common.installed_version import installed_version
from triton_slo.names import SEVERITIES

HEARTBEAT_VALUE = "heartbeat"


class Instruments:
    """Counters that start at 0 for every known label value, and gauges read from the store when scraped."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self.registry = CollectorRegistry()
        self.received = self._counter(bridge.RECEIVED, bridge.OUTCOMES)
        self.rejected = self._counter(bridge.REJECTED, ("400", "401", "413"))
        self.store_failures = self._counter(bridge.STORE_FAILURES)
        self.delivered = self._counter(bridge.DELIVERED, bridge.MESSAGE_KINDS)
        self.failed = self._counter(bridge.SEND_FAILURES, bridge.ERROR_KINDS)
        self.unconfirmed = self._counter(bridge.IN_DOUBT, ("found", "resent"))
        self.actions = self._counter(bridge.ACTIONS)
        self.enrichment_failures = self._counter(bridge.ENRICHMENT_FAILURES, bridge.EVIDENCE_SOURCES)
        self._gauge(bridge.BUILD_INFO).labels(installed_version("unknown")).set(1)
        self.registry.register(_StoreState(store, clock))

    def count(self, what: str, kind: str) -> None:
        """Count what a delivery worker did: delivered, failed or unconfirmed."""
        counters = {"delivered": self.delivered, "failed": self.failed, "unconfirmed": self.unconfirmed}
        counters[what].labels(kind).inc()

    def show_socket(self, connected: Callable[[], bool]) -> None:
        """Expose whether buttons work; without this the series is absent."""
        self._gauge(bridge.SOCKET_CONNECTED).set_function(lambda: float(connected()))

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
        yield _gauge_family(bridge.OLDEST_UNDELIVERED_AGE, age)
        yield _gauge_family(bridge.UNDELIVERED, undelivered)
        count = self._store.incidents.count_open()
        family = GaugeMetricFamily(
            str(bridge.OPEN_INCIDENTS), bridge.OPEN_INCIDENTS.help, labels=["severity"]
        )
        for severity in SEVERITIES[:-1]:
            family.add_metric([severity], count.get(severity, 0))
        yield family
        if heartbeat := self._store.values.get(HEARTBEAT_VALUE):
            yield _gauge_family(bridge.HEARTBEAT, float(heartbeat))
        yield _gauge_family(bridge.DATABASE_SIZE, self._size())

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
