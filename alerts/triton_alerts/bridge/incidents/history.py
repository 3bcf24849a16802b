"""Read the incidents that a bridge has recorded, while it runs or afterwards; nothing is written."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from triton_alerts.bridge.incidents.database import DATABASE_FILE, check_schema
from triton_alerts.bridge.incidents.incident import Event, Incident, Mark
from triton_slo.names import SEVERITIES

_SELECT = """
SELECT i.id, i.document, EXISTS (SELECT 1 FROM deliveries d
    WHERE d.incident = i.id AND d.role NOT LIKE 'escalation%'
                           AND d.ts <> '' AND d.seq >= i.last_seq)
FROM incidents i
"""


@dataclass(frozen=True, slots=True)
class RecordedIncident:
    """An incident as it is now, and its events, the oldest first.

    `posted` means that the thread of a channel shows all of the events.
    """

    incident: Incident
    events: tuple[Event, ...]
    posted: bool

    @property
    def severity(self) -> str:
        """The most urgent severity that it ever had."""
        return self.incident.peak or self.incident.severity

    @property
    def paged_at(self) -> float | None:
        """Time at which the incident became a page (Unix seconds); None for a ticket."""
        if self.severity != SEVERITIES[0]:
            return None
        raised = [
            event.at for event in self.events if event.kind == "raised" and event.severity == SEVERITIES[0]
        ]
        opened = next((event.severity for event in self.events if event.kind == "fired"), "")
        was_ticket = bool(raised) and opened in SEVERITIES[1:]
        return raised[0] if was_ticket else self.incident.opened_at

    @property
    def acknowledged(self) -> Mark | None:
        """First acknowledgement of the incident since it became a page, or since it opened."""
        since = self.paged_at or self.incident.opened_at
        marks = (Mark(by=event.by, at=event.at) for event in self.events if event.kind == "acknowledged")
        return next((mark for mark in marks if mark.at >= since), None)

    @property
    def seconds_to_acknowledge(self) -> float | None:
        """Seconds until the acknowledgement from the notification, or from when a ticket became a page."""
        mark = self.acknowledged
        return mark.at - (self.paged_at or self.incident.opened_at) if mark is not None else None

    @property
    def seconds_to_recover(self) -> float | None:
        """Seconds from the start of the incident's first alert to the end of its last one."""
        return None if self.incident.open else self.incident.ended_at - self.incident.since


def list_incidents(data: Path) -> list[RecordedIncident]:
    """Return the incidents in a bridge's --data folder, oldest first; empty before the bridge has made its file.

    Raises sqlite3.Error, of which OtherSchemaError names the schemas.
    """
    with _opened(data) as connection:
        rows = connection.execute(f"{_SELECT} ORDER BY i.id").fetchall() if connection else []
        happened = defaultdict[int, list[Event]](list)
        cursor = (
            connection.execute("SELECT incident, document FROM events ORDER BY seq") if connection else ()
        )
        for number, document in cursor:
            happened[number].append(Event.model_validate_json(document))
    return [
        RecordedIncident(Incident.model_validate_json(document), tuple(happened[number]), bool(posted))
        for number, document, posted in rows
    ]


def last_written(data: Path) -> float | None:
    """Return the Unix time at which a bridge last wrote to its database; None before it has made its file."""
    files = (data / DATABASE_FILE, data / f"{DATABASE_FILE}-wal")
    statuses = [file.stat() for file in files if file.exists()]
    # A process that only reads leaves an empty write-ahead log.
    return max((status.st_mtime for status in statuses if status.st_size), default=None)


_RECORDED = TypeAdapter(list[RecordedIncident])


def to_json(recorded: list[RecordedIncident]) -> bytes:
    """Write incidents as the bridge sends them to the web page."""
    return _RECORDED.dump_json(recorded)


def from_json(body: bytes) -> list[RecordedIncident]:
    """Read what `to_json` wrote. Raises ValueError."""
    return _RECORDED.validate_json(body)


@contextmanager
def _opened(data: Path) -> Iterator[sqlite3.Connection | None]:
    path = data / DATABASE_FILE
    if not path.exists():
        yield None
        return
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=2)) as connection:
        check_schema(connection)
        # One transaction, so that all queries see the same state.
        connection.execute("BEGIN")
        yield connection
