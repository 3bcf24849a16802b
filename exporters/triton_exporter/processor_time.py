"""The processor time that the exporter may take: a share of a core for work that may wait, and the pace of readings.

Triton's counters are read as often as a share of a core allows, and at times in fast bursts.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import fmean


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


MIN_INTERVAL_SECONDS = 0.05
"""Shortest interval between two readings, in seconds; half of it within a burst."""

TRITON_PART = 0.45
"""Processor time of Triton for each second of the exporter's own (0.4 to 0.46 measured on 2.51). How long its
answer takes means little: on a busy machine that is waiting."""

_STEADY_SECONDS = 0.25
"""Where readings this far apart cost too much, half the budget goes into bursts."""

_BURST_SECONDS = 2.0
_MAX_BURST_READING_SECONDS = 0.02
"""CPU seconds of a reading from which on no bursts are used (hundreds of models)."""

_UNANSWERED_SECONDS = 1.0

IDLE_AFTER_SECONDS = 60.0
"""Time without a request after which Triton is read seldom."""

SELDOM_SECONDS = 1.0
"""Least interval of an idle Triton, whose first requests then share a sum, and of one that tells how times spread."""

IDLE_PART = 0.1
"""Share of the budget for readings of a Triton without a request."""


@dataclass
class Pace:
    """Compute the interval from each reading to the next.

    `budget` is the share of one core that readings may take, of Triton and the exporter together.
    """

    budget: float = 0.02
    fixed: float | None = None
    draw: Callable[[], float] = random.random
    interval: float = field(default=_UNANSWERED_SECONDS, init=False)
    """Seconds between two readings now."""
    _usual_cost_seconds: float | None = field(default=None, init=False)
    _recent_costs_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=40), init=False)
    _fails: bool = field(default=False, init=False)
    _burst: int = field(default=0, init=False)
    _now: float = field(default=0.0, init=False)
    _moved_at: float = field(default=0.0, init=False)
    _is_told: bool = field(default=False, init=False)

    def note_reading(self, cpu_seconds: float, now: float, moved: bool = True, is_told: bool = False) -> None:
        """Learn the exporter's processor time of a reading, and whether Triton's counters moved since the one before.

        If Triton `is_told` how times spread, sums of short intervals add nothing.
        """
        self._fails, self._now, self._is_told = False, now, is_told
        if moved:
            self._moved_at = now
        cost = cpu_seconds * (1 + TRITON_PART)
        if self._usual_cost_seconds is None:
            # Every series is new in it, which takes ten times as long: the next one comes soon whatever it cost.
            self._usual_cost_seconds = min(cost, self.budget * _UNANSWERED_SECONDS)
        elif not self._burst:  # readings in a burst are cheaper than those between, which feed all observers
            self._recent_costs_seconds.append(cost)
            self._usual_cost_seconds = fmean(self._recent_costs_seconds)

    def note_failure(self) -> None:
        """Record that Triton did not respond; until it does, it is read at the initial interval."""
        self._fails = True

    def is_fast(self) -> bool:
        """Return whether the next reading comes soon enough to keep a connection for it."""
        return self.interval <= _STEADY_SECONDS

    def next_interval(self) -> float:
        """Return the seconds from the last reading to the next one."""
        if self.fixed is not None:
            self.interval = self.fixed
        elif self._fails or self._usual_cost_seconds is None:
            self.interval = _UNANSWERED_SECONDS
        else:
            steady = self._usual_cost_seconds / self.budget
            is_idle = self._now - self._moved_at > IDLE_AFTER_SECONDS
            if is_idle or self._is_told:
                self._burst = 0
                self.interval = max(SELDOM_SECONDS, steady / IDLE_PART if is_idle else steady)
            else:
                self.interval = self._with_bursts(self._usual_cost_seconds, steady)
        return self.interval

    def _with_bursts(self, cost: float, steady: float) -> float:
        """Return `steady`, or bursts of short intervals between long ones if it is long and a reading cheap."""
        if steady <= _STEADY_SECONDS or cost >= _MAX_BURST_READING_SECONDS:
            self._burst = 0
            return max(MIN_INTERVAL_SECONDS, steady)
        fast = max(MIN_INTERVAL_SECONDS / 2, 2 * cost)
        readings = round(_BURST_SECONDS / fast)
        if self._burst > 0:
            self._burst -= 1
            return fast
        # Bursts begin at random times, which keeps them unbiased, as often as half the budget pays for.
        if self.draw() < 1 / readings:
            self._burst = readings
        return 2 * steady
