"""What on-call was told: the notifier's database says what was delivered, its log how it read."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

_DELIVERED = """
SELECT i.document FROM incidents i JOIN deliveries d ON d.incident = i.id
WHERE d.role = 'main' AND d.root_ts <> '' AND d.told_seq >= i.last_seq
ORDER BY i.id
"""


@dataclass(frozen=True, slots=True)
class Notice:
    """One message to the person on call: which alerts of which models, and Triton's own words about them."""

    status: str
    alerts: Sequence[str]
    models: Sequence[str]
    reason: str = ""


def read_notices(database: Path) -> list[Notice]:
    """Everything that was delivered so far, one notice a model, alert and status."""
    if not database.exists():
        return []
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=2)) as connection:
        documents = [json.loads(row[0]) for row in connection.execute(_DELIVERED)]
    return [notice for document in documents for notice in _notices(document)]


def _notices(incident: dict[str, object]) -> list[Notice]:
    evidence: dict[str, dict[str, str]] = incident.get("evidence") or {}  # type: ignore[assignment]
    reason = "\n".join(evidence.get("reasons", {}).values())
    members: dict[str, dict[str, dict[str, str]]] = incident["members"]  # type: ignore[assignment]
    found = []
    for member in members.values():
        labels = member["labels"]
        alerts, models = [labels["alertname"]], [labels.get("model", "")]
        found.append(Notice("firing", alerts, models, reason))
        if member.get("ends_at") is not None:
            found.append(Notice("resolved", alerts, models, reason))
    return found


def last_message(log: Path) -> str:
    """The newest message as the notifier printed it: from the last empty line on."""
    if not log.exists():
        return ""
    return log.read_text(errors="replace").rstrip().rpartition("\n\n")[2]
