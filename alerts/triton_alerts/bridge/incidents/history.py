"""Read the incidents that a bridge has recorded, while it runs or afterwards; nothing is written."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from triton_alerts.bridge.incidents.database import DATABASE_FILE, schema_version
from triton_alerts.bridge.incidents.incident import Incident

_SELECT = """
SELECT i.document, EXISTS (SELECT 1 FROM deliveries d WHERE d.incident = i.id AND d.role = 'main'
                           AND d.root_ts <> '' AND d.posted_seq >= i.last_seq)
FROM incidents i
"""


@dataclass(frozen=True, slots=True)
class RecordedIncident:
    """An incident as it is now; `posted` means that a channel shows it and everything that happened to it."""

    incident: Incident
    posted: bool


def list_incidents(data: Path) -> list[RecordedIncident]:
    """Return the incidents in a bridge's --data folder, oldest first. Raises sqlite3.Error."""
    with _opened(data) as connection:
        rows = connection.execute(f"{_SELECT} ORDER BY i.id").fetchall() if connection else []
    return [_recorded(*row) for row in rows]


@contextmanager
def _opened(data: Path) -> Iterator[sqlite3.Connection | None]:
    path = data / DATABASE_FILE
    if not path.exists():
        yield None
        return
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=2)) as connection:
        schema_version(connection)
        # One snapshot for all questions.
        connection.execute("BEGIN")
        yield connection


def _recorded(document: str, posted: int) -> RecordedIncident:
    return RecordedIncident(Incident.model_validate_json(document), bool(posted))
