"""Poll Triton's API in a thread of its own, and give each snapshot to the parts that want it."""

from __future__ import annotations

import logging
import threading
import time

from triton_exporter.app.parts import Parts
from triton_exporter.snapshot import Snapshot
from triton_exporter.triton.poll import ApiPoller

_LOG = logging.getLogger(__name__)


class ApiThread:
    """Polls every `interval_seconds` until `stop` is set; `lock` is that of the parts."""

    def __init__(
        self,
        poller: ApiPoller,
        interval_seconds: float,
        parts: Parts,
        lock: threading.Lock,
        stop: threading.Event,
    ) -> None:
        self._poller = poller
        self._interval_seconds = interval_seconds
        self._parts = parts
        self._lock = lock
        self._stop = stop

    def run(self) -> None:
        """Poll until stopped."""
        while not self._stop.is_set():
            started = time.monotonic()
            snapshot = self._polled()
            with self._lock:
                self._parts.observe_snapshot(snapshot)
            took = time.monotonic() - started
            self._stop.wait(max(0.01, self._interval_seconds - took, self._poller.pause_seconds))

    def _polled(self) -> Snapshot:
        """Poll the API once; after a response that cannot be handled, its states are unknown."""
        try:
            return self._poller.poll()
        except Exception:  # noqa: BLE001 - the boundary, as in `guarded`
            _LOG.exception("a response of Triton's API could not be handled; this poll is lost")
            self._poller.count_failure("index", "bad_response")
            return Snapshot(self._poller.now(), api_failure="bad_response")
