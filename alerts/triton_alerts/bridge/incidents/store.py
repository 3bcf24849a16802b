"""What the bridge must not forget: incidents, what happened to them, and how much of it was told.

SQLite in WAL mode with synchronous=FULL: when `receive` returns, the notification is on disk. One connection
behind one lock; no request to the outside is ever made while it is held.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton_alerts.bridge.incidents.incident import SEVERITIES, Event, Incident, Outcome, fold
from triton_alerts.bridge.incidents.notification import Notification, parse

GRACE_SECONDS = 60.0
"""How long a peer's contradiction waits: four times Alertmanager's default peer timeout (15 s)."""

RECURRENCE_SECONDS = 86_400.0
PRUNED_AT_ONCE = 200
"""Incidents deleted in one transaction: a notification that arrives meanwhile waits for it."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS incidents (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, key TEXT NOT NULL, document TEXT NOT NULL,
  severity INTEGER NOT NULL, opened_at REAL NOT NULL, closed_at REAL,
  last_seq INTEGER NOT NULL, version INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS incidents_by_key ON incidents (key, id);
CREATE INDEX IF NOT EXISTS incidents_open ON incidents (closed_at);
CREATE TABLE IF NOT EXISTS events (
  incident INTEGER NOT NULL REFERENCES incidents ON DELETE CASCADE, seq INTEGER NOT NULL, at REAL NOT NULL,
  document TEXT NOT NULL, PRIMARY KEY (incident, seq)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS deliveries (
  id INTEGER PRIMARY KEY, incident INTEGER NOT NULL REFERENCES incidents ON DELETE CASCADE,
  channel TEXT NOT NULL, role TEXT NOT NULL, root_channel TEXT NOT NULL DEFAULT '',
  root_ts TEXT NOT NULL DEFAULT '', told_seq INTEGER NOT NULL DEFAULT 0,
  told_version INTEGER NOT NULL DEFAULT 0, digest_seq INTEGER NOT NULL DEFAULT 0,
  plainness INTEGER NOT NULL DEFAULT 0, attempts INTEGER NOT NULL DEFAULT 0,
  next_try REAL NOT NULL DEFAULT 0, edited_at REAL NOT NULL DEFAULT 0, pending_since REAL,
  inflight TEXT NOT NULL DEFAULT '', inflight_kind TEXT NOT NULL DEFAULT '',
  inflight_seq INTEGER NOT NULL DEFAULT 0, inflight_at REAL NOT NULL DEFAULT 0,
  UNIQUE (incident, channel, role));
CREATE INDEX IF NOT EXISTS deliveries_by_channel ON deliveries (channel);
CREATE TABLE IF NOT EXISTS held (
  key TEXT PRIMARY KEY, due REAL NOT NULL, body BLOB NOT NULL, source TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS pressed (id TEXT PRIMARY KEY, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""

Change = Callable[[Incident], tuple[Incident, Sequence[Event]]]


@dataclass(frozen=True, slots=True)
class Delivery:
    """How far one channel has been told about one incident.

    `told_seq` counts events told in the thread, `told_version` the state the root message shows, `digest_seq`
    the events a digest told. `inflight` names a message whose fate is not known yet.
    """

    id: int
    incident: int
    channel: str
    role: str
    severity: int
    opened_at: float
    closed_at: float | None
    last_seq: int
    version: int
    root_channel: str
    root_ts: str
    told_seq: int
    told_version: int
    digest_seq: int
    plainness: int
    attempts: int
    next_try: float
    edited_at: float
    inflight: str
    inflight_kind: str
    inflight_seq: int
    inflight_at: float
    raised: bool
    """Whether the incident became more urgent and this channel was not sent that yet."""


_DELIVERY = """
SELECT d.id, d.incident, d.channel, d.role, i.severity, i.opened_at, i.closed_at, i.last_seq, i.version,
       d.root_channel, d.root_ts, d.told_seq, d.told_version, d.digest_seq, d.plainness, d.attempts,
       d.next_try, d.edited_at, d.inflight, d.inflight_kind, d.inflight_seq, d.inflight_at,
       EXISTS (SELECT 1 FROM events e WHERE e.incident = d.incident AND e.seq > d.told_seq
               AND json_extract(e.document, '$.kind') = 'raised')
FROM deliveries d JOIN incidents i ON i.id = d.incident
"""


class Store:
    """The bridge's memory. `channel_for` maps a severity to the channel its incidents go to."""

    def __init__(self, path: Path, channel_for: Callable[[str], str]) -> None:
        self.path = path
        self._channel_for = channel_for
        self._lock = threading.RLock()
        self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=10)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.execute("PRAGMA foreign_keys=ON")
        self._connection.executescript(_SCHEMA)

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    # What Alertmanager said

    def receive(self, body: bytes, source: str, now: float) -> Outcome:
        """Parse, fold and store a webhook body; on return it is on disk. Raises MalformedError."""
        heard = parse(body, source)
        with self._transaction():
            outcome = self._fold(heard, now)
            self._hold(heard, body, source, outcome, now)
        return outcome

    def settle(self, now: float) -> int:
        """Take held notifications whose grace has passed at their word; returns how many."""
        with self._transaction():
            # What is due later than any grace lasts was held before the clock was put back.
            due = self._rows(
                "SELECT key, body, source FROM held WHERE due <= ? OR due > ?", now, now + 2 * GRACE_SECONDS
            )
            for key, body, source in due:
                self._fold(parse(body, source), now, trust=True)
                self._run("DELETE FROM held WHERE key = ?", key)
        return len(due)

    def _fold(self, heard: Notification, now: float, *, trust: bool = False) -> Outcome:
        row = self._row(
            "SELECT id, document FROM incidents WHERE key = ? ORDER BY id DESC LIMIT 1", heard.key
        )
        current = Incident.model_validate_json(row[1]) if row else None
        recurrence = self._row(
            "SELECT count(*) FROM incidents WHERE key = ? AND opened_at > ?",
            heard.key,
            now - RECURRENCE_SECONDS,
        )
        result = fold(current, heard, now, trust=trust, recurrence=recurrence[0] if recurrence else 0)
        if result.incident is None:
            return result.outcome
        if row is not None and current is not None and result.incident.name == current.name:
            if result.incident != current:
                self._save(row[0], result.incident, result.events)
        else:
            self._insert(result.incident, result.events)
        return result.outcome

    def _hold(self, heard: Notification, body: bytes, source: str, outcome: Outcome, now: float) -> None:
        if outcome == "held":
            self._run(
                "INSERT OR IGNORE INTO held VALUES (?, ?, ?, ?)", heard.key, now + GRACE_SECONDS, body, source
            )
            self._run("UPDATE held SET body = ?, source = ? WHERE key = ?", body, source, heard.key)
        elif any(alert.ends_at is not None for alert in heard.alerts):
            # The peer that seemed to contradict has caught up.
            self._run("DELETE FROM held WHERE key = ?", heard.key)

    # Incidents

    def change(self, incident: int, change: Change) -> Incident | None:
        """Apply a pure change to an incident and record its events; None when there is no such incident."""
        with self._transaction():
            before = self.incident(incident)
            if before is None:
                return None
            after, events = change(before)
            if after != before or events:
                self._save(incident, after, events)
            return after

    def incident(self, incident: int) -> Incident | None:
        row = self._row("SELECT document FROM incidents WHERE id = ?", incident)
        return Incident.model_validate_json(row[0]) if row else None

    def find(self, name: str) -> int | None:
        """The number of the incident with this name."""
        row = self._row("SELECT id FROM incidents WHERE name = ?", name)
        return int(row[0]) if row else None

    def open_incidents(self) -> list[tuple[int, Incident]]:
        rows = self._rows("SELECT id, document FROM incidents WHERE closed_at IS NULL ORDER BY id")
        return [(row[0], Incident.model_validate_json(row[1])) for row in rows]

    def silenced_incidents(self) -> list[tuple[int, Incident]]:
        """Incidents, closed ones too, that still have a silence to look after."""
        rows = self._rows(
            "SELECT id, document FROM incidents WHERE json_extract(document, '$.silence') IS NOT NULL"
        )
        return [(row[0], Incident.model_validate_json(row[1])) for row in rows]

    def events(self, incident: int, after: int, up_to: int) -> list[Event]:
        rows = self._rows(
            "SELECT document FROM events WHERE incident = ? AND seq > ? AND seq <= ? ORDER BY seq",
            *(incident, after, up_to),
        )
        return [Event.model_validate_json(row[0]) for row in rows]

    def _insert(self, incident: Incident, events: Sequence[Event]) -> None:
        cursor = self._run(
            "INSERT INTO incidents (name, key, document, severity, opened_at, closed_at, last_seq, version) "
            "VALUES (?, ?, ?, 0, ?, NULL, 0, 0)",
            # Whole from the start: another thread that fetches rows meanwhile sees this one before it is committed.
            *(incident.name, incident.key, incident.model_dump_json(), incident.opened_at),
        )
        number = int(cursor.lastrowid or 0)
        self._add_channel(number, incident.severity)
        self._save(number, incident, events)

    def _add_channel(self, incident: int, severity: str) -> None:
        self._run(
            "INSERT INTO deliveries (incident, channel, role) VALUES (?, ?, 'main') ON CONFLICT DO NOTHING",
            *(incident, self._channel_for(severity)),
        )

    def _save(self, number: int, incident: Incident, events: Sequence[Event]) -> None:
        row = self._row("SELECT last_seq FROM incidents WHERE id = ?", number)
        seq = int(row[0]) if row else 0
        for offset, event in enumerate(events, start=1):
            self._run(
                "INSERT INTO events VALUES (?, ?, ?, ?)",
                number,
                seq + offset,
                event.at,
                event.model_dump_json(),
            )
        self._run(
            "UPDATE incidents SET document = ?, severity = ?, closed_at = ?, last_seq = ?, "
            "version = version + 1 WHERE id = ?",
            *(incident.model_dump_json(), SEVERITIES.index(incident.severity), incident.closed_at),
            *(seq + len(events), number),
        )
        for event in events:
            if event.kind == "raised":
                self._add_channel(number, event.text)
        if events:
            self._run(
                "UPDATE deliveries SET pending_since = ? WHERE incident = ? AND pending_since IS NULL "
                "AND role = 'main'",
                *(events[0].at, number),
            )

    def escalate(self, incident: int, channel: str, now: float, change: Change) -> None:
        """Record the escalation and queue its message, in one transaction; a second one is a new message."""
        with self._transaction():
            self.change(incident, change)
            self._run(
                "INSERT INTO deliveries (incident, channel, role, pending_since) VALUES (?, ?, 'escalation', ?) "
                "ON CONFLICT DO UPDATE SET root_ts = '', pending_since = excluded.pending_since",
                *(incident, channel, now),
            )

    # Deliveries

    def pending(self, channel: str) -> list[Delivery]:
        """Deliveries of a channel that have something to send, oldest first."""
        return self._deliveries(
            "WHERE d.channel = ? AND (d.inflight != '' OR (d.role = 'escalation' AND (d.root_ts = '' "
            "OR (i.closed_at IS NOT NULL AND d.told_version < i.version))) "
            "OR (d.role = 'main' AND (d.told_seq < i.last_seq "
            "OR (d.root_ts != '' AND d.told_version < i.version)))) ORDER BY d.id",
            channel,
        )

    def delivery(self, incident: int) -> Delivery | None:
        """The latest main delivery of an incident that has a message: that of its highest severity."""
        found = self._deliveries(
            "WHERE d.incident = ? AND d.role = 'main' ORDER BY d.root_ts = '', d.id DESC LIMIT 1", incident
        )
        return found[0] if found else None

    def begin(self, deliveries: Sequence[Delivery], name: str, kind: str, now: float) -> None:
        """Write down, before sending, that a message is about to be sent."""
        with self._transaction():
            for one in deliveries:
                self._run(
                    "UPDATE deliveries SET inflight = ?, inflight_kind = ?, inflight_seq = ?, "
                    "inflight_at = ? WHERE id = ?",
                    *(name, kind, one.last_seq, now, one.id),
                )

    def finish(self, delivery: Delivery, **values: str | int | float) -> None:
        """The message in flight arrived; `values` are the delivery's columns to set."""
        with self._transaction():
            self._set(delivery.id, inflight="", inflight_kind="", attempts=0, next_try=0.0, **values)
            self._run(
                "UPDATE deliveries SET pending_since = (SELECT min(e.at) FROM events e WHERE "
                "e.incident = deliveries.incident "
                "AND e.seq > max(deliveries.told_seq, deliveries.digest_seq)) WHERE id = ?",
                delivery.id,
            )
            if delivery.role == "escalation":
                self._run("UPDATE deliveries SET pending_since = NULL WHERE id = ?", delivery.id)

    def set(self, delivery: Delivery, **values: str | int | float) -> None:
        """Set columns of a delivery."""
        with self._transaction():
            self._set(delivery.id, **values)

    def without_chart(self, limit: int) -> list[int]:
        """Open incidents that have a thread and no chart in it."""
        rows = self._rows(
            "SELECT DISTINCT i.id FROM incidents i JOIN deliveries d ON d.incident = i.id AND d.role = 'main' "
            "WHERE i.closed_at IS NULL AND d.root_ts != '' "
            "AND NOT EXISTS (SELECT 1 FROM facts WHERE name = 'chart ' || i.id) ORDER BY i.id LIMIT ?",
            limit,
        )
        return [int(row[0]) for row in rows]

    def hurry(self, incident: int) -> None:
        """Somebody waits to see the root message change: edit it without the usual pause."""
        with self._transaction():
            self._run("UPDATE deliveries SET edited_at = 0 WHERE incident = ?", incident)

    def oldest_pending(self) -> float | None:
        """When the oldest event that no channel was told happened."""
        row = self._row("SELECT min(pending_since) FROM deliveries")
        return None if row is None or row[0] is None else float(row[0])

    def count_pending(self) -> int:
        row = self._row("SELECT count(*) FROM deliveries WHERE pending_since IS NOT NULL")
        return int(row[0]) if row else 0

    def count_open(self) -> dict[str, int]:
        rows = self._rows(
            "SELECT severity, count(*) FROM incidents WHERE closed_at IS NULL GROUP BY severity"
        )
        return {SEVERITIES[severity]: count for severity, count in rows}

    def _deliveries(self, where: str, *values: object) -> list[Delivery]:
        return [Delivery(*row) for row in self._rows(_DELIVERY + where, *values)]

    def _set(self, delivery: int, **values: str | int | float) -> None:
        columns = ", ".join(f"{name} = ?" for name in values)
        self._run(f"UPDATE deliveries SET {columns} WHERE id = ?", *values.values(), delivery)  # noqa: S608

    # Small facts, and what is no longer needed

    def remember(self, name: str, value: str) -> None:
        with self._transaction():
            self._run("INSERT OR REPLACE INTO facts VALUES (?, ?)", name, value)

    def recall(self, name: str) -> str | None:
        row = self._row("SELECT value FROM facts WHERE name = ?", name)
        return row[0] if row else None

    def writable(self) -> bool:
        """Whether a notification could be stored now."""
        try:
            self.remember("probe", "")
        except sqlite3.Error:
            return False
        return True

    def first_press(self, name: str, now: float) -> bool:
        """Whether this button press is new; Slack sends an event again when its answer was late."""
        with self._transaction():
            return self._run("INSERT OR IGNORE INTO pressed VALUES (?, ?)", name, now).rowcount == 1

    def prune(self, before: float) -> int:
        """Delete some of the incidents that closed before a time and were delivered; returns how many.

        Fewer than PRUNED_AT_ONCE means that none is left to delete.
        """
        with self._transaction():
            self._run("DELETE FROM pressed WHERE at < ?", before)
            gone = self._rows(
                "SELECT i.id FROM incidents i WHERE i.closed_at < ? AND NOT EXISTS (SELECT 1 FROM deliveries d "
                "WHERE d.incident = i.id AND (d.pending_since IS NOT NULL OR d.inflight != '')) LIMIT ?",
                *(before, PRUNED_AT_ONCE),
            )
            for (incident,) in gone:
                # The number is given again to a later incident, which must get its own chart.
                self._run("DELETE FROM facts WHERE name = ?", f"chart {incident}")
                self._run("DELETE FROM incidents WHERE id = ?", incident)
            return len(gone)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock:
            if self._connection.in_transaction:
                yield
                return
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                # SQLite has rolled back by itself after some errors (a full disk).
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise

    def _run(self, statement: str, *values: object) -> sqlite3.Cursor:
        with self._lock:
            return self._connection.execute(statement, values)

    def _rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        return self._run(statement, *values).fetchall()

    def _row(self, statement: str, *values: object) -> tuple[Any, ...] | None:
        row: tuple[Any, ...] | None = self._run(statement, *values).fetchone()
        return row
