"""Intervals that wait for an estimate of their shape, because only the mean of their requests is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from triton_exporter.distribution.shape import Estimated, Interval

if TYPE_CHECKING:
    from triton_exporter.distribution.estimate.decomposition import Decomposition

NEXT_INTERVALS_SECONDS = 1.0
"""Time for which an interval waits for the next ones, from which its shape is estimated."""

FIRST_ESTIMATE_SECONDS = 5.0
"""Time for which an interval waits while there is no estimate yet."""


class PendingIntervals:
    """Intervals in the order of their ends: all of them leave at once."""

    def __init__(self) -> None:
        self._intervals: list[Interval] = []

    def __iter__(self) -> Iterator[Interval]:
        return iter(self._intervals)

    def __len__(self) -> int:
        return len(self._intervals)

    def add(self, interval: Interval) -> None:
        """Add an interval, which ended after the others."""
        self._intervals.append(interval)

    def are_due(self, now: float, is_estimated: bool) -> bool:
        """Return whether the first of them has waited long enough; less long if there is an estimate."""
        longest = NEXT_INTERVALS_SECONDS if is_estimated else FIRST_ESTIMATE_SECONDS
        return bool(self._intervals) and self._intervals[0].end <= now - longest

    def take(self) -> list[Interval]:
        """Remove and return all of them, without an estimate."""
        taken, self._intervals = self._intervals, []
        return taken

    def take_estimated(self, decomposition: Decomposition, bounds: Sequence[float]) -> Interval:
        """Remove all of them, and return them as one interval with their estimated shares at these bounds."""
        taken = self.take()
        requests = [interval.requests for interval in taken]
        shares = decomposition.shares(len(taken), bounds).T @ requests
        return Interval(
            taken[-1].end,
            sum(requests),
            sum(interval.seconds for interval in taken),
            source="decomposed",
            shape=Estimated([float(share) / sum(requests) for share in shares]),
        )
