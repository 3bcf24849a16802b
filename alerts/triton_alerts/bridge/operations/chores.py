"""Chores while incidents are open: escalation, silences that end, alerts that ended without a notification,
and a watchdog that no longer arrives."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from triton_alerts.alertmanager_client import Alertmanager, ServerError
from triton_alerts.bridge.deliver.worker import Escalation
from triton_alerts.bridge.incidents.alertmanagers import SETTLED_SECONDS, Alertmanagers, firing
from triton_alerts.bridge.incidents.incident import Event, Incident, Silence, SilencePart
from triton_alerts.bridge.incidents.instruments import HEARTBEAT_VALUE
from triton_alerts.bridge.incidents.merging import record_severity
from triton_alerts.bridge.incidents.notification import Member, Notification, fingerprint
from triton_alerts.bridge.incidents.store import Store
from triton_alerts.bridge.operations.actions import RENEW_SECONDS
from triton_exporter.duration import in_words
from triton_slo.names import COMPONENT, SEVERITY

COMPARE_SECONDS = 60.0
MISSING_SECONDS = 180.0
"""An alert counts as ended when Alertmanager has not listed it for so long: three of Prometheus's resends."""

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
        for number, incident in self.store.incidents.open():
            if self._due(incident, now) and not self._is_summed_up(number):
                channel = self.how.channel or self.channel_for(incident.severity)
                self.store.escalate(number, channel, now, partial(self._mark, now))
                self.escalated(now, incident, channel)
                self.wake()

    def _due(self, incident: Incident, now: float) -> bool:
        waits = incident.acknowledged is None and not incident.silenced and incident.escalated_at is None
        nobody_since = max(incident.opened_at, incident.released_at or 0.0)
        return waits and incident.severity == "critical" and now - nobody_since >= self.how.after_seconds

    def _is_summed_up(self, number: int) -> bool:
        """Return whether a digest is all that shows it: it is escalated once it has a message of its own."""
        main = self.store.outbox.main(number)
        return main is not None and bool(main.digest and main.digest_seq) and not main.root_ts

    def _mark(self, now: float, before: Incident) -> Changed:
        event = Event(at=now, kind="escalated", text=in_words(self.how.after_seconds))
        return before.model_copy(update={"escalated_at": now}), (event,)


@dataclass(frozen=True, slots=True)
class AlertmanagerState:
    """An Alertmanager's alerts (by start) and silences (by end); `settled`: Prometheus has sent it every alert."""

    firing: Mapping[str, float]
    silences: Mapping[str, float]
    settled: bool


@dataclass
class Reconciler:
    """Compares incidents with Alertmanager, which sends nothing about an alert that ends while it is silenced.

    Each silence and each alert is compared on its own: a refusal delays nothing else.
    """

    store: Store
    alertmanagers: Alertmanagers
    wake: Callable[[], None]
    failed: Callable[[], None] = lambda: None
    _compared_at: float = 0.0
    _missing: dict[tuple[int, str], float] = field(default_factory=dict)
    """Time since which an incident's alert or silence is not listed."""
    _newest: int = 0
    _senders: set[str] = field(default_factory=set)

    def __call__(self, now: float) -> None:
        if 0 <= now - self._compared_at < COMPARE_SECONDS and not self._has_new_sender():
            return
        self._compared_at = now
        opened, silenced = self.store.incidents.open(), self.store.incidents.silenced()
        if not opened and not silenced:
            self._missing.clear()
            return
        answers = {}
        for alertmanager in self.alertmanagers.each:
            try:
                answers[alertmanager.url] = self._ask(alertmanager, now)
            except ServerError as error:
                self._complain(error)
                continue
            self.alertmanagers.learn(
                alertmanager, answers[alertmanager.url].firing, (incident for _, incident in opened)
            )
        missing = self._missing_alerts(opened, answers) | self._missing_silences(silenced, answers)
        self._missing = {key: min(self._missing.get(key, now), now) for key in missing}
        self._end_alerts(opened, now)
        for number, incident in silenced:
            if incident.silence is None:
                continue
            alertmanager = self.alertmanagers.at(incident.silence.alertmanager)
            try:
                self._keep_silence(
                    number, incident, incident.silence, alertmanager, answers.get(alertmanager.url), now
                )
            except ServerError as error:
                self._complain(error)

    def _has_new_sender(self) -> bool:
        """Return whether a new incident has alerts of a sender that no incident had.

        Which Alertmanager it is shows only while one of these alerts is listed.
        """
        newest = self.store.incidents.newest()
        if newest == self._newest:
            return False
        self._newest = newest
        incidents = [incident for _, incident in self.store.incidents.open()]
        senders = {member.source for incident in incidents for member in incident.firing}
        is_new = not senders <= self._senders
        self._senders |= senders
        return is_new

    def _ask(self, alertmanager: Alertmanager, now: float) -> AlertmanagerState:
        return AlertmanagerState(
            firing(alertmanager), alertmanager.silences(), now - alertmanager.up_since() >= SETTLED_SECONDS
        )

    def _complain(self, error: ServerError) -> None:
        log.warning("could not compare with Alertmanager: %s", error)
        self.failed()

    def _missing_alerts(
        self, opened: Sequence[tuple[int, Incident]], answers: Mapping[str, AlertmanagerState]
    ) -> set[tuple[int, str]]:
        """Return the alerts that no responsible Alertmanager lists; they stay missing while one cannot be asked."""
        missing = set()
        senders = {
            alertmanager.url: set(self.alertmanagers.senders(alertmanager))
            for alertmanager in self.alertmanagers.each
        }
        for number, incident in opened:
            for name, member in incident.members.items():
                responsible = [url for url, known in senders.items() if member.source in known]
                if not member.firing or not responsible:
                    continue
                asked = [answers[url] for url in responsible if url in answers and answers[url].settled]
                if len(asked) < len(responsible):
                    # Without an answer of every Alertmanager that sends the alert, it is not known to be missing.
                    missing |= {(number, name)} & self._missing.keys()
                elif not any(name in answer.firing for answer in asked):
                    missing.add((number, name))
        return missing

    def _missing_silences(
        self, silenced: Sequence[tuple[int, Incident]], answers: Mapping[str, AlertmanagerState]
    ) -> set[tuple[int, str]]:
        missing = set()
        for number, incident in silenced:
            if incident.silence is None or not self.alertmanagers.each:
                continue
            key = (number, incident.silence.id)
            answer = answers.get(self.alertmanagers.at(incident.silence.alertmanager).url)
            if (
                key in self._missing
                if answer is None
                else not set(incident.silence.ids) <= answer.silences.keys()
            ):
                missing.add(key)
        return missing

    def _end_alerts(self, opened: Sequence[tuple[int, Incident]], now: float) -> None:
        for number, incident in opened:
            ended = {
                name
                for name in incident.members
                if now - self._missing.get((number, name), now) >= MISSING_SECONDS
            }
            if ended:
                self.store.change(number, partial(_end, ended, now))
                self.wake()

    def _keep_silence(
        self,
        number: int,
        incident: Incident,
        silence: Silence,
        alertmanager: Alertmanager,
        answer: AlertmanagerState | None,
        now: float,
    ) -> None:
        if not incident.open:
            if silence.until_resolved:
                if answer is None:
                    return
                self._end_silence(alertmanager, silence)
            self.store.change(number, partial(_set_silence, silence, None, ()))
        elif silence.until <= now:
            self._silence_over(number, silence, "the silence has ended, and the alert is still firing", now)
        elif answer is None:
            return
        elif now - self._missing.get((number, silence.id), now) >= COMPARE_SECONDS:
            self._end_silence(alertmanager, silence)
            text = "the silence was ended in Alertmanager, or lost there, and no end of the alert is known"
            self._silence_over(number, silence, text, now)
        elif silence.id in answer.silences:
            current = silence
            if silence.until_resolved and silence.until - now < RENEW_SECONDS / 2:
                current = self._renewed(alertmanager, incident, silence, now)
            elif abs(answer.silences[silence.id] - silence.until) > 1.0:
                # Somebody moved its end in Alertmanager.
                current = silence.model_copy(update={"until": answer.silences[silence.id]})
            self.store.change(number, partial(_set_silence, silence, current, ()))

    def _renewed(
        self, alertmanager: Alertmanager, incident: Incident, silence: Silence, now: float
    ) -> Silence:
        until, comment = now + RENEW_SECONDS, f"incident {incident.name}, from Slack"

        def renewed(part: SilencePart) -> SilencePart:
            wire = [matcher.wire() for matcher in part.matchers]
            number = alertmanager.silence(wire, now, until, silence.by, comment, part.id)
            return part.model_copy(update={"id": number})

        first = renewed(SilencePart(id=silence.id, matchers=silence.matchers or incident.matchers[0]))
        parts = tuple(map(renewed, silence.parts))
        return silence.model_copy(
            update={"id": first.id, "until": until, "matchers": first.matchers, "parts": parts}
        )

    def _end_silence(self, alertmanager: Alertmanager, silence: Silence) -> None:
        for number in silence.ids:
            alertmanager.unsilence(number)

    def _silence_over(self, number: int, silence: Silence, text: str, now: float) -> None:
        event = Event(at=now, kind="unsilenced", text=text)
        self.store.change(number, partial(_set_silence, silence, None, (event,)))
        self.wake()


def _set_silence(
    known: Silence | None, silence: Silence | None, events: tuple[Event, ...], before: Incident
) -> Changed:
    """Replace the silence, unless somebody has changed it meanwhile."""
    if before.silence is None or before.silence != known:
        return before, ()
    return before.model_copy(update={"silence": silence}), events


def _end(ended: set[str], now: float, before: Incident) -> Changed:
    members = dict(before.members)
    gone = [name for name, member in members.items() if member.firing and name in ended]
    for name in gone:
        members[name] = members[name].model_copy(update={"ends_at": now, "source": "asked"})
    if not gone:
        return before, ()
    text = f"resolved: {len(gone)} alert{'s' if len(gone) > 1 else ''} that Alertmanager no longer lists"
    events = [Event(at=now, kind="note", text=text)]
    closed_at = None if any(member.firing for member in members.values()) else now
    if closed_at is not None:
        events.append(Event(at=now, kind="closed"))
    after = before.model_copy(update={"members": members, "closed_at": closed_at})
    return record_severity(before, after, now)[0], tuple(events)


@dataclass
class HeartbeatWatch:
    """Opens an incident when the watchdog alert has arrived before and no longer does."""

    store: Store
    timeout_seconds: float
    wake: Callable[[], None]
    _started: float | None = None

    def __call__(self, now: float) -> None:
        # The clock may be put back.
        self._started = now if self._started is None else min(self._started, now)
        last = self.store.values.get(HEARTBEAT_VALUE)
        if last is None:
            return
        # Notifications that were missed while the bridge was stopped do not count against Alertmanager.
        quiet = now - max(float(last), self._started) > self.timeout_seconds
        silent_since = self.store.values.get("silent_since") or ""
        if quiet and not silent_since:
            self._report(float(last), None, now, silent_since=last)
        elif not quiet and silent_since and float(last) > float(silent_since):
            self._report(float(silent_since), now, now, silent_since="")

    def _report(self, start: float, end: float | None, now: float, *, silent_since: str) -> None:
        alert = Member(
            labels={"alertname": "AlertPipelineSilent", SEVERITY: "critical", COMPONENT: "meta"},
            annotations={
                "summary": "The watchdog alert no longer arrives: other alerts may not reach Slack either",
                "description": "Prometheus, Alertmanager or the network between them and the bridge is "
                "broken. Until it is fixed, a page may not arrive.",
                "action": "Check that Prometheus and Alertmanager run, and reach each other and the bridge.",
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
