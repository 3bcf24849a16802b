"""Every series the bridge exposes about itself; the rows stand in the catalogue, for dashboards too."""

from __future__ import annotations

from triton_exporter.catalogue.bridge import (
    ACTIONS,
    BRIDGE_JOB,
    BUILD_INFO,
    DATABASE_SIZE,
    DELIVERED,
    ENRICHMENT_FAILURES,
    ERROR_KINDS,
    HEARTBEAT,
    IN_DOUBT,
    MESSAGE_KINDS,
    OLDEST_UNDELIVERED_AGE,
    OPEN_INCIDENTS,
    OUTCOMES,
    RECEIVED,
    REJECTED,
    SEND_FAILURES,
    SOCKET_CONNECTED,
    STORE_FAILURES,
    UNDELIVERED,
)
from triton_exporter.catalogue.metric import Metric

__all__ = [
    "ACTIONS",
    "BRIDGE_JOB",
    "BUILD_INFO",
    "DATABASE_SIZE",
    "DELIVERED",
    "ENRICHMENT_FAILURES",
    "ERROR_KINDS",
    "HEARTBEAT",
    "IN_DOUBT",
    "MESSAGE_KINDS",
    "METRICS",
    "OLDEST_UNDELIVERED_AGE",
    "OPEN_INCIDENTS",
    "OUTCOMES",
    "RECEIVED",
    "REJECTED",
    "SEND_FAILURES",
    "SOCKET_CONNECTED",
    "STORE_FAILURES",
    "UNDELIVERED",
]

METRICS: tuple[Metric, ...] = tuple(value for value in list(vars().values()) if isinstance(value, Metric))
