"""Indicators with a threshold: requests over it, from the exporter's histograms, which name their source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

from triton_exporter.catalogue import Metric, state
from triton_exporter.common.duration import parse_seconds, time_text
from triton_exporter.distribution.buckets import DEFAULT_BOUNDS
from triton_slo import names
from triton_slo.fields import Threshold
from triton_slo.indicators.common.measure import Measure, Scope
from triton_slo.indicators.histogram_queries import by_bucket, estimate_error, in_buckets, stated_error
from triton_slo.indicators.indicator import FieldFinding, Indicator
from triton_slo.indicators.wrong_settings import no_bucket, no_histogram
from triton_slo.promql import le_matcher, quote


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


class HistogramIndicator(TimedIndicator):
    """An indicator that the exporter has a histogram for."""

    source: Literal["auto", "histogram"] = "auto"
    """Both are the exporter's histogram; `auto` is how files have always called it."""
    histogram: ClassVar[Metric]
    signal: ClassVar[str]
    """Name that the exporter gives the distribution."""

    def also_failed(self, scope: Scope) -> str:
        """Return counters of failed events that are in no histogram; empty where there are none."""
        return ""

    def measure(self, threshold: float | None, scope: Scope) -> Measure:
        """Count requests over the threshold, and those that `also_failed`."""
        assert threshold is not None
        error, total = in_buckets(self.histogram, threshold, scope)
        comment = "The count less the bucket at the threshold is what took longer."
        if failed := self.also_failed(scope):
            # Without the bucket nothing else is counted, and a rejection must not be all there is.
            bucket = scope.series(self.histogram.bucket, le_matcher(threshold))
            error, total = (f"{counted}\nor ({failed}) and {scope.on} {bucket}" for counted in (error, total))
            comment += " After `or`: those that failed before they were measured, which no histogram has."
        exported = scope.present(state.DISTRIBUTION_SOURCE, f"signal={quote(self.signal)}")
        fed = (
            f"max by ({', '.join((*scope.group_by, 'source'))}) "
            f"({state.DISTRIBUTION_SOURCE}{scope.matchers.equal('signal', self.signal)} == 1)"
        )
        return Measure(
            error,
            total,
            ((fed, ""),),
            (no_bucket(self.histogram, threshold, scope), no_histogram(self.histogram, exported, scope)),
            estimate_error(self.signal, self.histogram, threshold, scope),
            stated_error(self.signal, threshold, scope),
            comment,
        )

    def buckets(self, scope: Scope) -> tuple[str, float]:
        """Return PromQL for the buckets of the exporter's histogram, and the unit of `le` in seconds."""
        return by_bucket(scope).present(self.histogram.bucket), 1.0

    def notes(self, thresholds: Sequence[float]) -> Iterator[FieldFinding]:
        """Yield notes on thresholds between the exporter's default buckets."""
        for threshold in thresholds:
            if threshold not in DEFAULT_BOUNDS:
                yield (
                    "indicator.threshold",
                    f"threshold {time_text(threshold)} is between the exporter's default buckets",
                    "start the exporter with --buckets-from and the folder of this file",
                )
