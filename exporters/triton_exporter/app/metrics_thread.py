"""Read Triton's metrics in a thread of its own, and give each reading to the parts that want it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, closing

from triton_exporter.app.parts import Parts
from triton_exporter.app.settings import Settings
from triton_exporter.catalogue import own
from triton_exporter.exposition.scrape import Reading, Relay, SharedReader, fetch_metrics
from triton_exporter.family import Family
from triton_exporter.http.client import Client
from triton_exporter.processor_time import Pace

OBSERVING_SECONDS = 1.0
"""Seconds between two readings that all observers get; distributions also get those in between."""


class MetricsThread:
    """Readings at the pace that the budget of CPU time allows, and at each scrape.

    `lock` is that of the parts; `count_failure` is called with endpoint and reason of a reading that failed.
    """

    def __init__(
        self,
        client: Client,
        settings: Settings,
        parts: Parts,
        lock: threading.Lock,
        count_failure: Callable[[str, str], None],
        now: Callable[[], float],
    ) -> None:
        self.relay = Relay()
        self.last: Reading | None = None
        self._client = client
        self._parts = parts
        self._lock = lock
        self._count_failure = count_failure
        interval = settings.sampling_interval
        self._pace = Pace(settings.sampling_budget, interval)
        self._observing_seconds = min(OBSERVING_SECONDS, interval or OBSERVING_SECONDS)
        self._observed_at = float("-inf")
        self._last_success = 0.0
        self._cpu_seconds = 0.0  # of this thread, up to the last reading
        self._reader = SharedReader(
            lambda: fetch_metrics(client, "", now, self._pace.is_fast),
            self._publish,
            self._process,
            self._pace.next_interval,
        )

    def run(self) -> None:
        """Read until `stop`."""
        with closing(self._client):
            self._reader.run()

    def stop(self) -> None:
        """Let `run` end."""
        self._reader.stop()

    def fresh(self, timeout_seconds: float) -> AbstractContextManager[Callable[[], Reading | None]]:
        """Ask for a reading that ends after this call, as `SharedReader.fresh` does."""
        return self._reader.fresh(timeout_seconds)

    def families(self) -> Iterable[Family]:
        """Yield series about the readings."""
        yield from self.relay.families()
        # Absent before the first success: an age counted from 1970 means nothing.
        yield Family.of(own.LAST_SUCCESS, [((), self._last_success)] if self._last_success else [])
        yield Family.single(own.SAMPLING_INTERVAL, self._pace.interval)

    def _publish(self, reading: Reading) -> None:
        self.last = reading
        if reading.up:
            self._last_success = reading.at
        else:
            self._count_failure("metrics", reading.reason)

    def _process(self, reading: Reading) -> None:
        if reading.up:
            self._give_to_parts(reading)
        cpu_seconds, self._cpu_seconds = time.thread_time() - self._cpu_seconds, time.thread_time()
        if reading.up:
            self._pace.note_reading(cpu_seconds, time.process_time(), time.monotonic())
        else:
            self._pace.note_failure()

    def _give_to_parts(self, reading: Reading) -> None:
        is_between = 0 <= reading.at - self._observed_at < self._observing_seconds - 0.001
        with self._lock:
            if is_between:
                self._parts.sample(self.relay.select(reading, self._parts.sampled), reading.at)
            else:
                self._observed_at = reading.at
                self._parts.observe(self.relay.select(reading, self._parts.observed), reading.at)
