"""One cumulative histogram that only grows."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from math import floor
from typing import Protocol, overload

from triton_exporter.catalogue import Metric
from triton_exporter.distribution.buckets import le
from triton_exporter.distribution.shape import Point, Shape
from triton_exporter.family import Exemplar, Sample, series
from triton_exporter.snapshot import ModelVersion


class Histogram:
    """Counts by bucket, with sum and count. Bounds are finite, ascending, in seconds, and inclusive.

    Shares make fractions of requests, but only whole requests are shown. What a bucket does not show yet is shown
    as soon as the buckets above it grow as much, so that no bucket ever grows by more than one above it. If each
    bucket were rounded on its own, rates could fall as the bound rises, and histogram_quantile() would be wrong.
    The last bucket always shows the true count.
    """

    def __init__(self, metric: Metric, version: ModelVersion, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.count = 0.0
        self.sum = 0.0
        self._counts = [0] * (len(self.bounds) + 1)
        self._unshown = [0.0] * len(self._counts)  # requests at or below each bound
        self._exemplars: dict[int, Exemplar] = {}
        self._metric = metric
        self._version = version
        whole = [name.replace("%", "%%") for name in self._series_names()]
        template = "".join([f"{name} %d\n" for name in whole[:-1]]) + f"{whole[-1]} %a\n"
        self._template = template.encode("utf-8", "replace")
        self._lines = b""

    def __len__(self) -> int:
        return len(self.bounds) + 3

    def _series_names(self) -> list[str]:
        """Return the series' names, made again at each call: the template contains them already."""
        ends = [*(le(bound) for bound in self.bounds), "+Inf"]
        buckets = [series(self._metric, *self._version, suffix="_bucket", le=end) for end in ends]
        totals = [series(self._metric, *self._version, suffix=suffix) for suffix in ("_count", "_sum")]
        return buckets + totals

    def add(self, requests: float, seconds: float, shape: Shape) -> None:
        """Count `requests` that took `seconds` in all and have this `shape`."""
        self._lines = b""
        self.count += requests
        self.sum += seconds
        if isinstance(shape, Point) and not requests % 1:
            self._counts[bisect_left(self.bounds, shape.seconds)] += int(requests)
            return
        shares = (*shape.shares(self.bounds), 1.0)
        self._unshown = [rest + requests * share for rest, share in zip(self._unshown, shares, strict=True)]
        self._show_whole_requests()

    def _show_whole_requests(self) -> None:
        """Show the whole requests of each bucket, at most as many as the buckets above it show."""
        # The margin keeps a whole number that float arithmetic left just below it.
        whole = [max(0, floor(rest + 1e-6)) for rest in self._unshown]
        shown = [*accumulate(reversed(whole), min)][::-1]
        self._unshown = [rest - more for rest, more in zip(self._unshown, shown, strict=True)]
        below = 0
        for position, more in enumerate(shown):
            self._counts[position] += more - below
            below = more

    def stored(self, pending: Iterable[tuple[float, float]]) -> tuple[list[int], float]:
        """Return counts by bucket and the sum once `pending` (requests, seconds) has been added at its means."""
        counts, total = self._counts.copy(), self.sum
        for requests, seconds in pending:
            counts[bisect_left(self.bounds, seconds / requests)] += int(requests)
            total += seconds
        return counts, total

    def restore(self, counts: Sequence[int], total: float) -> None:
        """Continue from stored counts by bucket and their sum."""
        self._counts, self.count, self.sum = list(counts), float(sum(counts)), total
        self._lines = b""

    def remember(self, exemplars: Iterable[Exemplar]) -> None:
        """Keep the last exemplar of each bucket."""
        for exemplar in exemplars:
            self._exemplars[bisect_left(self.bounds, exemplar.value)] = exemplar

    def cumulative(self) -> list[float]:
        """Return how many observations were at or below each bound, and in the end all of them."""
        return [float(count) for count in accumulate(self._counts)]

    @property
    def has_exemplars(self) -> bool:
        """True if any bucket has an exemplar."""
        return bool(self._exemplars)

    def samples(self) -> list[Sample]:
        """Return the series of the histogram as they stand."""
        values = (*self.cumulative(), self.count, self.sum)
        return [
            Sample(name, value, self._exemplars.get(position))
            for position, (name, value) in enumerate(zip(self._series_names(), values, strict=True))
        ]

    def lines(self) -> bytes:
        """Return the series in the text format, written again only after something was added."""
        if not self._lines:
            self._lines = self._template % (*accumulate(self._counts), self.count, self.sum)
        return self._lines


class _SamplesPart(Protocol):
    """A part of a family that writes all its samples at once, which is faster than one by one."""

    @property
    def has_exemplars(self) -> bool: ...

    def __len__(self) -> int: ...

    def samples(self) -> list[Sample]: ...

    def lines(self) -> bytes: ...


class JoinedSamples(Sequence[Sample]):
    """Samples of many histograms as those of one family; TextSamples (see `family`)."""

    def __init__(self, histograms: Sequence[_SamplesPart]) -> None:
        self._histograms = histograms

    def __len__(self) -> int:
        return sum(map(len, self._histograms))

    def __iter__(self) -> Iterator[Sample]:
        for histogram in self._histograms:
            yield from histogram.samples()

    @overload
    def __getitem__(self, index: int) -> Sample: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Sample]: ...

    def __getitem__(self, index: int | slice) -> Sample | Sequence[Sample]:
        return list(self)[index]

    @property
    def has_exemplars(self) -> bool:
        """True if any bucket of any of the histograms has an exemplar."""
        return any(histogram.has_exemplars for histogram in self._histograms)

    def pieces(self) -> Iterable[bytes]:
        """Return the lines of all histograms."""
        return [histogram.lines() for histogram in self._histograms]
