"""Choose the Alertmanager to query about an alert.

An Alertmanager that never had the alert cannot show that it resolved.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from triton_alerts.alertmanager_client import Alertmanager, ServerError
from triton_alerts.bridge.incidents.incident import Incident
from triton_alerts.bridge.incidents.notification import Member
from triton_alerts.bridge.incidents.store import Listed, Store

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
        alerts: set[str] = set()
        complete = True
        for alertmanager in self.each:
            try:
                complete = complete and now - alertmanager.up_since() >= RESEND_SECONDS
                alerts |= listed_starts(alertmanager).keys()
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
            if member.firing and _is_same(member, firing.get(fingerprint))
        }
        if new := sorted(started - set(known)):
            self.store.values.set(_senders_key(alertmanager), json.dumps([*known, *new][-MAX_SENDERS:]))


def listed_starts(alertmanager: Alertmanager) -> dict[str, float]:
    """Return when each alert that fires started, by fingerprint."""
    return {alert.fingerprint: alert.starts_at for alert in alertmanager.alerts()}


def _is_same(member: Member, starts_at: float | None) -> bool:
    # Alerts of two servers have the same fingerprint if no label differs.
    return starts_at is not None and abs(starts_at - member.starts_at) <= SAME_START_SECONDS


def _senders_key(alertmanager: Alertmanager) -> str:
    return f"senders of {alertmanager.url}"
