"""Choose when to read Triton's counters: as often as a share of a core allows, and at times in fast bursts."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

SHORTEST_SECONDS = 0.05
"""Shortest interval between two readings, in seconds; half of it within a burst."""

SAMPLING_PART = 0.9
"""Share of the budget for readings and all other work of the exporter; the other work is measured from time
to time."""

LEAST_PART = 0.7
"""Minimum share of the budget for readings, whatever the other work costs: estimates need short intervals."""

REST_SECONDS = 10.0
"""Seconds over which the CPU time of the other work is measured."""

TRITON_PART = 0.45
"""Processor time of Triton for each second of the exporter's own (0.4 to 0.46 measured on 2.51). How long its
answer takes means little: on a busy machine that is waiting."""

_STEADY_SECONDS = 0.25
"""Where readings this far apart cost too much, half the budget goes into bursts."""

_BURST_SECONDS = 2.0
_LONGEST_BURST_READING = 0.02
"""CPU seconds of a reading above which no bursts are used (hundreds of models)."""

_UNANSWERED_SECONDS = 1.0


@dataclass
class Pace:
    """Compute the wait after each reading. `budget` is a share of one core, for Triton and the exporter
    together."""

    budget: float = 0.02
    fixed: float | None = None
    draw: Callable[[], float] = random.random
    interval: float = field(default=_UNANSWERED_SECONDS, init=False)
    """Seconds between two readings now."""
    _rest: float = field(default=0.0, init=False)  # of a core, for all but the usual cost of readings
    _measured: tuple[float, float] | None = field(default=None, init=False)
    _usual: float = field(default=0.0, init=False)  # seconds since it was measured
    _cost: float | None = field(default=None, init=False)
    _costs: deque[float] = field(default_factory=lambda: deque(maxlen=40), init=False)
    _fails: bool = field(default=False, init=False)
    _burst: int = field(default=0, init=False)

    def note_reading(self, own: float, whole: float, now: float) -> None:
        """Learn the processor time (seconds) of a reading, and of the whole exporter from its start until
        `now`."""
        self._fails = False
        self._costs.append(own * (1 + TRITON_PART))
        # The median: at times a reading also feeds all observers, or settles estimates, and costs more.
        self._cost = median(self._costs)
        self._usual += self._cost / (1 + TRITON_PART)
        if self._measured is not None:
            since, before = self._measured
            if now - since < REST_SECONDS:
                return
            self._rest = max(0.0, (whole - before - self._usual) / (now - since))
        self._measured, self._usual = (now, whole), 0.0

    def note_failure(self) -> None:
        """Record that Triton did not respond; until it does, it is read at the initial interval."""
        self._fails = True

    def is_fast(self) -> bool:
        """Return whether the next reading comes soon enough to keep a connection for it."""
        return self.interval <= _STEADY_SECONDS

    def next(self) -> float:
        """Return the seconds from the last reading to the next one."""
        if self.fixed is not None:
            self.interval = self.fixed
        elif self._fails or self._cost is None:
            self.interval = _UNANSWERED_SECONDS
        else:
            left = max(SAMPLING_PART * self.budget - self._rest, LEAST_PART * self.budget)
            self.interval = self._with_bursts(self._cost, self._cost / left)
        return self.interval

    def _with_bursts(self, cost: float, steady: float) -> float:
        """Return `steady`, or where that is long and a reading cheap, short waits of bursts between longer ones."""
        if steady <= _STEADY_SECONDS or cost > _LONGEST_BURST_READING:
            self._burst = 0
            return max(SHORTEST_SECONDS, steady)
        fast = max(SHORTEST_SECONDS / 2, 2 * cost)
        readings = round(_BURST_SECONDS / fast)
        if self._burst > 0:
            self._burst -= 1
            return fast
        # Bursts begin at random times, which keeps them unbiased, as often as half the budget pays for.
        if self.draw() < 1 / readings:
            self._burst = readings
        return 2 * steady
