"""Series that Triton itself exposes on /metrics; the exporter relays them unchanged.

Names, units and first releases: https://docs.nvidia.com/deeplearning/triton-inference-server/user-guide/docs/user_guide/metrics.html
"""

from __future__ import annotations

from triton_exporter.catalogue.metric import Kind, Metric

_MODEL = ("model", "version")
_SOURCE = "Triton /metrics"


def _counter(name: str, text: str, unit: str, caveat: str = "") -> Metric:
    return Metric(name, "counter", text, _MODEL, unit, _SOURCE, caveat=caveat)


REQUEST_SUCCESS = _counter(
    "nv_inference_request_success",
    "Requests completed successfully.",
    "requests",
    "Stays 0 with --metrics-config counter_latencies=false; per-response errors of Python models count as "
    "success.",
)
REQUEST_FAILURE = Metric(
    "nv_inference_request_failure",
    "counter",
    "Requests failed, by reason (REJECTED, CANCELED, BACKEND, OTHER).",
    (*_MODEL, "reason"),
    "requests",
    _SOURCE,
    "24.07 (the label reason)",
    caveat="Queue-full rejections, bad input and unknown models are never counted; an ensemble counts a "
    "step's failure twice; never reset by a reload.",
)
INFERENCE_COUNT = _counter("nv_inference_count", "Inferences performed (sum of batch sizes).", "inferences")
EXEC_COUNT = _counter("nv_inference_exec_count", "Model executions (batches) performed.", "executions")
PENDING_REQUESTS = Metric(
    "nv_inference_pending_request_count",
    "gauge",
    "Requests enqueued and not yet handed to the backend.",
    _MODEL,
    "requests",
    _SOURCE,
    "23.09",
    caveat="Executing requests are not in it; always 0 for ensembles.",
)
REQUEST_DURATION_US = _counter(
    "nv_inference_request_duration_us", "Time of successful requests, end to end in the server.", "us"
)
QUEUE_DURATION_US = _counter(
    "nv_inference_queue_duration_us", "Time successful requests spent queueing.", "us"
)
COMPUTE_INPUT_DURATION_US = _counter(
    "nv_inference_compute_input_duration_us",
    "Time of successful requests preparing inputs.",
    "us",
    "Per request: a batch of 8 adds its time 8 times.",
)
COMPUTE_INFER_DURATION_US = _counter(
    "nv_inference_compute_infer_duration_us",
    "Time of successful requests computing.",
    "us",
    "Per request: a batch of 8 adds its time 8 times.",
)
COMPUTE_OUTPUT_DURATION_US = _counter(
    "nv_inference_compute_output_duration_us",
    "Time of successful requests preparing outputs.",
    "us",
    "Per request: a batch of 8 adds its time 8 times.",
)
PHASES = {
    "queue": QUEUE_DURATION_US,
    "compute_input": COMPUTE_INPUT_DURATION_US,
    "compute_infer": COMPUTE_INFER_DURATION_US,
    "compute_output": COMPUTE_OUTPUT_DURATION_US,
}
"""Times of the phases of a request, in the order they happen."""
FIRST_RESPONSE_MS = Metric(
    "nv_inference_first_response_histogram_ms",
    "histogram",
    "Time to first response.",
    _MODEL,
    "ms",
    _SOURCE,
    "24.11 for decoupled models, 26.01 for all",
    "--metrics-config histogram_latencies=true",
    "Whole milliseconds; default buckets 100, 500, 2000, 5000 are too coarse for most objectives.",
)


def _summary_metric(phase: str, text: str) -> Metric:
    return Metric(
        f"nv_inference_{phase}_summary_us",
        "summary",
        text,
        _MODEL,
        "us",
        _SOURCE,
        "23.04",
        "--metrics-config summary_latencies=true",
        "Quantiles over the last 60 s, NaN when idle; cannot be aggregated over servers. Relayed only with the "
        "exporter's `--relay all`.",
    )


REQUEST_SUMMARY_US = _summary_metric("request", "Quantiles of request time.")
QUEUE_SUMMARY_US = _summary_metric("queue", "Quantiles of queue time.")
COMPUTE_INPUT_SUMMARY_US = _summary_metric("compute_input", "Quantiles of input preparation time.")
COMPUTE_INFER_SUMMARY_US = _summary_metric("compute_infer", "Quantiles of compute time.")
COMPUTE_OUTPUT_SUMMARY_US = _summary_metric("compute_output", "Quantiles of output preparation time.")

UNREAD = frozenset(
    metric.name
    for metric in (
        REQUEST_SUMMARY_US,
        QUEUE_SUMMARY_US,
        COMPUTE_INPUT_SUMMARY_US,
        COMPUTE_INFER_SUMMARY_US,
        COMPUTE_OUTPUT_SUMMARY_US,
    )
)
"""Families that no rule, board, runbook or page reads: relayed with `--relay all` only."""

MODEL_LOAD_DURATION_SECS = Metric(
    "nv_model_load_duration_secs",
    "gauge",
    "Duration of the last successful load.",
    _MODEL,
    "s",
    _SOURCE,
    "24.11",
    caveat="0 for ensembles; not set by a failed load.",
)


def _cache_counter(name: str, text: str, unit: str) -> Metric:
    return Metric(
        f"nv_cache_{name}_per_model",
        "counter",
        text,
        _MODEL,
        unit,
        _SOURCE,
        "22.04",
        "response_cache in the model's config",
    )


def _cache_gauge(name: str, text: str, unit: str) -> Metric:
    return Metric(
        f"nv_cache_{name}",
        "gauge",
        text,
        (),
        unit,
        _SOURCE,
        flag="--cache-config local,size=N",
        caveat="Of the local cache only."
        if unit == "ratio"
        else "Cumulative although a gauge; local cache only.",
    )


CACHE_HITS_PER_MODEL = _cache_counter("num_hits", "Requests answered from the response cache.", "requests")
CACHE_MISSES_PER_MODEL = _cache_counter("num_misses", "Requests the response cache did not hold.", "requests")
CACHE_UTIL = _cache_gauge("util", "Share of the response cache in use.", "ratio")
CACHE_EVICTIONS = _cache_gauge("num_evictions", "Entries thrown out of the response cache.", "entries")

PINNED_POOL_TOTAL_BYTES = Metric(
    "nv_pinned_memory_pool_total_bytes",
    "gauge",
    "Size of the pinned memory pool.",
    (),
    "bytes",
    _SOURCE,
    "24.01",
)
PINNED_POOL_USED_BYTES = Metric(
    "nv_pinned_memory_pool_used_bytes", "gauge", "Pinned memory in use.", (), "bytes", _SOURCE, "24.01"
)


def _gpu(name: str, text: str, unit: str, caveat: str = "", kind: Kind = "gauge") -> Metric:
    return Metric(
        f"nv_{name}",
        kind,
        text,
        ("gpu_uuid",),
        unit,
        _SOURCE,
        flag="--allow-gpu-metrics (default)",
        caveat=caveat,
    )


_ZERO_POWER = "0 W is not a measured value: it means that the reading failed."

GPU_UTILIZATION = _gpu(
    "gpu_utilization",
    "Share of time in which any kernel ran.",
    "ratio",
    "After three failed reads 0 for the life of the server, as on MIG and some vGPUs.",
)
GPU_MEMORY_TOTAL_BYTES = _gpu(
    "gpu_memory_total_bytes", "Memory of the GPU.", "bytes", "0 means that Triton could not read this GPU."
)
GPU_MEMORY_USED_BYTES = _gpu("gpu_memory_used_bytes", "Memory of the GPU in use by all processes.", "bytes")
GPU_POWER_USAGE = _gpu("gpu_power_usage", "Power drawn by the board.", "W", _ZERO_POWER)
GPU_POWER_LIMIT = _gpu("gpu_power_limit", "Power limit of the board.", "W", _ZERO_POWER)
ENERGY_CONSUMPTION = _gpu(
    "energy_consumption", "Energy used by the board since the server started.", "J", kind="counter"
)
