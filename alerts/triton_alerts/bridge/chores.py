"""Chores: a move to other channels, escalation of pages, and a page when no Watchdog notification arrives."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from triton_alerts.bridge.deliver.worker import Escalation
from triton_alerts.bridge.incidents.incident import Event, Incident
from triton_alerts.bridge.incidents.notification import Member, Notification, fingerprint
from triton_alerts.bridge.incidents.store import ChangedIncident, Store
from triton_alerts.bridge.receiver import HEARTBEAT_VALUE
from triton_exporter.common.duration import in_words
from triton_slo.names import COMPONENT, SEVERITY

log = logging.getLogger(__name__)


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
    """Escalates pages that nobody acknowledged or silenced: once, and again if an acknowledgement is removed."""

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
            waits and incident.severity == "critical" and now - nobody_since >= self.escalation.after_seconds
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
