"""Messages that the demo's bridge posted: its incidents show what was sent, its log how it read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path

from triton_alerts.bridge.incidents.history import list_incidents
from triton_alerts.bridge.incidents.incident import Incident


@dataclass(frozen=True, slots=True)
class Notice:
    """One message to the person on call: which alert of which model, and Triton's own words about them."""

    status: str
    alert: str
    model: str
    reason: str = ""


def read_notices(data: Path) -> list[Notice]:
    """Return all that was posted so far, one notice a model, alert and status; `data` is the bridge's folder."""
    return [
        notice for record in list_incidents(data) if record.posted for notice in _notices(record.incident)
    ]


def _notices(incident: Incident) -> Iterator[Notice]:
    reason = "\n".join(incident.evidence.reasons.values()) if incident.evidence is not None else ""
    for member in incident.members.values():
        for status in ("firing",) if member.firing else ("firing", "resolved"):
            yield Notice(status, member.labels["alertname"], member.labels.get("model", ""), reason)


def read_messages(log: Path) -> list[str]:
    """Return the messages as the bridge printed them, oldest first; an empty line stands between two."""
    text = log.read_text(errors="replace").rstrip() if log.exists() else ""
    return text.split("\n\n") if text else []


def new_messages(messages: Sequence[str], before: Sequence[str]) -> list[str]:
    """Return the messages that an earlier read did not return, or returned half written."""
    earlier = chain(before, repeat(None))
    return [message for message, old in zip(messages, earlier, strict=False) if message != old]
