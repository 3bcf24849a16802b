"""What comes due while incidents are open: escalation, silences that end, alerts that ended unseen, and a
watchdog that has gone quiet."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from triton_alerts.bridge.actions import RENEW_SECONDS
from triton_alerts.bridge.alertmanager import Alertmanager, UnreachableError
from triton_alerts.bridge.courier import Escalation
from triton_alerts.bridge.incident import Event, Incident, Silence
from triton_alerts.bridge.instruments import HEARTBEAT_FACT
from triton_alerts.bridge.store import Store
from triton_alerts.bridge.text import duration
from triton_slo.conventions import COMPONENT, SEVERITY

LOOK_SECONDS = 60.0
MISSING_SECONDS = 180.0
"""An alert counts as ended when Alertmanager has not listed it for so long: three of Prometheus's resends."""
SETTLED_SECONDS = 300.0
"""So long after its start Alertmanager has been told everything again."""

log = logging.getLogger(__name__)
Changed = tuple[Incident, tuple[Event, ...]]


@dataclass(frozen=True)
class Escalator:
    """Sends pages that nobody acknowledged or silenced once more; again only after one was handed back."""

    store: Store
    how: Escalation
    channel_for: Callable[[str], str]
    wake: Callable[[], None]
    escalated: Callable[[float, Incident, str], None] = lambda _at, _incident, _channel: None

    def __call__(self, now: float) -> None:
        for number, incident in self.store.open_incidents():
            if self._due(incident, now):
                channel = self.how.channel or self.channel_for(incident.severity)
                self.store.escalate(number, channel, now, partial(self._mark, now))
                self.escalated(now, incident, channel)
                self.wake()

    def _due(self, incident: Incident, now: float) -> bool:
        waits = incident.acknowledged is None and not incident.silenced and incident.escalated_at is None
        nobody_since = max(incident.opened_at, incident.released_at or 0.0)
        return waits and incident.severity == "critical" and now - nobody_since >= self.how.after_seconds

    def _mark(self, now: float, before: Incident) -> Changed:
        event = Event(at=now, kind="escalated", text=duration(self.how.after_seconds))
        return before.model_copy(update={"escalated_at": now}), (event,)


@dataclass
class Reconciler:
    """Asks Alertmanager what still fires: it says nothing about an alert that ends while it is silenced."""

    store: Store
    alertmanager: Alertmanager
    wake: Callable[[], None]
    failed: Callable[[], None] = lambda: None
    _looked: float = 0.0
    _missing: dict[str, float] = field(default_factory=dict)

    def __call__(self, now: float) -> None:
        if 0 <= now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        try:
            self._look(now)
        except UnreachableError as error:
            log.warning("could not compare with Alertmanager: %s", error)
            self.failed()

    def _look(self, now: float) -> None:
        opened = self.store.open_incidents()
        self._end_silences(now)
        if not opened:
            self._missing.clear()
            return
        if now - self.alertmanager.up_since() < SETTLED_SECONDS:
            return
        firing = self.alertmanager.firing()
        ours = {name for _, incident in opened for name, member in incident.members.items() if member.firing}
        self._missing = {name: min(self._missing.get(name, now), now) for name in ours - firing}
        ended = {name for name, since in self._missing.items() if now - since >= MISSING_SECONDS}
        for number, incident in opened:
            if ended & incident.members.keys():
                self.store.change(number, partial(_end, ended, now))
                self.wake()

    def _end_silences(self, now: float) -> None:
        for number, incident in self.store.silenced_incidents():
            silence = incident.silence
            if silence is None:
                continue
            if not incident.open:
                if silence.until_resolved:
                    self.alertmanager.unsilence(silence.id)
                self.store.change(number, partial(_set_silence, None, ()))
            elif silence.until_resolved and silence.until - now < RENEW_SECONDS / 2:
                until = now + RENEW_SECONDS
                comment = f"incident {incident.name}, from Slack"
                known = self.alertmanager.silence(
                    silence.matchers or incident.matchers, now, until, silence.by, comment, silence.id
                )
                renewed = silence.model_copy(update={"id": known, "until": until})
                self.store.change(number, partial(_set_silence, renewed, ()))
            elif silence.until <= now:
                event = Event(at=now, kind="unsilenced", text="the silence is over and it still fires")
                self.store.change(number, partial(_set_silence, None, (event,)))
                self.wake()


def _set_silence(silence: Silence | None, events: tuple[Event, ...], before: Incident) -> Changed:
    return before.model_copy(update={"silence": silence}), events


def _end(ended: set[str], now: float, before: Incident) -> Changed:
    members = dict(before.members)
    gone = [name for name, member in members.items() if member.firing and name in ended]
    for name in gone:
        members[name] = members[name].model_copy(update={"ends_at": now, "source": "asked"})
    if not gone:
        return before, ()
    text = f"{len(gone)} alerts ended unseen: Alertmanager no longer lists them"
    events = [Event(at=now, kind="note", text=text)]
    closed_at = None if any(member.firing for member in members.values()) else now
    if closed_at is not None:
        events.append(Event(at=now, kind="closed"))
    return before.model_copy(update={"members": members, "closed_at": closed_at}), tuple(events)


@dataclass
class HeartbeatWatch:
    """Opens an incident of its own when the watchdog was heard once and then no more."""

    store: Store
    timeout_seconds: float
    wake: Callable[[], None]
    _started: float | None = None

    def __call__(self, now: float) -> None:
        # The clock may be put back.
        self._started = now if self._started is None else min(self._started, now)
        heard = self.store.recall(HEARTBEAT_FACT)
        if heard is None:
            return
        # What was missed while the bridge itself was away is not Alertmanager's silence.
        quiet = now - max(float(heard), self._started) > self.timeout_seconds
        silent_since = self.store.recall("silent_since") or ""
        if quiet and not silent_since:
            self.store.remember("silent_since", heard)
            self._say(float(heard), None, now)
        elif not quiet and silent_since and float(heard) > float(silent_since):
            self._say(float(silent_since), now, now)
            self.store.remember("silent_since", "")

    def _say(self, start: float, end: float | None, now: float) -> None:
        alert = {
            "status": "firing" if end is None else "resolved",
            "labels": {"alertname": "AlertPipelineSilent", SEVERITY: "critical", COMPONENT: "meta"},
            "annotations": {
                "summary": "The alert pipeline has gone quiet: no watchdog arrives",
                "description": "Prometheus or Alertmanager no longer reaches the bridge. Until it does, no "
                "alert will arrive, whatever breaks.",
                "action": "See whether Prometheus and Alertmanager run and reach each other.",
            },
            "startsAt": _rfc3339(start),
            **({"endsAt": _rfc3339(end)} if end is not None else {}),
        }
        body = {"version": "4", "receiver": "bridge", "groupKey": "watchdog", "alerts": [alert]}
        self.store.receive(json.dumps({**body, "status": alert["status"]}).encode(), "bridge", now)
        self.wake()


def _rfc3339(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()
