"""What Alertmanager knows about the alerts of an incident, and what the bridge changes to match it.

An Alertmanager that never had the alert cannot show that it resolved: `Alertmanagers` chooses the one to query. The
`Reconciler` finds silences that end, and alerts that ended without a notification.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from triton_alerts.alertmanager_client import Alertmanager, ServerError
from triton_alerts.bridge.incidents.incident import Event, Incident, Silence, SilencePart
from triton_alerts.bridge.incidents.merging import becomes_more_urgent, reported
from triton_alerts.bridge.incidents.notification import Member, cut_values
from triton_alerts.bridge.incidents.store import ChangedIncident, Listed, Store
from triton_exporter.common.duration import DAY

SAME_START_SECONDS = 0.01
"""The API gives milliseconds, the webhook nanoseconds."""
MAX_SENDERS = 50
RESEND_SECONDS = 300.0
"""Seconds after which a restarted Alertmanager has received every firing alert again."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Alertmanagers:
    """The Alertmanagers that the bridge can query.

    The address that notifications come from can differ from the configured URL. Therefore an Alertmanager is
    responsible for the alerts of a sender once it has listed an alert of this sender.
    """

    each: tuple[Alertmanager, ...]
    store: Store

    def at(self, url: str) -> Alertmanager:
        """Return the Alertmanager with this URL; the first when it is not configured any more, or not recorded.

        Raises ServerError where no Alertmanager is configured.
        """
        if not self.each:
            raise ServerError("the bridge was started without --alertmanager")
        return next((alertmanager for alertmanager in self.each if alertmanager.url == url), self.each[0])

    def of(self, incident: Incident) -> Alertmanager:
        """Return the Alertmanager that knows the incident's alerts; raises ServerError."""
        self.at("")
        senders = {member.source for member in incident.firing}
        for alertmanager in self.each:
            if senders & set(self.senders(alertmanager)):
                return alertmanager
        problem = ServerError("no Alertmanager given with --alertmanager lists its alerts")
        for alertmanager in self.each:
            try:
                listed = listed_starts(alertmanager)
                if incident.members.keys() & listed.keys():
                    # A silenced alert may never be listed again: nothing else would show when it ended. With a
                    # full disk the answer is the same.
                    with suppress(sqlite3.Error):
                        self.learn(alertmanager, listed, [incident])
                    return alertmanager
            except ServerError as error:
                problem = error
        raise problem

    def may_still_fire(self, _fingerprint: str, member: Member) -> bool:
        """Return whether an alert that a notification omits may fire: an Alertmanager can be asked about it."""
        return any(member.source in self.senders(alertmanager) for alertmanager in self.each)

    def listed(self, now: float) -> Listed | None:
        """Return the alerts that fire in any of them; None if there is none to ask, or one does not respond."""
        alerts: dict[str, Mapping[str, str]] = {}
        complete = True
        for alertmanager in self.each:
            try:
                complete = complete and now - alertmanager.up_since() >= RESEND_SECONDS
                alerts |= {
                    alert.fingerprint: cut_values(alert.annotations) for alert in alertmanager.alerts()
                }
            except ServerError as error:
                log.warning("could not ask Alertmanager whether an alert is back: %s", error)
                return None
        return Listed(alerts, complete) if self.each else None

    def senders(self, alertmanager: Alertmanager) -> list[str]:
        """Return the senders of notifications whose alerts this Alertmanager has listed, oldest first."""
        return list(json.loads(self.store.values.get(_senders_key(alertmanager)) or "[]"))

    def learn(
        self, alertmanager: Alertmanager, firing: Mapping[str, float], incidents: Iterable[Incident]
    ) -> None:
        """Record the senders of the alerts that an Alertmanager lists."""
        known = self.senders(alertmanager)
        started = {
            member.source
            for incident in incidents
            for fingerprint, member in incident.members.items()
            # Alerts of two servers have the same fingerprint if no label differs.
            if member.firing and abs(firing.get(fingerprint, 0.0) - member.starts_at) <= SAME_START_SECONDS
        }
        if new := sorted(started - set(known)):
            self.store.values.set(_senders_key(alertmanager), json.dumps([*known, *new][-MAX_SENDERS:]))


def listed_starts(alertmanager: Alertmanager) -> dict[str, float]:
    """Return when each alert that fires started, by fingerprint."""
    return {alert.fingerprint: alert.starts_at for alert in alertmanager.alerts()}


def _senders_key(alertmanager: Alertmanager) -> str:
    return f"senders of {alertmanager.url}"


RENEW_SECONDS = float(DAY)
"""A silence "until resolved" lasts a day and is renewed, so that it ends on its own if the bridge is gone."""
COMPARE_SECONDS = 60.0
"""Time between two comparisons, and time for which a silence must be missing before it counts as ended."""
MISSING_SECONDS = 180.0
"""Time without being listed after which an alert counts as ended: three of Prometheus's resends."""


@dataclass(frozen=True, slots=True)
class AlertmanagerState:
    """An Alertmanager's alerts (by start) and silences (by end).

    `received_all`: Prometheus has sent it every firing alert.
    """

    firing: Mapping[str, float]
    silences: Mapping[str, float]
    received_all: bool


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
        answers = self._ask_all(opened, now)
        missing = self._missing_alerts(opened, answers) | self._missing_silences(silenced, answers)
        self._missing = {key: min(self._missing.get(key, now), now) for key in missing}
        self._end_alerts(opened, now)
        self._update_silences(silenced, answers, now)

    def _ask_all(self, opened: Sequence[tuple[int, Incident]], now: float) -> dict[str, AlertmanagerState]:
        """Return the state of each Alertmanager that answers, by URL, and learn whose alerts it lists."""
        answers = {}
        for alertmanager in self.alertmanagers.each:
            try:
                answer = self._alertmanager_state(alertmanager, now)
            except ServerError as error:
                self._report_failure(error)
                continue
            answers[alertmanager.url] = answer
            self.alertmanagers.learn(alertmanager, answer.firing, (incident for _, incident in opened))
        return answers

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

    def _alertmanager_state(self, alertmanager: Alertmanager, now: float) -> AlertmanagerState:
        return AlertmanagerState(
            listed_starts(alertmanager),
            alertmanager.silences(),
            now - alertmanager.up_since() >= RESEND_SECONDS,
        )

    def _report_failure(self, error: ServerError) -> None:
        log.warning("could not compare with Alertmanager: %s", error)
        self.failed()

    def _missing_alerts(
        self, opened: Sequence[tuple[int, Incident]], answers: Mapping[str, AlertmanagerState]
    ) -> set[tuple[int, str]]:
        """Return the alerts that no responsible Alertmanager lists; without a response, none changes."""
        missing = set()
        senders = {
            alertmanager.url: set(self.alertmanagers.senders(alertmanager))
            for alertmanager in self.alertmanagers.each
        }
        for number, incident in opened:
            for fingerprint, member in incident.members.items():
                responsible = [url for url, known in senders.items() if member.source in known]
                if not member.firing or not responsible:
                    continue
                asked = [answers[url] for url in responsible if url in answers and answers[url].received_all]
                if len(asked) < len(responsible):
                    # An Alertmanager that sends the alert has not answered: it may list the alert.
                    missing |= {(number, fingerprint)} & self._missing.keys()
                elif not any(fingerprint in answer.firing for answer in asked):
                    missing.add((number, fingerprint))
        return missing

    def _missing_silences(
        self, silenced: Sequence[tuple[int, Incident]], answers: Mapping[str, AlertmanagerState]
    ) -> set[tuple[int, str]]:
        """Return the silences that Alertmanager no longer has, or has in part; without a response none changes."""
        missing = set()
        for number, incident in silenced:
            silence = incident.silence
            if silence is None or not self.alertmanagers.each:
                continue
            answer = answers.get(self.alertmanagers.at(silence.alertmanager).url)
            if answer is None:
                missing |= {(number, silence.id)} & self._missing.keys()
            elif not set(silence.ids) <= answer.silences.keys():
                missing.add((number, silence.id))
        return missing

    def _end_alerts(self, opened: Sequence[tuple[int, Incident]], now: float) -> None:
        for number, incident in opened:
            ended = {
                fingerprint
                for fingerprint in incident.members
                if now - self._missing.get((number, fingerprint), now) >= MISSING_SECONDS
            }
            if ended:
                self.store.change(number, partial(_end, ended, now))
                self.wake()

    def _update_silences(
        self,
        silenced: Sequence[tuple[int, Incident]],
        answers: Mapping[str, AlertmanagerState],
        now: float,
    ) -> None:
        for number, incident in silenced:
            if incident.silence is None:
                continue
            alertmanager = self.alertmanagers.at(incident.silence.alertmanager)
            try:
                self._update_silence(
                    number, incident, incident.silence, alertmanager, answers.get(alertmanager.url), now
                )
            except ServerError as error:
                self._report_failure(error)

    def _update_silence(
        self,
        number: int,
        incident: Incident,
        silence: Silence,
        alertmanager: Alertmanager,
        answer: AlertmanagerState | None,
        now: float,
    ) -> None:
        """End a silence with its incident, record its end, or renew it; `answer` is its Alertmanager's."""
        if not incident.open:
            if silence.until_resolved:
                if answer is None:
                    return
                self._end_silence(alertmanager, silence)
            self.store.change(number, partial(_set_silence, silence, None, ()))
        elif silence.until <= now:
            self._record_end_of_silence(
                number, silence, "the silence has expired, and the alert is still firing", now
            )
        elif answer is None:
            return
        elif now - self._missing.get((number, silence.id), now) >= COMPARE_SECONDS:
            self._end_silence(alertmanager, silence)
            text = "the silence no longer exists in Alertmanager, and the alert is not known to have resolved"
            self._record_end_of_silence(number, silence, text, now)
        elif silence.id in answer.silences:
            current = silence
            if silence.until_resolved and silence.until - now < RENEW_SECONDS / 2:
                current = self._renewed(alertmanager, incident, silence, now)
            elif abs(answer.silences[silence.id] - silence.until) > 1.0:
                # Somebody changed its end in Alertmanager.
                current = silence.model_copy(update={"until": answer.silences[silence.id]})
            self.store.change(number, partial(_set_silence, silence, current, ()))

    def _renewed(
        self, alertmanager: Alertmanager, incident: Incident, silence: Silence, now: float
    ) -> Silence:
        until, comment = now + RENEW_SECONDS, incident.silence_comment

        def renewed(part: SilencePart) -> SilencePart:
            wire = [matcher.wire() for matcher in part.matchers]
            silence_id = alertmanager.silence(wire, now, until, silence.by, comment, part.id)
            return part.model_copy(update={"id": silence_id})

        first = renewed(SilencePart(id=silence.id, matchers=silence.matchers))
        parts = tuple(map(renewed, silence.parts))
        return silence.model_copy(update={"id": first.id, "until": until, "parts": parts})

    def _end_silence(self, alertmanager: Alertmanager, silence: Silence) -> None:
        for silence_id in silence.ids:
            alertmanager.unsilence(silence_id)

    def _record_end_of_silence(self, number: int, silence: Silence, reason: str, now: float) -> None:
        event = Event(at=now, kind="unsilenced", words=reason)
        self.store.change(number, partial(_set_silence, silence, None, (event,)))
        self.wake()


def _set_silence(
    known: Silence | None, silence: Silence | None, events: tuple[Event, ...], before: Incident
) -> ChangedIncident:
    """Replace the silence, unless it was changed in the meantime."""
    if before.silence is None or before.silence != known:
        return before, ()
    return before.model_copy(update={"silence": silence}), events


def _end(ended: set[str], now: float, before: Incident) -> ChangedIncident:
    gone = {
        fingerprint: member.model_copy(update={"ends_at": now})
        for fingerprint, member in before.members.items()
        if member.firing and fingerprint in ended
    }
    if not gone:
        return before, ()
    members = {**before.members, **gone}
    closed_at = None if any(member.firing for member in members.values()) else now
    after = before.model_copy(update={"members": members, "closed_at": closed_at})
    urgent = becomes_more_urgent(before, after, now)
    after, events = reported(before, after, [], list(gone.values()), now, urgent=urgent)
    why = {"words": "Alertmanager no longer lists it"}
    return after, [event.model_copy(update=why) for event in events]
