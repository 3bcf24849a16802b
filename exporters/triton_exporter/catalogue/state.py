"""Series about servers and models that the exporter adds to those of Triton."""

from __future__ import annotations

from typing import Literal, get_args

from triton_exporter.catalogue.metric import Metric

_MODEL = ("model", "version")

MODEL_STATES = (
    "ready",
    "loading",
    "unloading",
    "unloaded",
    "unavailable",
    "missing",
    "not_loaded",
    "unknown",
)
"""Closed set of values of the label `state`; exactly one is 1 for each model version.

`unloaded`: unloaded on purpose; `unavailable`: its load failed; `missing`: expected, and Triton does not list it
or lists it without a version; `not_loaded`: listed without a version, and not expected; `unknown`: Triton did not
answer.
"""

LOAD_FAILURE_REASONS = (
    "out_of_memory",
    "missing_file",
    "bad_config",
    "missing_backend",
    "invalid_model",
    "python_error",
    "dependency_failed",
    "other",
)
"""Closed set of values of the label `reason` of load failures; the full text is never a label."""

NOT_TRITON = "not_triton"
"""Reason of a failure: a server that is not Triton answers at the address."""

DOWN_REASONS = (
    "",
    "refused",
    "unreachable",
    "timeout",
    "tls",
    "dns",
    "http_error",
    "bad_response",
    "too_large",
    NOT_TRITON,
)
"""Closed set of values of the label `reason` of failed requests to Triton."""

DistributionSource = Literal["histogram", "trace", "summary", "decomposed", "sampled_mean"]
DISTRIBUTION_SOURCES: tuple[DistributionSource, ...] = get_args(DistributionSource)
"""Closed set of values of the label `source`, best first."""

QUANTILES = (0.5, 0.95, 0.99)
"""Closed set of values of the label `quantile` of estimated quantiles."""

UP = Metric(
    "triton_up",
    "gauge",
    "1 when Triton's metrics endpoint answered the last scrape and no other server answers as its API, else 0.",
)
SERVER_LIVE = Metric(
    "triton_server_live",
    "gauge",
    "1 when /v2/health/live answered 200, else 0; without --triton: 1 when the metrics answer.",
    source="HTTP API",
    caveat="Absent, like triton_server_ready, while metrics answer and the HTTP API never did: HTTP may be off.",
)
SERVER_READY = Metric(
    "triton_server_ready",
    "gauge",
    "1 when /v2/health/ready answered 200, else 0.",
    source="HTTP API",
    caveat="With strict readiness one loading or failed model makes the whole server not ready.",
)
MODEL_READY = Metric(
    "triton_model_ready",
    "gauge",
    "1 when this model version is READY in the repository index, its ready endpoint agrees, its backend does "
    "not fail every request and, where it is probed, its last probe worked, else 0.",
    _MODEL,
    source="repository index, health API, Triton's metrics and prober",
    caveat="Without --probe, a model of Triton up to 25.11 whose process has died is ready until 5 requests in "
    "5 s or more have failed. Absent while only Triton's metrics are known, which do not say it.",
)
MODEL_STATE = Metric(
    "triton_model_state",
    "gauge",
    "Lifecycle state of the model version: 1 for the current state, 0 for those it was in before.",
    (*_MODEL, "state"),
    source="repository index",
    caveat="While only Triton's metrics are known: ready for a minute after a successful request, else unknown.",
)
MODEL_EXPECTED = Metric(
    "triton_model_expected",
    "gauge",
    "1 when this model should be served: on the operator's list, or once loaded and not unloaded on purpose.",
    ("model",),
    source="operator's list or earlier polls",
)
MODEL_LOAD_FAILURES = Metric(
    "triton_model_load_failures_total",
    "counter",
    "Load attempts that failed, by class of reason; present at 0 before any failure.",
    ("model", "reason"),
    source="repository index, or Triton's log where it is read",
    caveat="Without the log: a retry shorter than the polling period, a failed hot reload and a broken "
    "config.pbtxt are missed.",
)
MODEL_RELOAD_FAILURES = Metric(
    "triton_model_reload_failures_total",
    "counter",
    "Failed loads of a version whose old copy is still served, by class of reason; included in the load "
    "failures.",
    ("model", "reason"),
    source="Triton's log",
    flag="--triton-log",
    caveat="Present only while the exporter reads Triton's log: no API reports them.",
)
MODEL_NOT_READY_SINCE = Metric(
    "triton_model_not_ready_since_timestamp_seconds",
    "gauge",
    "Unix time since when a model version that should be served is not ready; absent while it is ready.",
    _MODEL,
    "s",
    source="exporter's clock",
    caveat="One episode spans retries (UNAVAILABLE, LOADING, UNAVAILABLE); unloading on purpose starts none.",
)
MODEL_FIRST_LOAD = Metric(
    "triton_model_first_load",
    "gauge",
    "1 while the model version loads for the first time since it appeared or was unloaded on purpose, so that no "
    "serving version is lost; absent otherwise.",
    _MODEL,
    source="earlier polls",
    caveat="A retry after a failed load is not a first load, nor is one that lasts longer than twice the slowest "
    "known load and ten minutes. An exporter that starts during a load takes it for one.",
)
MODEL_LOAD_DURATION_ESTIMATED = Metric(
    "triton_model_load_duration_estimated_seconds",
    "gauge",
    "Duration of the last load of the model version, from the first poll that found it LOADING to the first that "
    "found it READY. An estimate: the error is up to the time between two polls (--state-interval).",
    _MODEL,
    "s",
    source="repository index",
    caveat="For Triton before 24.11, and for ensembles. Absent for loads whose begin and end were not polled: "
    "those of a server's start, hot reloads, loads shorter than the time between two polls, and loads during "
    "which a poll failed.",
)
_SPREAD = (
    "Sum and count are exact, from Triton's counters; how requests spread over the buckets comes from the "
    "source that triton_model_distribution_source names: exact for histogram (to whole milliseconds) and for "
    "trace (of the requests traced), an estimate for summary, for decomposed, which recovers single requests "
    "from the counts and sums of short intervals, and for sampled_mean, which counts all requests of one "
    "sampling interval at their mean and so hides the slow few of a mixed interval. docs/measurements.md has the "
    "measured errors."
)
REQUEST_DURATION = Metric(
    "triton_model_request_duration_seconds",
    "histogram",
    f"Request time of successful requests, end to end in Triton. {_SPREAD}",
    _MODEL,
    "s",
    source="best of histogram, traces, summaries, decomposed sums, sampled means",
)
QUEUE_DURATION = Metric(
    "triton_model_queue_duration_seconds",
    "histogram",
    f"Queue time of successful requests. {_SPREAD}",
    _MODEL,
    "s",
    source="best of traces, summaries, decomposed sums, sampled means",
    caveat="Absent for ensembles: their steps have queues, they have none.",
)
_RECENT = (
    "read off buckets at most 8 % apart. An estimate: of the last two to two and a half minutes, from the source "
    "that triton_model_distribution_source names."
)
_QUANTILE_CAVEAT = (
    "Of one server: quantiles cannot be added up. Absent for sampled_mean, where fewer than two requests are "
    "beyond it, and beyond 200 histograms."
)
REQUEST_QUANTILE = Metric(
    "triton_model_request_duration_quantile_estimated_seconds",
    "summary",
    f"Quantile (0.5, 0.95, 0.99) of the request time of successful requests, {_RECENT}",
    (*_MODEL, "quantile"),
    "s",
    source="traces, Triton's histogram, summaries, decomposed sums",
    caveat=_QUANTILE_CAVEAT,
)
QUEUE_QUANTILE = Metric(
    "triton_model_queue_duration_quantile_estimated_seconds",
    "summary",
    f"Quantile (0.5, 0.95, 0.99) of the queue time of successful requests, {_RECENT}",
    (*_MODEL, "quantile"),
    "s",
    source="traces, summaries, decomposed sums",
    caveat=_QUANTILE_CAVEAT,
)
DISTRIBUTION_SOURCE = Metric(
    "triton_model_distribution_source",
    "gauge",
    "The source that feeds the histogram of this signal (request or queue), always 1.",
    (*_MODEL, "signal", "source"),
)
DISTRIBUTION_ERROR = Metric(
    "triton_model_distribution_error_ratio",
    "gauge",
    "Estimated error of the share of requests within le, either way, in 95 of 100 cases, over the last minutes.",
    (*_MODEL, "signal", "le"),
    caveat="Of source decomposed; with --buckets-from for the thresholds of the objectives, else for all buckets.",
)
REQUESTS_WITHIN = Metric(
    "triton_model_requests_within_total",
    "counter",
    "Requests that certainly (bound=least) or possibly (bound=most) took no longer than le, whatever the source "
    "of the histogram: of n requests that took s seconds in all, fewer than s / le took longer.",
    (*_MODEL, "signal", "le", "bound"),
    flag="--buckets-from",
    caveat="For the thresholds of objectives. The closer the two, the less the source matters.",
)
TRACED_REQUESTS = Metric(
    "triton_model_traced_requests_total",
    "counter",
    "Requests in traces: completed, queue_full, refused (for another reason than a full queue, such as a sequence "
    "without its start), or not_executed (queue timeout or cache hit).",
    (*_MODEL, "outcome"),
    source="traces",
    caveat="Only every Nth request is traced; a failed execution looks like a completed one.",
)
TRACED_STEP_SECONDS = Metric(
    "triton_model_traced_step_seconds_total",
    "counter",
    "Time of traced requests that called other models (an ensemble's steps, BLS with trace=request.trace()): in the "
    "queue and in compute of each model called and of the caller (step_model), and part request: the whole of it.",
    (*_MODEL, "step_model", "part"),
    "s",
    "traces",
    caveat="Only every Nth request is traced, so only shares are meant. Calls at the same time add up to more than the "
    "whole. Not from files of the trace mode triton.",
)
QUEUE_FULL_ESTIMATE = Metric(
    "triton_model_queue_full_rejections_estimated_total",
    "counter",
    "Requests refused because the queue was full, which no metric of Triton counts: those in traces, times "
    "the trace rate. An estimate unless every request is traced.",
    _MODEL,
    source="traces",
)
