"""The running bridge: the HTTP server, one delivery thread per channel, and one thread per background task.

The tasks: a move to other channels, escalation of pages, and a page when no Watchdog notification arrives.
"""

from __future__ import annotations

import logging
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from triton_alerts.bridge.deliver.worker import DeliveryWorker, Escalation
from triton_alerts.bridge.incidents.incident import Event, Incident
from triton_alerts.bridge.incidents.notification import Member, Notification, fingerprint
from triton_alerts.bridge.incidents.store import PRUNED_AT_ONCE, ChangedIncident, Listed, Store
from triton_alerts.bridge.receiver import HEARTBEAT_VALUE
from triton_exporter.common.duration import DAY, in_words
from triton_exporter.http.server import Server
from triton_slo.names import COMPONENT, SEVERITY

TICK_SECONDS = 1.0
"""Time between two runs of a chore."""
KEEP_SECONDS = 30.0 * DAY
"""Time after which closed incidents are deleted: people read them later."""
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
        deadline = time.monotonic() + timeout_seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
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


@dataclass
class ChannelMove:
    """Moves, once, what waits for a channel that is not written to any more; a full disk delays it."""

    store: Store
    escalations: str
    wake: Callable[[], None]
    _moved: bool = False

    def __call__(self, now: float) -> None:
        if not self._moved:
            self.store.outbox.move(self.escalations)
            self._moved = True
            self.wake()


@dataclass(frozen=True)
class Escalator:
    """Escalates pages that go on and that nobody has acknowledged or silenced: once, and again if an acknowledgement is removed."""

    store: Store
    escalation: Escalation
    channel_for: Callable[[str], str]
    wake: Callable[[], None]
    record_escalation: Callable[[float, Incident, str], None] = lambda _at, _incident, _channel: None

    def __call__(self, now: float) -> None:
        for number, incident in self.store.incidents.open():
            if not self._due(incident, now):
                continue
            main = self.store.outbox.main(number)
            if main is not None and main.digest and not main.ts:
                continue  # it is escalated once it has a message of its own
            channel = self.escalation.channel or self.channel_for(incident.severity)
            self.store.escalate(number, channel, now, partial(self._mark, now))
            self.record_escalation(now, incident, channel)
            self.wake()

    def _due(self, incident: Incident, now: float) -> bool:
        waits = incident.acknowledged is None and not incident.silenced and incident.escalated_at is None
        nobody_since = max(incident.opened_at, incident.released_at or 0.0)
        return (
            waits
            and incident.severity == "critical"
            and now - nobody_since >= self.escalation.after_seconds
            and not incident.is_over
        )

    def _mark(self, now: float, before: Incident) -> ChangedIncident:
        event = Event(at=now, kind="escalated", words=in_words(self.escalation.after_seconds))
        return before.model_copy(update={"escalated_at": now}), (event,)


@dataclass
class HeartbeatWatch:
    """Opens an incident when the watchdog alert has arrived before and no longer does."""

    store: Store
    timeout_seconds: float
    wake: Callable[[], None]
    _started: float | None = None

    def __call__(self, now: float) -> None:
        # The clock may be set back.
        self._started = now if self._started is None else min(self._started, now)
        last = self.store.values.get(HEARTBEAT_VALUE)
        if last is None:
            return
        # Notifications that were missed while the bridge was stopped do not count against Alertmanager.
        quiet = now - max(float(last), self._started) > self.timeout_seconds
        silent_since = self.store.values.get("silent_since") or ""
        if quiet and not silent_since:
            self._report_silence(float(last), None, now, silent_since=last)
        elif not quiet and silent_since and float(last) > float(silent_since):
            self._report_silence(float(silent_since), now, now, silent_since="")

    def _report_silence(self, start: float, end: float | None, now: float, *, silent_since: str) -> None:
        alert = Member(
            labels={"alertname": "AlertPipelineSilent", SEVERITY: "critical", COMPONENT: "meta"},
            annotations={
                "summary": "The Watchdog alert no longer arrives at the bridge: other alerts may not "
                "reach Slack either",
                "description": "Prometheus, Alertmanager or the network between them and the bridge is "
                "broken. Until it is fixed, a page may not arrive.",
                "action": "Check that Prometheus and Alertmanager run, that Prometheus can reach "
                "Alertmanager, and that Alertmanager can reach the bridge.",
            },
            starts_at=start,
            ends_at=end,
            source="bridge",
        )
        notification = Notification(
            key="bridge|watchdog",
            receiver="bridge",
            all_resolved=end is not None,
            alerts={fingerprint(alert.labels): alert},
            source="bridge",
        )
        with self.store.transaction():
            self.store.values.set("silent_since", silent_since)
            self.store.receive(notification, now)
        self.wake()
