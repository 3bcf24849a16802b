"""The histogram of one signal of one model version, and the requests on their way into it.

    interval ──► carried ──┬──► traced  ──┐
                           ├──► pending ──┼──► histogram
                           └──────────────┘

An interval without a request, or whose source shows no shape this time, is `carried` over to the next one. Those of
a traced model are `traced`: they wait for the traces of their requests. Those of which only the mean is known are
`pending`: they wait for an estimate. The others enter at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from triton_exporter.catalogue.state import DistributionSource
from triton_exporter.distribution.guarantee import Guarantee
from triton_exporter.distribution.histogram import Histogram
from triton_exporter.distribution.quantiles import QuantilePool, RecentQuantiles, fine_bounds
from triton_exporter.distribution.shape import Estimated, Interval, Point, RecentGain
from triton_exporter.distribution.stored import StoredHistogram
from triton_exporter.distribution.waiting.carried_over import CarriedOver
from triton_exporter.distribution.waiting.pending_intervals import PendingIntervals
from triton_exporter.distribution.waiting.traced_intervals import TracedIntervals
from triton_exporter.family import Exemplar

if TYPE_CHECKING:
    from triton_exporter.distribution.estimate.decomposition import Decomposition

MAX_REQUEST_SECONDS = 1e6
"""A longer mean (11 days) is Triton's arithmetic, not a request: an unsigned time that fell below zero.

https://github.com/triton-inference-server/server/issues/1985
"""


@dataclass(slots=True)
class Observations:
    """One histogram and the requests that wait for their shape.

    Every counted request enters the histogram exactly once, whatever source gives the shape; so sum and
    count are Triton's own, and a change of source is seen in neither.
    """

    histogram: Histogram
    guarantee: Guarantee
    traced: TracedIntervals
    pool: QuantilePool
    carried: CarriedOver = field(default_factory=CarriedOver)
    source: DistributionSource = "sampled_mean"
    decomposition: Decomposition | None = None
    quantiles: RecentQuantiles | None = None
    _pending: PendingIntervals = field(default_factory=PendingIntervals)
    _recent: RecentGain | None = None
    _before_restart: StoredHistogram | None = None  # until the first reading after a restart

    def stored(self, torn: CarriedOver, now: float) -> StoredHistogram:
        """Return the histogram to store, with the requests of a torn reading among those that are carried over."""
        waiting = chain(self._pending, self.traced)
        counts, total = self.histogram.stored((interval.requests, interval.seconds) for interval in waiting)
        carried = self.carried
        return StoredHistogram(
            self.histogram.bounds,
            tuple(counts),
            total,
            *self._recent_gains().gained(counts, total, now),
            self.guarantee.stored(),
            (carried.requests + torn.requests, carried.seconds + torn.seconds, carried.units + torn.units),
        )

    def _recent_gains(self) -> RecentGain:
        if self._recent is None:
            nothing = [0] * (len(self.histogram.bounds) + 1)
            self._recent = RecentGain(nothing, 0.0, nothing, 0.0)
        return self._recent

    def restore(self, stored: StoredHistogram) -> None:
        """Continue from a stored histogram; with other bucket bounds it starts at zero."""
        self.carried.add(*stored.held)
        self.guarantee.restore(stored.within)
        if stored.bounds == self.histogram.bounds:
            self.histogram.restore(stored.counts, stored.sum)
            self._recent = RecentGain(stored.counts, stored.sum, stored.recent, stored.recent_sum)
            self._before_restart = stored

    def count(self, interval: Interval, wait: bool) -> None:
        """Count the requests of an interval; with `wait`, their shape may come from traces."""
        whole = self.carried.joined(interval)
        if whole is None or whole.seconds / whole.requests > MAX_REQUEST_SECONDS:
            return
        self.guarantee.add(whole.requests, whole.seconds)
        before = self._before_restart
        if before is not None and whole.source == "sampled_mean":
            whole = whole._replace(shape=before.recent_shape(whole.requests, whole.seconds))
        if wait:
            self.traced.add(whole)
        elif self.decomposition is not None and whole.source == "sampled_mean" and whole.shape is None:
            self._decompose(self.decomposition, whole)
        else:
            self._enter(whole)

    def _decompose(self, decomposition: Decomposition, interval: Interval) -> None:
        """Enter an interval that is certain at once; the others wait for those after them."""
        undecided = decomposition.add(interval, self.histogram.bounds[0])
        if undecided or self._pending:
            self._pending.add(interval)
        else:
            self._enter(interval._replace(source="decomposed"))

    def close(self, now: float, watermark: float, enter_pending: bool = True) -> None:
        """Enter intervals that need not wait any longer; all requests that ended by `watermark` have been traced.

        Without `enter_pending`, intervals that wait for an estimate go on waiting.
        """
        self._before_restart = None
        if enter_pending:
            self._enter_pending(now)
        for interval, traces in self.traced.leaving(now, watermark):
            self._enter(interval)
            self.histogram.remember(Exemplar(trace.trace_id, trace.seconds, trace.ended) for trace in traces)

    def _enter_pending(self, now: float) -> None:
        decomposition = self.decomposition
        if decomposition is not None and not decomposition.is_estimated:
            decomposition = None
        if not self._pending.are_due(now, is_estimated=decomposition is not None):
            return
        if decomposition is None:
            for interval in self._pending.take():
                self._enter(interval)
        else:
            quantiles = self._quantiles_from_pool()
            bounds = quantiles.bounds if quantiles else self.histogram.bounds
            self._enter(self._pending.take_estimated(decomposition, bounds))

    def _enter(self, interval: Interval) -> None:
        """Enter an interval with the shape that it has, or at its mean."""
        if interval.shape is None or interval.source == "sampled_mean":
            self._enter_at_mean(interval)
            return
        self.source = interval.source
        shape, quantiles = interval.shape, self._quantiles_from_pool()
        if quantiles is not None:
            shares = shape.shares(quantiles.bounds)
            quantiles.add(interval.end, interval.requests, shares)
            shape = Estimated([shares[place] for place in fine_bounds(self.histogram.bounds)[1]])
        self.histogram.add(interval.requests, interval.seconds, shape)

    def _enter_at_mean(self, interval: Interval) -> None:
        """Enter all requests of an interval at its mean, or those after a restart as the recent ones."""
        self.source = interval.source
        mean = interval.seconds / interval.requests
        self.histogram.add(interval.requests, interval.seconds, interval.shape or Point(mean))
        quantiles = self.quantiles
        if self.decomposition is not None or interval.source != "sampled_mean":
            quantiles = self._quantiles_from_pool()
        if quantiles is not None:
            if interval.source == "sampled_mean" and interval.units > 1:
                quantiles.doubt(interval.end, interval.requests)
            quantiles.add_alike(interval.end, interval.requests, mean)

    def _quantiles_from_pool(self) -> RecentQuantiles | None:
        """Return the quantiles of this histogram, from the pool the first time; None if too many others use it."""
        if self.quantiles is None:
            self.quantiles = self.pool.get(fine_bounds(self.histogram.bounds)[0])
        return self.quantiles
