"""A share of one core for work that may wait or be left out: reading traces, and estimates."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class CoreBudget:
    """Processor time that some work may take in the long run; what it does not take is saved up.

    `share` is a part of one core. At most `max_saved` seconds of processor time are saved, and saved at the start.
    `clock` gives seconds that pass, `cpu_clock` the processor time of the thread. Safe for threads.
    """

    def __init__(
        self,
        share: float,
        max_saved: float,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._share = share
        self._max_saved = max_saved
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._lock = threading.Lock()
        self._saved = max_saved
        self._updated = clock()

    @property
    def is_spent(self) -> bool:
        """True if the work must wait until processor time is saved again."""
        with self._lock:
            now = self._clock()
            self._saved = min(self._max_saved, self._saved + self._share * (now - self._updated))
            self._updated = now
            return self._saved <= 0

    @contextmanager
    def charged(self) -> Iterator[None]:
        """Take the processor time of this thread until the end of the block."""
        started = self._cpu_clock()
        try:
            yield
        finally:
            with self._lock:
                self._saved -= self._cpu_clock() - started
