"""The interfaces of the exporter's parts: a part implements those that it needs, and `Exporter` calls it by them.

All but `Poller` and `Closer` are called under the exporter's lock, so that a page is consistent: no IO, no waiting.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol, runtime_checkable

from triton_exporter.exposition.parse import Exposition
from triton_exporter.family import Family
from triton_exporter.snapshot import Snapshot


@runtime_checkable
class Collector(Protocol):
    """Has series. Called by the thread of any scrape."""

    def families(self, now: float) -> Iterable[Family]:
        """Return families as of now (Unix seconds). One without samples still shows its HELP and TYPE."""


@runtime_checkable
class SnapshotObserver(Protocol):
    """Gets the result of each poll of Triton's API."""

    def observe_snapshot(self, snapshot: Snapshot) -> None:
        """Process index, statistics and configurations."""


@runtime_checkable
class MetricsObserver(Protocol):
    """Gets families of complete bodies of Triton's metrics, once a second at most."""

    observed: Collection[str]
    """The names of the families that it needs; others may come with them."""

    def observe(self, exposition: Exposition, now: float) -> None:
        """Process one body, read at `now` (Unix seconds, never going back)."""


@runtime_checkable
class MetricsSampler(Protocol):
    """A MetricsObserver that also gets some families of every reading between those that all observers get."""

    sampled: Collection[str]
    """The names of these families."""

    def sample(self, exposition: Exposition, now: float) -> None:
        """Process these families of one body, read at `now` (Unix seconds, never going back)."""


@runtime_checkable
class Poller(Protocol):
    """Does IO in a thread of its own, without the lock; it guards what it shares with its `families`."""

    interval_seconds: float

    def poll(self, now: float) -> None:
        """Poll once. An error that escapes is logged and counted, and the next poll still comes."""


@runtime_checkable
class Closer(Protocol):
    """A Poller with an open resource: closed by its own thread when that ends."""

    def close(self) -> None:
        """Close it."""
