"""Indicators with a threshold: requests over it, from a histogram or from means.

The exporter's histograms are fed by the best source there is, and name it. Without the exporter only sums and
counts are left: each short time slice whose mean is over the threshold counts all its requests as failed. A
slice hides its tail, so the share that is shown is an estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
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
from triton_slo.indicators.common.sample_series import SampleSeries
from triton_slo.indicators.common.sources import ESTIMATING_SOURCES, SLICES
from triton_slo.indicators.gateways.gateway_indicator import GatewayRequests
from triton_slo.indicators.indicator import FieldFinding, Indicator
from triton_slo.promql import Matchers, by, indent, le_matcher, number, on, paren, quote, regex_of

_MICROSECONDS = 1_000_000


class TimedIndicator(Indicator):
    """An indicator with a threshold in time."""

    threshold: Threshold
    default_target: ClassVar = "99%"
    default_seconds: ClassVar[float] = 1.0
    """Threshold that is proposed where nothing was measured."""
    cause_split: ClassVar = "latency"
    first_step: ClassVar = (
        "See whether the time goes into the queue or into computing, and what changed last."
    )
    steps_by_cause: ClassVar = {
        "queue": "Requests wait for their turn: add instances or replicas, or let clients send less at once.",
        "compute": "Computing takes the time: roll back a version that made it slower. Else, if the GPU is idle, "
        "raise concurrency or batching; if it is busy, scale out.",
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
        self, scope: Scope, after_seconds: float, counts_as_failed: bool, settled: Callable[[str], str]
    ) -> Iterator[UnknownReason]:
        """A request that waits for ever is in no histogram."""
        yield stuck(scope, after_seconds)


class HistogramOrSlices(TimedIndicator):
    """An indicator that the exporter has a histogram for, and Triton a sum of microseconds."""

    source: Literal["auto", "histogram", "slices"] = "auto"
    histogram: ClassVar[Metric]
    sums: ClassVar[Metric]
    signal: ClassVar[str]
    """Name that the exporter gives the distribution."""

    def also_failed(self, scope: Scope, window: str, every: str) -> tuple[str, ...]:
        """Failed events that are in no histogram; `every` exists for every group with traffic."""
        return ()

    def measure(self, threshold: float | None, scope: Scope) -> Measure:
        """Requests over the threshold, and those that `also_failed`."""
        assert threshold is not None
        in_histogram = scope.present(self.histogram.bucket, le_matcher(threshold))
        in_slices = scope.present(triton.REQUEST_SUCCESS)
        exported = scope.present(state.DISTRIBUTION_SOURCE, f"signal={quote(self.signal)}")
        slices = self._slices(threshold, scope)
        if self.source == "slices":
            return Measure(in_slices, StateQuery(slices), ((in_slices, SLICES),))

        def counted(window: str) -> Events:
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
            events = CounterQuery(counted, scope.group_by, may_begin_late=True)
            return Measure(in_histogram, events, ((fed, ""),), wrong_settings, error, stated)
        # Groups that the exporter has a histogram of keep to it, even where it has not the right bucket or is not
        # stored: the estimate must not hide that mistake, which is reported by name.
        without = f"unless {scope.on} {exported}"
        return Measure(
            f"{in_histogram} or {scope.on} {in_slices}",
            FallbackQuery(
                counted, scope.group_by, slices.map(lambda expr: f"({expr})\n{without}"), may_begin_late=True
            ),
            ((fed, ""), (f"{in_slices} {without}", SLICES)),
            wrong_settings,
            error,
            stated,
        )

    def buckets(self, scope: Scope) -> tuple[str, float]:
        """Buckets of the exporter's histogram."""
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
        """Thresholds between the exporter's default buckets."""
        for threshold in thresholds:
            if threshold not in DEFAULT_BOUNDS:
                yield (
                    "indicator.threshold",
                    f"threshold {time_text(threshold)} is between the exporter's default buckets",
                    "start the exporter with --buckets-from and the folder of this file",
                )

    def provable(self, ratio: float) -> float:
        """A slice fails as a whole or not at all."""
        return 1.0 if self.source == "slices" else ratio

    def incident(self, series: SampleSeries, threshold: float | None) -> Iterable[tuple[str, str]] | None:
        """A histogram, or the means of slices: any failure makes a mean three times the threshold."""
        assert threshold is not None
        if self.source != "slices":
            return bucket_series(series, self.histogram, repr(float(threshold)))
        microseconds = series.counter(lambda bad, good: (3 if bad else 0.3) * threshold * 1e6 * (bad + good))
        return (series.series(triton.REQUEST_SUCCESS, series.every), series.series(self.sums, microseconds))


def in_buckets(
    metric: Metric, edge: float, scope: Scope | GatewayRequests, window: str
) -> tuple[str, Events]:
    """Return the requests in a histogram, and the events: those over a bucket's edge failed.

    Only servers that have the bucket count, and in a window only those that had it when it began: of the others
    all requests from before the bucket would count as failed.
    """
    count, bucket = scope.series(metric.count), scope.series(metric.bucket, le_matcher(edge))
    every = f"rate({count}[{window}])"
    # A bucket may be written as le="1" and le="1.0" in one window: by two versions of a server or of Prometheus.
    good = f"sum without (le) (rate({bucket}[{window}]))"
    late = f"({count} offset {window} unless ignoring (le) {bucket} offset {window})"
    failed = scope.summed(f"{every} - {good} unless {late}")
    return scope.rate(metric.count, window), Events(
        f"clamp_min({failed}, 0)", scope.summed(f"{every} and {good} unless {late}")
    )


def by_bucket(scope: Scope) -> Scope:
    """Return the scope that keeps the buckets of a histogram apart."""
    return replace(scope, group_by=(*scope.group_by, "le"))


_STATES_NO_ERROR = [source for source in ESTIMATING_SOURCES if source != "decomposed"]


def stated_error(signal: str, threshold: float, scope: Scope, *labels: str) -> Callable[[str], str]:
    """Return PromQL for the error that the exporter states, averaged over a window: the worst of the servers."""
    within = scope.matchers.equal("signal", signal).also(le_matcher(threshold))
    group = by((*scope.group_by, *labels))
    return lambda window: f"max {group} (avg_over_time({state.DISTRIBUTION_ERROR}{within}[{window}]))"


def estimate_error(signal: str, histogram: Metric, threshold: float, scope: Scope) -> Callable[[str], str]:
    """Return PromQL for the error of an estimated share: the stated one or the width of the bounds if less."""
    own = scope.matchers.equal("signal", signal)
    within = own.also(le_matcher(threshold))
    # The label le keeps the two apart until the lesser is chosen.
    stated_over = stated_error(signal, threshold, scope, "le")

    def fed_by(sources: Sequence[str]) -> str:
        return f"({state.DISTRIBUTION_SOURCE}{own.also(f'source=~{quote(regex_of(sources))}')} == 1)"

    def error(window: str) -> str:
        # Where one of several servers states no error, the error of the others is not the error of all.
        stated = f"{stated_over(window)}\nunless {scope.on} {fed_by(_STATES_NO_ERROR)}"
        most, least = (
            f"sum {scope.by} (rate({state.REQUESTS_WITHIN}{within.equal('bound', bound)}[{window}]))"
            for bound in ("most", "least")
        )
        every = f"sum {scope.by} (rate({histogram.count}{scope.matchers}[{window}]))"
        width = f"clamp_max(({most} - {least}) / ({every} > 0), 1)"
        either = f"{paren(stated)}\nor {width}"
        lesser = f"min {scope.by} (\n{indent(either)}\n)"
        return f"{lesser}\nand {scope.on} {fed_by(ESTIMATING_SOURCES)}"

    return error


STORE_CLASSIC = (
    "set convert_classic_histograms_to_nhcb: false or always_scrape_classic_histograms: true in the scrape "
    "job, and let no metric_relabel_configs drop them"
)
_MAKE_BUCKET = (
    "start the exporter with --buckets-from and this objective (or give a gateway such a bucket), "
    "or move the threshold"
)
_TRITON_NEEDS = (
    "26.01 (2.65) or later, or 24.11 (2.52) or later for decoupled models, with "
    "--metrics-config histogram_latencies=true"
)
_VLLM_NEEDS = (
    '24.08 (2.49) or later, with the parameter REPORT_CUSTOM_METRICS "true" in config.pbtxt and '
    "disable_log_stats false in model.json"
)
WRONG_SETTINGS = {
    "no_bucket": ("its histogram has no bucket that ends at the threshold", _MAKE_BUCKET),
    "no_histogram": (
        "it has a histogram, and Prometheus does not store its _bucket and _count series",
        STORE_CLASSIC,
    ),
    "no_first_response": (
        "Triton exports no histogram of its first responses",
        f"run Triton {_TRITON_NEEDS}; or choose by `models` those that export it",
    ),
    "no_first_token": (
        "the vLLM backend exports no histogram of its first tokens",
        f"run Triton {_VLLM_NEEDS}; or choose by `models` those that export it",
    ),
}
"""Reason for not knowing -> what is wrong, and what to change."""


def no_bucket(histogram: Metric, edge: float, scope: Scope | GatewayRequests) -> UnknownReason:
    """The threshold is between two buckets."""
    bucket = scope.present(histogram.bucket, le_matcher(edge))
    expr = f"({scope.present(histogram.count)} unless {scope.on} {bucket}) == 1"
    return UnknownReason("no_bucket", expr, *WRONG_SETTINGS["no_bucket"])


def no_histogram(histogram: Metric, exported: str, scope: Scope) -> UnknownReason:
    """Prometheus stores no classic histogram of the groups that `exported` says have one."""
    expr = f"({exported} unless {scope.on} {scope.present(histogram.count)}) == 1"
    return UnknownReason("no_histogram", expr, *WRONG_SETTINGS["no_histogram"])


def bucket_series(series: SampleSeries, histogram: Metric, le: str) -> Iterable[tuple[str, str]]:
    """Return a histogram with one bucket that holds the good events."""
    return (
        series.series(histogram, series.good, "_bucket", le=le),
        series.series(histogram, series.every, "_bucket", le="+Inf"),
        series.series(histogram, series.every, "_count"),
    )


def share_of_time(metric: Metric, selector: Matchers, window: str) -> str:
    """Share of the requests' time; a batch counts its time once for each request, so it is capped at 1."""
    part, whole = (
        f"sum {by(names.GROUPING)} (rate({m}{selector}[{window}]))"
        for m in (metric, triton.REQUEST_DURATION_US)
    )
    return f"clamp_max({part} / {on(names.GROUPING)} ({whole} > 0), 1)"
