"""Everything the bridge keeps; each change of an incident is stored together with what it queues for Slack."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from triton_alerts.bridge.incidents.database import Database
from triton_alerts.bridge.incidents.incident import Event, Incident, Outcome, fold
from triton_alerts.bridge.incidents.notification import Notification
from triton_alerts.bridge.incidents.outbox import Outbox
from triton_alerts.bridge.incidents.records import Incidents

GRACE_SECONDS = 60.0
"""How long a peer's contradiction waits: four times Alertmanager's default peer timeout (15 s)."""

RECURRENCE_SECONDS = 86_400.0
PRUNED_AT_ONCE = 200
"""Incidents deleted in one transaction: a notification that arrives meanwhile waits for it."""

Change = Callable[[Incident], tuple[Incident, Sequence[Event]]]


@dataclass(frozen=True, slots=True)
class StoredValues:
    """Single values that outlive a restart, and the button presses that were carried out."""

    database: Database

    def set(self, name: str, value: str) -> None:
        self.database.run("INSERT OR REPLACE INTO facts VALUES (?, ?)", name, value)

    def get(self, name: str) -> str | None:
        row = self.database.row("SELECT value FROM facts WHERE name = ?", name)
        return row[0] if row else None

    def pressed(self, name: str) -> bool:
        """Return whether this button press was carried out; Slack sends it again when its answer was late."""
        return self.database.row("SELECT 1 FROM pressed WHERE id = ?", name) is not None

    def record_press(self, name: str, now: float) -> None:
        self.database.run("INSERT OR IGNORE INTO pressed VALUES (?, ?)", name, now)


class Store:
    """The bridge's memory. `channel_for` maps a severity to the channel its incidents go to."""

    def __init__(self, path: Path, channel_for: Callable[[str], str]) -> None:
        self.database = Database(path)
        self.incidents = Incidents(self.database)
        self.outbox = Outbox(self.database, channel_for)
        self.values = StoredValues(self.database)

    def close(self) -> None:
        self.database.close()

    def transaction(self) -> AbstractContextManager[None]:
        """Store everything inside together or not at all."""
        return self.database.transaction()

    def receive(self, notification: Notification, now: float) -> Outcome:
        """Merge a notification into its incident; on return it is on disk."""
        with self.transaction():
            outcome = self._merge(notification, now)
            if outcome == "held":
                self.database.run(
                    "INSERT INTO held VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET document = excluded.document",
                    *(notification.key, now + GRACE_SECONDS, notification.model_dump_json()),
                )
            elif not all(alert.firing for alert in notification.alerts.values()):
                # The peer that seemed to contradict has caught up.
                self.database.run("DELETE FROM held WHERE key = ?", notification.key)
        return outcome

    def settle(self, now: float) -> int:
        """Merge the held notifications whose grace has passed, whatever they contradict; return how many."""
        with self.transaction():
            # What is due later than any grace lasts was held before the clock was put back.
            due = self.database.rows(
                "SELECT key, document FROM held WHERE due <= ? OR due > ?", now, now + 2 * GRACE_SECONDS
            )
            for key, document in due:
                self._merge(Notification.model_validate_json(document), now, trust=True)
                self.database.run("DELETE FROM held WHERE key = ?", key)
        return len(due)

    def change(self, number: int, change: Change, *, edit_soon: bool = False) -> Incident | None:
        """Apply a pure change to an incident and queue its events; None when there is no such incident."""
        with self.transaction():
            before = self.incidents.get(number)
            if before is None:
                return None
            after, events = change(before)
            if after != before or events:
                self._save(number, after, events)
            if edit_soon:
                self.outbox.edit_soon(number)
            return after

    def escalate(self, number: int, channel: str, now: float, change: Change) -> None:
        """Record the escalation of an incident and queue its message."""
        with self.transaction():
            self.change(number, change)
            self.outbox.add(number, channel, "escalation", now)

    def writable(self) -> bool:
        """Return whether a notification could be stored now."""
        try:
            self.values.set("probe", "")
        except sqlite3.Error:
            return False
        return True

    def prune(self, before: float) -> int:
        """Delete some of the incidents that closed before a time and were delivered; return how many.

        Fewer than PRUNED_AT_ONCE means that none is left to delete.
        """
        with self.transaction():
            self.database.run("DELETE FROM pressed WHERE at < ?", before)
            gone = self.database.rows(
                "SELECT i.id FROM incidents i WHERE i.closed_at < ? AND NOT EXISTS (SELECT 1 FROM deliveries d "
                "WHERE d.incident = i.id AND (d.pending_since IS NOT NULL OR d.inflight != '')) LIMIT ?",
                *(before, PRUNED_AT_ONCE),
            )
            for (number,) in gone:
                self.database.run("DELETE FROM incidents WHERE id = ?", number)
        return len(gone)

    def _merge(self, notification: Notification, now: float, *, trust: bool = False) -> Outcome:
        number, current = self.incidents.latest(notification.key) or (None, None)
        recurrence = self.incidents.count_since(notification.key, now - RECURRENCE_SECONDS)
        result = fold(current, notification, now, trust=trust, recurrence=recurrence)
        if result.incident is None or result.incident == current:
            return result.outcome
        if number is None or current is None or result.incident.name != current.name:
            number = self.incidents.add(result.incident)
            self.outbox.add(number, self.outbox.channel_for(result.incident.severity))
        self._save(number, result.incident, result.events)
        return result.outcome

    def _save(self, number: int, incident: Incident, events: Sequence[Event]) -> None:
        self.incidents.save(number, incident, events)
        self.outbox.queue(number, events)
