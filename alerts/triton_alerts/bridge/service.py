"""The running bridge: the HTTP server, one delivery thread per channel, and one thread per background task."""

from __future__ import annotations

import logging
import random
import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from triton_alerts.bridge.deliver.worker import DeliveryWorker
from triton_alerts.bridge.incidents.store import PRUNED_AT_ONCE, Listed, Store
from triton_exporter.common.duration import DAY
from triton_exporter.http.server import Server

TICK_SECONDS = 1.0
"""Time between two runs of a chore."""
KEEP_SECONDS = 30.0 * DAY
"""Time after which closed incidents are deleted: people read them later, and `incidents summary` counts them."""
PRUNE_SECONDS = 3600.0
"""Time until old incidents are deleted again, once none was left to delete."""
FAILURE_SECONDS = 5.0
"""Seconds until the next step of a worker after its step failed because of the bridge itself."""

log = logging.getLogger(__name__)


Chore = Callable[[float], None]
"""A check that runs about once a second; receives the time."""


@dataclass(frozen=True)
class Wakeups:
    """The events that the delivery threads wait for; a part that stores something to send sets all of them."""

    _events: list[threading.Event] = field(default_factory=list)

    def event(self) -> threading.Event:
        """Return the event of one more delivery thread."""
        self._events.append(threading.Event())
        return self._events[-1]

    def wake(self) -> None:
        """Let each delivery thread check now whether there is something to send."""
        for event in list(self._events):
            event.set()


@dataclass
class Service:
    """Starts and stops the threads of a bridge. Each worker and each chore has a thread of its own."""

    store: Store
    receiver: Server
    workers: Sequence[DeliveryWorker]
    clock: Callable[[], float]
    chores: Sequence[Chore] = ()
    listed: Callable[[float], Listed | None] = lambda _now: None
    wakeups: Wakeups = field(default_factory=Wakeups)
    _pruned: float = 0.0
    _stopping: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        """Start a thread for each channel, one for each chore, and the receiver; return at once."""
        for worker in self.workers:
            self._thread(f"worker {worker.channel}", self._deliver, worker, self.wakeups.event())
        for chore in (self._merge_held, self._prune, *self.chores):
            self._thread("chore", self._tick, chore)
        self._thread("receiver", self.receiver.serve_forever, 0.2)

    def stop(self, timeout_seconds: float = 10.0) -> None:
        """Stop receiving, and let current requests end; pending messages are sent after the next start."""
        self.receiver.shutdown()
        self.receiver.server_close()
        self._stopping.set()
        self.wakeups.wake()
        for thread in self._threads:
            thread.join(timeout_seconds)
        self.store.close()

    def _thread(self, name: str, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _deliver(self, worker: DeliveryWorker, news: threading.Event) -> None:
        while not self._stopping.is_set():
            news.clear()
            try:
                wait = worker.step()
            except sqlite3.Error as error:
                self.store.database.report(error)
                wait = FAILURE_SECONDS
            except Exception:
                # A defect must not stop the channel: log it, and continue after a pause.
                log.exception("channel %s: a step of its worker failed; it is tried again", worker.channel)
                wait = FAILURE_SECONDS + random.random()  # noqa: S311
            if wait > 0:
                news.wait(wait)

    def _tick(self, chore: Chore) -> None:
        while not self._stopping.wait(TICK_SECONDS):
            try:
                chore(self.clock())
            except sqlite3.Error as error:
                self.store.database.report(error)
            except Exception:
                log.exception("a chore failed; it is tried again")

    def _merge_held(self, now: float) -> None:
        if self.store.merge_held(now, self.listed):
            self.wakeups.wake()

    def _prune(self, now: float) -> None:
        # The clock may be set back.
        if 0 <= now - self._pruned < PRUNE_SECONDS:
            return
        if self.store.prune(now - KEEP_SECONDS) < PRUNED_AT_ONCE and not self.store.database.shrink():
            self._pruned = now
