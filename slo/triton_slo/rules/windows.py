"""Recorded windows, and the source of each.

Windows up to an hour decide how fast an alert reacts, so they read the counters. A longer window is the difference
of two running sums (`running_sum`): nothing lags, traffic weighs what it should, and a window of 30 days
reads a few samples.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from triton_exporter.common.duration import duration_text, parse_seconds
from triton_slo.objective.model import HALF_HOUR, Objective

GUARD = "3m"
"""An alert ends when the last 3 minutes show that its cause is gone."""
BURST_WINDOW = "10m"
"""A recurring incident (bursts) keeps its alert while this window burns."""
KEEP_FIRING = "1m"
"""Time for which a burn alert outlives its condition."""
RECURRING = "1h"
"""Window in which bursts are counted."""
RESTART = "10m"
"""A server that is away for longer is not restarting; `TritonModelNotReadyProlonged` waits as long."""
MEAN_SLICE = "1m"
"""Length of a time slice, for indicators that know only means."""
MIN_SCRAPES = 4
"""A rate over fewer samples than this shows little; no real window is shorter."""

_MAX_COUNTER_SECONDS = 3600
"""Longest window that is read from the counters."""
_BASE = (GUARD, "5m", BURST_WINDOW, "30m", "1h", "6h", "1d", "3d")
"""Windows that are recorded of every objective."""


@dataclass(frozen=True, slots=True)
class RecordedWindow:
    """A recorded window: its name, its real length, and whether it is read from the counters."""

    nominal: str
    seconds: float
    from_counters: bool = True

    @property
    def text(self) -> str:
        """The real length in PromQL."""
        return duration_text(self.seconds)


@dataclass(frozen=True, slots=True)
class Clock:
    """Conversion of nominal to real time: a scale, and a minimum of 4 scrapes."""

    scale: float = 1.0
    scrape_seconds: float = 15.0

    def real(self, nominal: str, min_scrapes: int = MIN_SCRAPES) -> float:
        """Return the real seconds of a nominal duration."""
        return max(parse_seconds(nominal) * self.scale, min_scrapes * self.scrape_seconds)

    def text(self, nominal: str, min_scrapes: int = MIN_SCRAPES) -> str:
        """Return the real duration in PromQL."""
        return duration_text(self.real(nominal, min_scrapes))


def canonical(duration: str) -> str:
    """Return one spelling for each length: `60m` is `1h`."""
    return duration_text(parse_seconds(duration))


def recorded_windows(objective: Objective, clock: Clock) -> dict[str, RecordedWindow]:
    """Return all windows that an objective records, shortest first."""
    wanted = {*_BASE, *(canonical(w) for tier in objective.alerting.tiers for w in (tier.long, tier.short))}
    if not objective.calendar:
        wanted.add(objective.window.nominal)
    # Exclusions are applied to what each evaluation records; an hour read from counters would ignore them.
    max_counter_seconds = parse_seconds("5m") if objective.exclusions else _MAX_COUNTER_SECONDS
    windows: dict[str, RecordedWindow] = {}
    for nominal in sorted(wanted, key=parse_seconds):
        if parse_seconds(nominal) <= max_counter_seconds:
            windows[nominal] = RecordedWindow(nominal, clock.real(nominal))
        else:
            windows[nominal] = _summed_window(nominal, windows.values())
    return windows


def _summed_window(nominal: str, shorter: Iterable[RecordedWindow]) -> RecordedWindow:
    """Return a longer window as a whole multiple of one that is read from the counters.

    At a small time scale it is longer than scaled.
    """
    seconds = parse_seconds(nominal)
    parts = [
        window
        for window in shorter
        if window.from_counters and window.nominal != GUARD and seconds % parse_seconds(window.nominal) == 0
    ]
    if not parts:
        raise ValueError(f"the window {nominal} is not a multiple of {HALF_HOUR}")
    return RecordedWindow(
        nominal, parts[-1].seconds * round(seconds / parse_seconds(parts[-1].nominal)), from_counters=False
    )
