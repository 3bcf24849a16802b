"""Audit log: one JSON object per action, on disk before the person who pressed a button is answered."""

from __future__ import annotations

import json
import logging
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

from triton_alerts.bridge.incidents.incident import Incident, subject_text
from triton_alerts.bridge.incidents.notification import Member

log = logging.getLogger(__name__)


def private(path: Path) -> Path:
    """Make the file if it does not exist, readable by its owner only."""
    path.touch(mode=0o600)
    path.chmod(0o600)
    return path


@dataclass
class Audit:
    """An append-only log. After a line that a crash cut short the next one is on a line of its own."""

    path: Path
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def write(self, at: float, who: str, action: str, incident: str, outcome: str) -> None:
        line = {"at": at, "who": who, "action": action, "incident": incident, "outcome": outcome}
        with self._lock, private(self.path).open("ab") as trail:
            if trail.tell() and not self._ends_whole():
                trail.write(b"\n")
            trail.write(json.dumps(line, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
            trail.flush()
            os.fsync(trail.fileno())

    def record_escalation(self, at: float, incident: Incident, channel: str) -> None:
        """Record an escalation; if the log cannot be written, the escalation continues."""
        try:
            self.write(
                at, "bridge", "escalate", incident.name, f"nobody had acknowledged it; sent to {channel}"
            )
        except OSError as error:
            log.error("the audit log cannot be written: escalate %s: %s", incident.name, error)

    def record_unreported(self, at: float, incident: str, member: Member, reason: str) -> None:
        """Record a change of an alert that no thread reports; if the log cannot be written, log an error."""
        what = "fired" if member.firing else "resolved"
        try:
            self.write(
                at, "bridge", what, incident, f"{member.name} for {subject_text(member.labels)}: {reason}"
            )
        except OSError as error:
            log.error("the audit log cannot be written: %s %s: %s", what, incident, error)

    def _ends_whole(self) -> bool:
        with self.path.open("rb") as trail:
            trail.seek(-1, os.SEEK_END)
            return trail.read(1) == b"\n"
