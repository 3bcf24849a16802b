"""Latency, queue and first response: requests over a threshold, from a histogram or from means.

The exporter's histograms are fed by the best source there is and say which. Without the exporter only sums and
counts are left: each short time slice whose mean is over the threshold counts all its requests as failed. A
slice hides its tail, so the share that is shown is an estimate.
"""

from __future__ import annotations

from triton_exporter.catalogue import Metric, llm, state, triton
from triton_slo.indicators.measure import Events, Measure, Scope
from triton_slo.objective import model as model
from triton_slo.promql import le_matcher, number
from triton_slo.sources import SLICES

_REJECTED = 'reason="REJECTED"'
_MICROSECONDS = 1_000_000


def latency(indicator: model.Latency, threshold: float, scope: Scope) -> Measure:
    """Successful requests that took longer than the threshold, in the server."""
    return _measure(
        indicator.source, state.REQUEST_DURATION, triton.REQUEST_DURATION_US, threshold, scope, False
    )


def queue(indicator: model.Queue, threshold: float, scope: Scope) -> Measure:
    """Requests that queued longer than the threshold, and those the queue rejected.

    Triton counts a queue timeout as REJECTED; what a full queue turns away only traces show.
    """
    return _measure(indicator.source, state.QUEUE_DURATION, triton.QUEUE_DURATION_US, threshold, scope, True)


def first_response(indicator: model.FirstResponse, threshold: float, scope: Scope) -> Measure:
    """Requests whose first response or token came later than the threshold; from histograms only."""
    histogram, edge = first_response_edge(indicator, threshold)
    return Measure(
        presence=scope.present(histogram.bucket, le_matcher(edge)),
        counted=lambda window: _histogram(histogram, edge, scope, window, rejections=False),
        no_bucket=_no_bucket(histogram, edge, scope),
        stuck=True,
        sources=((scope.present(histogram.bucket, le_matcher(edge)), "histogram"),),
    )


def first_response_edge(indicator: model.FirstResponse, threshold: float) -> tuple[Metric, float]:
    """The histogram, and the threshold in its unit: Triton counts milliseconds, vLLM seconds."""
    if indicator.engine == "vllm":
        return llm.VLLM_FIRST_TOKEN, threshold
    return triton.FIRST_RESPONSE_MS, round(threshold * 1000, 6)


def _measure(
    source: model.Source, histogram: Metric, sums: Metric, threshold: float, scope: Scope, rejections: bool
) -> Measure:
    in_histogram = scope.present(histogram.bucket, le_matcher(threshold))
    in_slices = scope.present(triton.REQUEST_SUCCESS)
    sampled = _slices(sums, threshold, scope, rejections)
    if source == "slices":
        return Measure(in_slices, sampled=sampled, stuck=True, sources=((in_slices, SLICES),))

    def counted(window: str) -> Events:
        return _histogram(histogram, threshold, scope, window, rejections)

    signal = "queue" if rejections else "request"
    said = (
        f"max by ({', '.join((*scope.group_by, 'source'))}) "
        f"({state.DISTRIBUTION_SOURCE}{scope.matchers.equal('signal', signal)} == 1)"
    )
    no_bucket = _no_bucket(histogram, threshold, scope)
    if source == "histogram":
        return Measure(in_histogram, counted=counted, no_bucket=no_bucket, stuck=True, sources=((said, ""),))
    # Groups that have a histogram keep to it, even one without the right bucket: the estimate must not hide
    # that mistake, which is reported by name.
    without = f"unless {scope.on} {scope.present(histogram.count)}"
    return Measure(
        presence=f"{in_histogram} or {scope.on} ({in_slices} {without})",
        counted=counted,
        sampled=Events(f"({sampled.error})\n{without}", f"({sampled.total})\n{without}"),
        no_bucket=no_bucket,
        stuck=True,
        sources=((said, ""), (f"{in_slices} {without}", SLICES)),
    )


def _histogram(metric: Metric, edge: float, scope: Scope, window: str, rejections: bool) -> Events:
    every = scope.rate(metric.count, window)
    good = scope.rate(metric.bucket, window, le_matcher(edge))
    error, total = f"clamp_min({every} - {scope.on} {good}, 0)", f"{every} and {scope.on} {good}"
    if not rejections:
        return Events(error, total)
    rejected = _rejected(scope, window, every)
    return Events(f"{error}\n+ {scope.on} {rejected}", f"({total})\n+ {scope.on} {rejected}")


def _slices(sums: Metric, threshold: float, scope: Scope, rejections: bool) -> Events:
    window = scope.slice_window
    every = scope.rate(triton.REQUEST_SUCCESS, window)
    edge = number(round(threshold * _MICROSECONDS, 3))
    mean = f"{scope.rate(sums, window)} / {scope.on} {every}"
    error = f"{every} * {scope.on} ({mean} > bool {edge})"
    if not rejections:
        return Events(error, every)
    rejected = _rejected(scope, window, every)
    return Events(f"{error}\n+ {scope.on} {rejected}", f"{every}\n+ {scope.on} {rejected}")


def _rejected(scope: Scope, window: str, every: str) -> str:
    timed_out = scope.rate(triton.REQUEST_FAILURE, window, _REJECTED)
    found_full = scope.rate(state.QUEUE_FULL_ESTIMATE, window)
    either = (f"({rejected} or {scope.on} 0 * {every})" for rejected in (timed_out, found_full))
    return f"({f' + {scope.on} '.join(either)})"


def _no_bucket(histogram: Metric, edge: float, scope: Scope) -> str:
    bucket = scope.present(histogram.bucket, le_matcher(edge))
    return f"{scope.present(histogram.count)} unless {scope.on} {bucket}"
