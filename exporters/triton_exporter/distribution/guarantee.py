"""Bounds on the requests within a threshold that counts and sums guarantee, whatever the traffic."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil

from triton_exporter.catalogue.state import REQUESTS_WITHIN
from triton_exporter.distribution.buckets import Signal, le
from triton_exporter.family import Sample, series
from triton_exporter.snapshot import ModelVersion

BOUNDS = ("least", "most")
"""Closed set of values of the label `bound`."""


class Guarantee:
    """Counts the requests that are certainly, and those that are possibly, at or below each threshold (seconds)."""

    has_exemplars = False

    def __init__(self, version: ModelVersion, signal: Signal, thresholds: Sequence[float]) -> None:
        self._thresholds = tuple(thresholds)
        self._least = [0.0] * len(self._thresholds)
        self._most = [0.0] * len(self._thresholds)
        self._names = tuple(
            series(REQUESTS_WITHIN, *version, signal, le(threshold), bound)
            for bound in BOUNDS
            for threshold in self._thresholds
        )
        self._lines = b""

    def __len__(self) -> int:
        return len(self._names)

    def add(self, requests: float, seconds: float) -> None:
        """Count `requests` that took `seconds` in all."""
        self._lines = b""
        for place, threshold in enumerate(self._thresholds):
            least, most = within(threshold, requests, seconds)
            self._least[place] += least
            self._most[place] += most

    def stored(self) -> tuple[tuple[float, float, float], ...]:
        """Return each threshold with the fewest and the most requests within it."""
        return tuple(zip(self._thresholds, self._least, self._most, strict=True))

    def restore(self, rows: Iterable[tuple[float, float, float]]) -> None:
        """Continue from stored rows; a threshold without one begins at 0."""
        known = {threshold: (least, most) for threshold, least, most in rows}
        for place, threshold in enumerate(self._thresholds):
            self._least[place], self._most[place] = known.get(threshold, (0.0, 0.0))
        self._lines = b""

    def samples(self) -> list[Sample]:
        """Return the series as they stand."""
        return list(map(Sample, self._names, (*self._least, *self._most)))

    def lines(self) -> bytes:
        """Return the series in the text format, written again only after something was added."""
        if not self._lines:
            self._lines = "".join(f"{name} {value:.0f}\n" for name, value, _ in self.samples()).encode(
                "utf-8", "replace"
            )
        return self._lines


def within(threshold: float, requests: float, seconds: float) -> tuple[float, float]:
    """Return the fewest and the most of `requests` that took `seconds` in all that can be at or below `threshold`.

    k requests above T take more than k T together, and at least one is above T if the mean is.
    """
    fewest = min(requests, 1.0) if seconds > threshold * requests else 0.0
    slowest = min(requests, max(0, ceil(seconds / threshold - 1e-9) - 1)) if requests > 1 else fewest
    return requests - slowest, requests - fewest
