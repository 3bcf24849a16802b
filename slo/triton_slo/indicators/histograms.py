"""Indicators with a threshold: requests over it, from histograms, which name their source.

The PromQL of histograms and of estimated shares, the settings that leave a group without data, and the indicators that
the exporter has a histogram for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import ClassVar, Literal

from triton_exporter.catalogue import Metric, state, triton
from triton_exporter.common.duration import parse_seconds, time_text
from triton_exporter.distribution.buckets import DEFAULT_BOUNDS
from triton_slo import names
from triton_slo.fields import Threshold
from triton_slo.indicators.gateways import GatewayRequests
from triton_slo.indicators.indicator import FieldFinding, Indicator, Measure, Scope, WrongSetting
from triton_slo.promql import Matchers, by, indent, le_matcher, on, paren, quote, regex_of
from triton_slo.sources import ESTIMATING_SOURCES


def in_buckets(metric: Metric, edge: float, scope: Scope | GatewayRequests) -> tuple[str, str]:
    """Return the requests over a bucket's edge, and all of the servers that have the bucket.

    The count and the buckets of a histogram are of one moment, never shrink, and begin again together: their
    difference is a counter.
    """
    count, bucket = scope.series(metric.count), scope.series(metric.bucket, le_matcher(edge))
    if isinstance(scope, GatewayRequests):
        return scope.named(f"{count} - ignoring (le) {bucket}"), scope.named(
            f"{count} and ignoring (le) {bucket}"
        )
    return f"{count} - ignoring (le) {bucket}", f"{count} and ignoring (le) {bucket}"


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
        width = f"clamp(({most} - {least}) / ({every} > 0), 0, 1)"
        either = f"{paren(stated)}\nor {width}"
        lesser = f"min {scope.by} (\n{indent(either)}\n)"
        return f"{lesser}\nand {scope.on} {fed_by(ESTIMATING_SOURCES)}"

    return error


def share_of_time(metric: Metric, selector: Matchers, window: str) -> str:
    """Return the share of the requests' time; a batch counts its time for each request, so it is capped at 1."""
    part, whole = (
        f"sum {by(names.GROUPING)} (rate({m}{selector}[{window}]))"
        for m in (metric, triton.REQUEST_DURATION_US)
    )
    return f"clamp_max({part} / {on(names.GROUPING)} ({whole} > 0), 1)"


STORE_CLASSIC = (
    "set convert_classic_histograms_to_nhcb: false or always_scrape_classic_histograms: true in the scrape "
    "job, and make sure that metric_relabel_configs does not drop these series"
)
_MAKE_BUCKET = (
    "start the exporter with --buckets-from and the folder of this objective (with a gateway as source: "
    "configure a bucket with this bound), or change the threshold"
)
_TRITON_NEEDS = (
    "26.01 (2.65) or later, or 24.11 (2.52) or later for decoupled models, with "
    "--metrics-config histogram_latencies=true"
)
_VLLM_NEEDS = (
    '24.08 (2.49) or later, with the parameter REPORT_CUSTOM_METRICS "true" in config.pbtxt and '
    "disable_log_stats false in model.json"
)
_TOKENS_NEED = (
    f"run vLLM in Triton {_VLLM_NEEDS}; for first tokens of TensorRT-LLM in Triton {_TRITON_NEEDS}; trtllm-serve "
    "with return_perf_metrics: true; or choose by `models` those that export it"
)
WRONG_SETTINGS = {
    "no_bucket": ("its histogram has no bucket bound at the threshold", _MAKE_BUCKET),
    "no_histogram": (
        "the exporter exposes its histogram, but Prometheus does not store the _bucket and _count series",
        STORE_CLASSIC,
    ),
    "no_first_response": (
        "Triton exports no histogram of its first responses",
        f"run Triton {_TRITON_NEEDS}; or choose by `models` those that export it",
    ),
    "no_token_times": ("the engine exports no histogram of these times of its tokens", _TOKENS_NEED),
    "no_request_means": (
        "the engine exports no mean time between the tokens of each request (Triton's vLLM backend has none)",
        "leave inter_token out of goodput, and promise it by an objective of the kind inter_token",
    ),
    "no_api": (
        "the exporter reads only Triton's metrics, which do not say whether a model is ready",
        "give the exporter --triton (`tritonwatch doctor` says how); or choose by `models` those of servers with an API",
    ),
}
"""Reason for not knowing -> what is wrong, and what to change."""


def no_bucket(histogram: Metric, edge: float, scope: Scope | GatewayRequests) -> WrongSetting:
    """Return the reason for groups whose threshold is between two bucket bounds."""
    bucket = scope.present(histogram.bucket, le_matcher(edge))
    expr = f"({scope.present(histogram.count)} unless {scope.on} {bucket}) == 1"
    return WrongSetting("no_bucket", expr, *WRONG_SETTINGS["no_bucket"])


def no_histogram(histogram: Metric, exported: str, scope: Scope) -> WrongSetting:
    """Return the reason for groups whose `exported` histogram Prometheus does not store as a classic one."""
    expr = f"({exported} unless {scope.on} {scope.present(histogram.count)}) == 1"
    return WrongSetting("no_histogram", expr, *WRONG_SETTINGS["no_histogram"])


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
