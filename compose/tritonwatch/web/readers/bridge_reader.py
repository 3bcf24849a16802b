"""The incidents of the Slack bridge for all viewers: read once an interval, and cached."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from triton_alerts.bridge.incidents.history import RecordedIncident
from tritonwatch.command_error import CommandError
from tritonwatch.web.readers.prometheus_reader import CachedAnswer

_INTERVAL_SECONDS = 10.0


@dataclass(eq=False)
class BridgeReader:
    """Reads by `read`, which raises CommandError; safe for threads."""

    read: Callable[[], list[RecordedIncident]]
    now: Callable[[], float] = time.time
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _answer: CachedAnswer[list[RecordedIncident]] = field(default_factory=lambda: CachedAnswer([], None))
    _fresh_until: float = 0.0

    def incidents(self) -> CachedAnswer[list[RecordedIncident]]:
        """Return the incidents, the oldest first; where reading fails, the last known ones with the reason."""
        with self._lock:
            if self.now() >= self._fresh_until:
                try:
                    self._answer = CachedAnswer(self.read(), self.now())
                except CommandError as error:
                    self._answer = replace(self._answer, problem=str(error))
                self._fresh_until = self.now() + _INTERVAL_SECONDS
            return self._answer
