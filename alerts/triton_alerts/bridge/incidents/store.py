"""Store of the bridge: a change of an incident is stored together with the messages about it, or not at all.

First incidents and their events as rows of the database, then single values, and the store over all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path

from triton_alerts.bridge.incidents.database import Database
from triton_alerts.bridge.incidents.incident import Event, Incident, Outcome
from triton_alerts.bridge.incidents.merging import MergeResult, merge_notification
from triton_alerts.bridge.incidents.notification import Member, Notification, incident_key
from triton_alerts.bridge.incidents.outbox import UNDELIVERED, Outbox
from triton_exporter.common.duration import DAY
from triton_slo.names import SEVERITIES


@dataclass(frozen=True, slots=True)
class Incidents:
    """The incidents, by the number of their row."""

    database: Database

    def get(self, number: int) -> Incident | None:
        row = self.database.row("SELECT document FROM incidents WHERE id = ?", number)
        return _parsed(row[0]) if row else None

    def find(self, name: str) -> int | None:
        """Return the number of the incident with this name."""
        row = self.database.row("SELECT id FROM incidents WHERE name = ?", name)
        return int(row[0]) if row else None

    def latest(self, key: str, count: int) -> list[tuple[int, Incident]]:
        """Return the newest incidents of a subject, the newest last."""
        return self._select("key = ? ORDER BY id DESC LIMIT ?", key, count)[::-1]

    def newest(self) -> int:
        """Return the number of the newest incident, 0 without any."""
        row = self.database.row("SELECT coalesce(max(id), 0) FROM incidents")
        return int(row[0]) if row else 0

    def open_about(self, key: str) -> int | None:
        """Return the number of the newest open incident of a subject."""
        row = self.database.row("SELECT max(id) FROM incidents WHERE key = ? AND closed_at IS NULL", key)
        return row[0] if row else None

    def open_of_group(self, group: str) -> list[tuple[int, Incident]]:
        """Return the open incidents that have alerts of a group."""
        return self._select("id IN (SELECT incident FROM groups WHERE key = ?) ORDER BY id", group)

    def count_since(self, key: str, at: float) -> int:
        """Return how many incidents of a subject have opened since a time."""
        rows = self.database.rows("SELECT 1 FROM incidents WHERE key = ? AND opened_at > ?", key, at)
        return len(rows)

    def open(self, closed_after: float | None = None) -> list[tuple[int, Incident]]:
        """Return the open incidents, and those that closed after a time."""
        # With the plus, SQLite sorts the rows that its index finds, instead of reading all rows in order.
        return self._select("closed_at IS NULL OR closed_at > ? ORDER BY +id", closed_after)

    def silenced(self) -> list[tuple[int, Incident]]:
        """Return the incidents, closed ones too, whose silence is not ended yet."""
        return self._select("json_extract(document, '$.silence') IS NOT NULL")

    def count_open(self) -> dict[str, int]:
        rows = self.database.rows(
            "SELECT severity, count(*) FROM incidents WHERE closed_at IS NULL GROUP BY severity"
        )
        return {SEVERITIES[severity]: count for severity, count in rows}

    def events(self, number: int, after: int, up_to: int) -> list[Event]:
        rows = self.database.rows(
            "SELECT document FROM events WHERE incident = ? AND seq > ? AND seq <= ? ORDER BY seq",
            *(number, after, up_to),
        )
        return [Event.model_validate_json(row[0]) for row in rows]

    def add(self, incident: Incident) -> int:
        """Add an incident; return its number."""
        cursor = self.database.run(
            "INSERT INTO incidents (name, key, document, severity, opened_at, closed_at, last_seq, version) "
            "VALUES (?, ?, ?, 0, ?, NULL, 0, 0)",
            # Whole from the start: another thread that fetches rows meanwhile sees this one before it is committed.
            *(incident.name, incident.key, incident.model_dump_json(), incident.opened_at),
        )
        return int(cursor.lastrowid or 0)

    def save(self, number: int, incident: Incident, events: Sequence[Event]) -> None:
        """Store an incident's new state and what happened to it."""
        row = self.database.row("SELECT last_seq FROM incidents WHERE id = ?", number)
        first = int(row[0]) + 1 if row else 1
        for seq, event in enumerate(events, first):
            self.database.run(
                "INSERT INTO events VALUES (?, ?, ?, ?)", number, seq, event.at, event.model_dump_json()
            )
        self.database.run(
            "UPDATE incidents SET document = ?, severity = ?, closed_at = ?, last_seq = last_seq + ?, "
            "version = version + 1 WHERE id = ?",
            *(
                incident.model_dump_json(),
                SEVERITIES.index(incident.severity),
                incident.closed_at,
            ),
            *(len(events), number),
        )
        if not incident.open:
            self.database.run("DELETE FROM groups WHERE incident = ?", number)
            return
        for group in {member.group for member in incident.members.values()}:
            self.database.run("INSERT OR IGNORE INTO groups VALUES (?, ?)", group, number)

    def _select(self, where: str, *values: object) -> list[tuple[int, Incident]]:
        rows = self.database.rows(f"SELECT id, document FROM incidents WHERE {where}", *values)  # noqa: S608
        return [(row[0], _parsed(row[1])) for row in rows]


# Chores read every open incident each second: 500 of them took a tenth of a core.
@lru_cache(maxsize=2000)
def _parsed(document: str) -> Incident:
    return Incident.model_validate_json(document)


GRACE_SECONDS = 60.0
"""Seconds for which the contradicting part of a notification is `held`: four peer timeouts of Alertmanager."""

RECURRENCE_SECONDS = float(DAY)
PRUNED_AT_ONCE = 200
"""Incidents deleted in one transaction, which notifications that arrive in the meantime wait for."""

MAX_COMPARED_INCIDENTS = 3
"""Incidents of a subject whose alerts are compared with a notification, which an HA peer may have sent late."""

_OUTCOMES: tuple[Outcome, ...] = ("opened", "changed", "held", "repeated", "stale")
"""The outcome of a notification about several incidents is the first of these that one of them had."""

ChangedIncident = tuple[Incident, Sequence[Event]]
"""An incident after a change, and what happened to it."""
Change = Callable[[Incident], ChangedIncident]


@dataclass(frozen=True, slots=True)
class StoredValues:
    """Single values that outlive a restart, and the button presses that were carried out."""

    database: Database

    def set(self, name: str, value: str) -> None:
        """Store a value under a name, in place of the earlier one."""
        self.database.run("INSERT OR REPLACE INTO facts VALUES (?, ?)", name, value)

    def get(self, name: str) -> str | None:
        """Return the value stored under a name, None if there is none."""
        row = self.database.row("SELECT value FROM facts WHERE name = ?", name)
        return row[0] if row else None

    def pressed(self, press_id: str) -> bool:
        """Return whether this button press was carried out; Slack sends it again when its answer was late."""
        return self.database.row("SELECT 1 FROM pressed WHERE id = ?", press_id) is not None

    def record_press(self, press_id: str, now: float) -> None:
        self.database.run("INSERT OR IGNORE INTO pressed VALUES (?, ?)", press_id, now)


@dataclass(frozen=True, slots=True)
class Listed:
    """The alerts that Alertmanagers list: fingerprint -> annotations as they are now.

    Not `complete` after the start of one of them: Prometheus may not have sent it every firing alert again.
    """

    alerts: Mapping[str, Mapping[str, str]]
    complete: bool = True


@dataclass(frozen=True, slots=True)
class _Target:
    """The part of a notification that is about one incident: an open one by its number, else the subject's next."""

    number: int | None
    key: str
    part: Notification


class Store:
    """Incidents, deliveries and single values in one database. `channel_for` returns the channel of a severity.

    `record_unreported` receives each change that no thread reports: time, incident, alert and reason.
    """

    def __init__(
        self,
        path: Path,
        channel_for: Callable[[str], str],
        record_unreported: Callable[[float, str, Member, str], None] = lambda _at, _incident, _alert, _why: (
            None
        ),
    ) -> None:
        self.record_unreported = record_unreported
        self.database = Database(path)
        self.incidents = Incidents(self.database)
        self.outbox = Outbox(self.database, channel_for)
        self.values = StoredValues(self.database)

    def close(self) -> None:
        self.database.close()

    def transaction(self) -> AbstractContextManager[None]:
        """Store everything inside together or not at all."""
        return self.database.transaction()

    def receive(
        self,
        notification: Notification,
        now: float,
        may_still_fire: Callable[[str, Member], bool] = lambda _fingerprint, _member: False,
    ) -> Outcome:
        """Merge a notification into the incidents of its alerts; on return, the result is on disk.

        `may_still_fire` returns whether an alert (fingerprint, member) that a notification omits may fire all the
        same: its Alertmanager is asked when the `held` part is merged.
        """
        with self.transaction():
            outcomes, unreported = [], []
            held: dict[str, Notification] = {}
            for target in self._targets(notification):
                result = self._merge_target(target, now, may_still_fire=may_still_fire)
                outcomes.append(result.outcome)
                name = result.incident.name if result.incident is not None else ""
                unreported += [(name, *change) for change in result.unreported]
                if result.held is not None:
                    held[target.key] = result.held
            self._store_held(f"{notification.key} {notification.source} ", held, now, may_still_fire)
        for incident, member, reason in unreported:
            self.record_unreported(now, incident, member, reason)
        return min(outcomes, key=_OUTCOMES.index)

    def merge_held(self, now: float, listed: Callable[[float], Listed | None] = lambda _now: None) -> int:
        """Merge the `held` notifications whose grace has passed, whatever they contradict; return how many.

        `listed` returns the alerts that Alertmanager lists, or None if it cannot be asked. What is not listed has
        ended, what is listed fires; without a list, what was reported as firing fires. While the list is not
        complete, what it does not show waits.
        """
        # Due beyond two graces: stored before the clock was set back, so it is merged now.
        due = ("SELECT key, document FROM held WHERE due <= ? OR due > ?", now, now + 2 * GRACE_SECONDS)
        if not self.database.rows(*due):
            return 0
        known = listed(now)  # outside the transaction: notifications go on being stored
        with self.transaction():
            # Read again: a peer may have caught up meanwhile.
            merged = 0
            for key, document in self.database.rows(*due):
                part = Notification.model_validate_json(document)
                if known is not None:
                    firing = {
                        name: alert.model_copy(update={"annotations": known.alerts[name]})
                        for name, alert in part.alerts.items()
                        if name in known.alerts
                    }
                    if len(firing) < len(part.alerts) and not known.complete:
                        continue
                    part = part.about(firing)
                for target in self._targets(part):
                    self._merge_target(
                        target,
                        now,
                        trust=True,
                        may_still_fire=lambda fingerprint, _member: (
                            known is None or not known.complete or fingerprint in known.alerts
                        ),
                    )
                self.database.run("DELETE FROM held WHERE key = ?", key)
                merged += 1
        return merged

    def change(self, number: int, change: Change) -> Incident | None:
        """Apply a pure change to an incident and queue its events; None when there is no such incident."""
        with self.transaction():
            before = self.incidents.get(number)
            if before is None:
                return None
            after, events = change(before)
            if after != before or events:
                self._save(number, after, events)
            return after

    def escalate(self, number: int, channel: str, now: float, change: Change) -> None:
        """Record the escalation of an incident and queue its message."""
        with self.transaction():
            self.change(number, change)
            self.outbox.add_escalation(number, channel, now)

    def prune(self, before: float) -> int:
        """Delete some of the incidents that closed before a time and were delivered; return how many.

        Fewer than PRUNED_AT_ONCE means that none is left to delete.
        """
        with self.transaction():
            self.database.run("DELETE FROM pressed WHERE at < ?", before)
            gone = self.database.rows(
                "SELECT i.id FROM incidents i WHERE i.closed_at < ? AND NOT EXISTS (SELECT 1 FROM deliveries d "  # noqa: S608
                f"WHERE d.incident = i.id AND (d.sending != 0 OR {UNDELIVERED})) LIMIT ?",
                *(before, PRUNED_AT_ONCE),
            )
            for (number,) in gone:
                self.database.run("DELETE FROM incidents WHERE id = ?", number)
        return len(gone)

    def _store_held(
        self,
        sender: str,
        held: dict[str, Notification],
        now: float,
        may_still_fire: Callable[[str, Member], bool],
    ) -> None:
        """Store the `held` parts of a notification by incident key, in place of those that its sender sent before.

        Alerts that may still fire stay: this notification may be older than the one that reported them.
        """
        of_sender = "FROM held WHERE substr(key, 1, length(?1)) = ?1"
        due: dict[str, float] = {}
        for row_key, due_at, document in self.database.rows(f"SELECT key, due, document {of_sender}", sender):
            key = row_key.removeprefix(sender)
            due[key] = due_at
            before = Notification.model_validate_json(document)
            if staying := {
                fingerprint: alert
                for fingerprint, alert in before.alerts.items()
                if may_still_fire(fingerprint, alert)
            }:
                part = held.get(key, before)
                held[key] = part.about({**staying, **part.alerts})
        self.database.run(f"DELETE {of_sender}", sender)
        for key, part in held.items():
            self.database.run(
                "INSERT INTO held VALUES (?, ?, ?)",
                *(sender + key, due.get(key, now + GRACE_SECONDS), part.model_dump_json()),
            )

    def _targets(self, notification: Notification) -> list[_Target]:
        """Sort the alerts of a notification by the incidents that they belong to."""
        notification = notification.dated()
        known = self.incidents.open_of_group(notification.key)
        known_targets = {
            fingerprint: (number, incident.key)
            for number, incident in known
            for fingerprint in incident.members
        }
        open_about = cache(self.incidents.open_about)
        targets: dict[tuple[int | None, str], dict[str, Member]] = {}
        if notification.all_resolved and not notification.truncated:
            # The alerts of the group that it does not list have ended, too, in any incident.
            targets = {(number, incident.key): {} for number, incident in known}
        for fingerprint, alert in notification.alerts.items():
            key = incident_key(alert.labels, notification.key)
            target = known_targets.get(fingerprint) or (open_about(key), key)
            targets.setdefault(target, {})[fingerprint] = alert
        return [_Target(number, key, notification.about(alerts)) for (number, key), alerts in targets.items()]

    def _merge_target(
        self,
        target: _Target,
        now: float,
        *,
        may_still_fire: Callable[[str, Member], bool],
        trust: bool = False,
    ) -> MergeResult:
        key, part = target.key, target.part
        stored = [
            (number, incident)
            for number, incident in self.incidents.latest(key, MAX_COMPARED_INCIDENTS)
            if number != target.number
        ]
        number, current = target.number, None
        if number is not None:
            current = self.incidents.get(number)
        elif stored:
            number, current = stored.pop()
        recurrence = self.incidents.count_since(key, now - RECURRENCE_SECONDS)
        earlier = [incident for _, incident in stored]
        result = merge_notification(
            current,
            part,
            now,
            key=key,
            earlier=earlier,
            trust=trust,
            may_still_fire=may_still_fire,
            recurrence=recurrence,
        )
        if result.incident is None or result.incident == current:
            return replace(result, incident=current)
        if number is None or current is None or result.incident.name != current.name:
            number = self.incidents.add(result.incident)
            self.outbox.add(number, result.incident.severity)
        self._save(number, result.incident, result.events)
        return result

    def _save(self, number: int, incident: Incident, events: Sequence[Event]) -> None:
        self.incidents.save(number, incident, events)
        self.outbox.queue(number, events)
