"""Incidents and their events as rows of the database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from triton_alerts.bridge.incidents.database import Database
from triton_alerts.bridge.incidents.incident import Event, Incident
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
            *(incident.name, incident.key, incident.model_dump_json(by_alias=True), incident.opened_at),
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
                incident.model_dump_json(by_alias=True),
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
