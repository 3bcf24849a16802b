"""Indicators with a threshold: requests over it, from a histogram or from means.

The exporter's histograms are fed by the best source there is, and name it. Without the exporter only sums and
counts are left: each short time slice whose mean is over the threshold counts all its requests as failed. A
slice hides its tail, so the share that is shown is an estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, Literal

from triton_exporter.catalogue import Metric, state, triton
from triton_exporter.common.duration import parse_seconds, time_text
from triton_exporter.distribution.buckets import DEFAULT_BOUNDS
from triton_slo import names
from triton_slo.fields import Threshold
from triton_slo.indicators.common.measure import (
    CounterQuery,
    Events,
    FallbackQuery,
    Measure,
    Scope,
    StateQuery,
    UnknownReason,
    stuck,
)
from triton_slo.indicators.common.sources import SLICES
from triton_slo.indicators.histogram_queries import by_bucket, estimate_error, in_buckets, stated_error
from triton_slo.indicators.indicator import FieldFinding, Indicator
from triton_slo.indicators.wrong_settings import no_bucket, no_histogram
from triton_slo.promql import le_matcher, number, quote

_MICROSECONDS = 1_000_000


class TimedIndicator(Indicator):
    """An indicator with a threshold in time."""

    threshold: Threshold
    default_target: ClassVar = "99%"
    default_seconds: ClassVar[float] = 1.0
    """Threshold that is proposed where nothing was measured."""
    cause_split: ClassVar = "latency"
    first_step: ClassVar = (
        "Check whether requests spend their time in the queue or in compute, and what changed last."
    )
    steps_by_cause: ClassVar = {
        "queue": "Requests wait in the queue: add instances or replicas, or reduce the concurrency of "
        "the clients.",
        "compute": "Compute time dominates: if a new version is slower, roll it back. Otherwise, if the "
        "GPU is idle, increase concurrency or batch size; if the GPU is busy, scale out.",
    }
    limit_series: ClassVar = names.THRESHOLD_SECONDS

    @property
    def threshold_text(self) -> str:
        return self.threshold

    @property
    def threshold_seconds(self) -> float:
        return parse_seconds(self.threshold)

    def limit(self, target: float, threshold: float | None) -> float | None:
        """Return the threshold."""
        return threshold

    def unknown_reasons(
        self,
        scope: Scope,
        after_seconds: float,
        counts_as_failed: bool,
        without_retired: Callable[[str], str],
    ) -> Iterator[UnknownReason]:
        """Yield the reason for stuck requests: one that waits for ever is in no histogram."""
        yield stuck(scope, after_seconds)


class HistogramOrSlices(TimedIndicator):
    """An indicator that the exporter has a histogram for, and Triton a sum of microseconds."""

    source: Literal["auto", "histogram", "slices"] = "auto"
    histogram: ClassVar[Metric]
    sums: ClassVar[Metric]
    signal: ClassVar[str]
    """Name that the exporter gives the distribution."""

    def also_failed(self, scope: Scope, window: str, every: str) -> tuple[str, ...]:
        """Return failed events that are in no histogram; `every` exists for every group with traffic."""
        return ()

    def measure(self, threshold: float | None, scope: Scope) -> Measure:
        """Measure requests over the threshold, and those that `also_failed`."""
        assert threshold is not None
        in_histogram = scope.present(self.histogram.bucket, le_matcher(threshold))
        in_slices = scope.present(triton.REQUEST_SUCCESS)
        exported = scope.present(state.DISTRIBUTION_SOURCE, f"signal={quote(self.signal)}")
        slices = self._slices(threshold, scope)
        if self.source == "slices":
            return Measure(in_slices, StateQuery(slices), ((in_slices, SLICES),))

        def events_over(window: str) -> Events:
            every, events = in_buckets(self.histogram, threshold, scope, window)
            return self._with_failures(scope, window, every, events)

        fed = (
            f"max by ({', '.join((*scope.group_by, 'source'))}) "
            f"({state.DISTRIBUTION_SOURCE}{scope.matchers.equal('signal', self.signal)} == 1)"
        )
        wrong_settings = (
            no_bucket(self.histogram, threshold, scope),
            no_histogram(self.histogram, exported, scope),
        )
        error = estimate_error(self.signal, self.histogram, threshold, scope)
        stated = stated_error(self.signal, threshold, scope)
        if self.source == "histogram":
            events = CounterQuery(events_over, scope.group_by, may_begin_late=True)
            return Measure(in_histogram, events, ((fed, ""),), wrong_settings, error, stated)
        # A group with any histogram of the exporter never falls back to slices, even if the histogram lacks the
        # bucket or is not stored: the estimate would hide this mistake, which is reported by name. An ensemble has
        # no histogram of its queue, because it has no queue.
        without = f"unless {scope.on} {scope.present(state.DISTRIBUTION_SOURCE)}"
        fallback = slices.map(lambda expr: f"({expr})\n{without}")
        return Measure(
            f"{in_histogram} or {scope.on} ({in_slices} {without})",
            FallbackQuery(events_over, scope.group_by, fallback, may_begin_late=True),
            ((fed, ""), (f"{in_slices} {without}", SLICES)),
            wrong_settings,
            error,
            stated,
        )

    def buckets(self, scope: Scope) -> tuple[str, float]:
        """Return PromQL for the buckets of the exporter's histogram, and the unit of `le` in seconds."""
        return (
            ("", 1.0) if self.source == "slices" else (by_bucket(scope).present(self.histogram.bucket), 1.0)
        )

    def _slices(self, threshold: float, scope: Scope) -> Events:
        window = scope.slice_window
        every = scope.rate(triton.REQUEST_SUCCESS, window)
        edge = number(round(threshold * _MICROSECONDS, 3))
        mean = f"{scope.rate(self.sums, window)} / {scope.on} {every}"
        events = Events(f"{every} * {scope.on} ({mean} > bool {edge})", every)
        return self._with_failures(scope, window, every, events)

    def _with_failures(self, scope: Scope, window: str, every: str, events: Events) -> Events:
        for failed in self.also_failed(scope, window, every):
            total = f"({events.total})" if " and " in events.total else events.total
            events = Events(f"{events.error}\n+ {scope.on} {failed}", f"{total}\n+ {scope.on} {failed}")
        return events

    def notes(self, thresholds: Sequence[float]) -> Iterator[FieldFinding]:
        """Yield notes on thresholds between the exporter's default buckets."""
        for threshold in thresholds:
            if threshold not in DEFAULT_BOUNDS:
                yield (
                    "indicator.threshold",
                    f"threshold {time_text(threshold)} is between the exporter's default buckets",
                    "start the exporter with --buckets-from and the folder of this file",
                )
