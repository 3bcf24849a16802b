"""One cumulative histogram that only grows."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from triton_exporter.catalogue import Metric
from triton_exporter.distribution.buckets import le
from triton_exporter.family import Sample, series
from triton_exporter.snapshot import ModelVersion


class Histogram:
    """Counts by bucket, with sum and count. Bounds are finite, ascending, in seconds, and inclusive."""

    def __init__(self, metric: Metric, owner: ModelVersion, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.count = 0.0
        self.sum = 0.0
        self._counts = [0.0] * (len(self.bounds) + 1)
        ends = [*(le(bound) for bound in self.bounds), "+Inf"]
        self._names = [series(metric, *owner, suffix="_bucket", le=end) for end in ends]
        self._names += [series(metric, *owner, suffix="_count"), series(metric, *owner, suffix="_sum")]

    def observe(self, value: float, times: float = 1.0) -> None:
        """Count `times` observations of `value` seconds, and their sum."""
        self._counts[bisect_left(self.bounds, value)] += times
        self.count += times
        self.sum += value * times

    def cumulative(self) -> list[float]:
        """How many observations were at or below each bound, and in the end all of them."""
        return list(accumulate(self._counts))

    def samples(self) -> list[Sample]:
        """The series of the histogram as they stand."""
        return [
            Sample(*pair)
            for pair in zip(self._names, (*self.cumulative(), self.count, self.sum), strict=True)
        ]
