"""Messages that the demo's bridge posted: which alerts, from its incidents; the text, from its log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from triton_alerts.bridge.incidents.history import list_incidents
from triton_alerts.bridge.incidents.incident import Incident


@dataclass(frozen=True, slots=True)
class Notice:
    """One alert about a model that was posted to on-call, and the reason from Triton."""

    status: str
    alert: str
    model: str
    reason: str = ""


def read_notices(data: Path) -> list[Notice]:
    """Return one notice for each model, alert and status posted so far; `data` is the bridge's folder."""
    return [
        notice for record in list_incidents(data) if record.posted for notice in _notices(record.incident)
    ]


def _notices(incident: Incident) -> Iterator[Notice]:
    reason = "\n".join(incident.evidence.reasons.values()) if incident.evidence is not None else ""
    for member in incident.members.values():
        for status in ("firing",) if member.firing else ("firing", "resolved"):
            yield Notice(status, member.labels["alertname"], member.labels.get("model", ""), reason)


class MessageLog:
    """Messages in the log of the demo's bridge, read as they are appended; an empty line stands between two."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._last = b""
        self.newest = ""
        """The last message, which may be incomplete."""

    def new_messages(self) -> list[str]:
        """Return the messages appended since the last call; one that was incomplete then is returned again."""
        with self._path.open("rb") as log:
            log.seek(self._offset)
            appended = log.read()
        self._offset += len(appended)
        *complete, self._last = (self._last + appended).split(b"\n\n")
        messages = [part.decode(errors="replace").strip("\n") for part in (*complete, self._last)]
        new = messages[1:] if messages[0] == self.newest else messages
        self.newest = messages[-1]
        return new
