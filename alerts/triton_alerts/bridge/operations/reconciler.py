"""Compare incidents with Alertmanager: silences that end, and alerts that ended without a notification."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from triton_alerts.alertmanager_client import Alertmanager, ServerError
from triton_alerts.bridge.incidents.alertmanagers import RESEND_SECONDS, Alertmanagers, listed_starts
from triton_alerts.bridge.incidents.incident import Event, Incident, Silence, SilencePart
from triton_alerts.bridge.incidents.severity import record_severity
from triton_alerts.bridge.incidents.store import ChangedIncident, Store
from triton_alerts.bridge.operations.actions import RENEW_SECONDS
from triton_slo.problem_words import count

COMPARE_SECONDS = 60.0
"""Time between two comparisons, and time for which a silence must be missing before it counts as ended."""
MISSING_SECONDS = 180.0
"""Time without being listed after which an alert counts as ended: three of Prometheus's resends."""

log = logging.getLogger(__name__)


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

        first = renewed(SilencePart(id=silence.id, matchers=silence.matchers or incident.matchers[0]))
        parts = tuple(map(renewed, silence.parts))
        return silence.model_copy(
            update={"id": first.id, "until": until, "matchers": first.matchers, "parts": parts}
        )

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
    members = dict(before.members)
    gone = [fingerprint for fingerprint, member in members.items() if member.firing and fingerprint in ended]
    for fingerprint in gone:
        members[fingerprint] = members[fingerprint].model_copy(update={"ends_at": now})
    if not gone:
        return before, ()
    words = f"resolved, because Alertmanager no longer lists them: {count(len(gone), 'alert')}"
    events = [Event(at=now, kind="note", words=words)]
    closed_at = None if any(member.firing for member in members.values()) else now
    if closed_at is not None:
        events.append(Event(at=now, kind="closed"))
    after = before.model_copy(update={"members": members, "closed_at": closed_at})
    return record_severity(before, after, now), tuple(events)
