"""The interfaces of the exporter's parts: a part implements those that it needs, and `Parts` calls it by them.

All but `Poller` and `Closer` are called under the exporter's lock, so that a page is consistent: no IO, no waiting.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol, runtime_checkable

from triton_exporter.exposition.parse import Exposition
from triton_exporter.family import Family
from triton_exporter.snapshot import Snapshot

_LOG = logging.getLogger(__name__)


@runtime_checkable
class Collector(Protocol):
    """A part with series of its own; called by the thread of any scrape."""

    def families(self, now: float) -> Iterable[Family]:
        """Return families as of now (Unix seconds). One without samples still shows its HELP and TYPE."""


@runtime_checkable
class SnapshotObserver(Protocol):
    """Gets the result of each poll of Triton's API."""

    def observe_snapshot(self, snapshot: Snapshot) -> None:
        """Process the index, statistics and configurations of a poll."""


@runtime_checkable
class MetricsObserver(Protocol):
    """Gets families of complete bodies of Triton's metrics: once a second, or as often as the sampling interval."""

    @property
    def observed(self) -> Collection[str]:
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


class Parts:
    """All parts of one exporter, in the order in which they are called.

    An error that a part did not foresee is logged, and the others go on.
    """

    def __init__(self, parts: Iterable[object]) -> None:
        self.all = tuple(parts)
        # Found once: to check the interfaces of all parts at each reading costs as much as to parse it.
        self._observers = [part for part in self.all if isinstance(part, MetricsObserver)]
        self._samplers = [part for part in self.all if isinstance(part, MetricsSampler)]
        self.observed = frozenset(name for part in self._observers for name in part.observed)
        self.sampled = frozenset(name for part in self._samplers for name in part.sampled)

    def observe(self, exposition: Exposition, now: float) -> None:
        """Give the families `observed` of a reading to all observers."""
        for part in self._observers:
            guarded(part.observe, exposition, now)

    def sample(self, exposition: Exposition, now: float) -> None:
        """Give the families `sampled` of a reading between two that are observed to those that want every one."""
        for part in self._samplers:
            guarded(part.sample, exposition, now)

    def observe_snapshot(self, snapshot: Snapshot) -> None:
        """Give the result of one poll of Triton's API to all that want it."""
        for part in self.all:
            if isinstance(part, SnapshotObserver):
                guarded(part.observe_snapshot, snapshot)

    def families(self, now: float) -> Iterable[Family]:
        """Yield the families of every part."""
        for part in self.all:
            if isinstance(part, Collector):
                yield from _collected(part, now)


def guarded(call: Callable[..., None], *arguments: object) -> bool:
    """Call a part; return whether it ended as it should. What it did not foresee is logged."""
    try:
        call(*arguments)
    except Exception:  # noqa: BLE001 - the boundary: one part must not take down the others
        _LOG.exception("%s failed", getattr(call, "__qualname__", call))
        return False
    return True


def _collected(collector: Collector, now: float) -> Sequence[Family]:
    """Return all families of one part, or none: part of them would be taken for all."""
    try:
        return list(collector.families(now))
    except Exception:  # noqa: BLE001 - the boundary, as in `guarded`
        _LOG.exception("%s.families failed", type(collector).__qualname__)
        return ()
