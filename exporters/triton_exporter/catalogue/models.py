"""Series about a model's configuration and work, made from its config and statistics endpoints."""

from __future__ import annotations

from triton_exporter.catalogue.metric import Kind, Metric

_MODEL = ("model", "version")
_CONFIG = "model configuration"
_STATISTICS = "model statistics"
_ONLY_READY = "Present for ready versions only: Triton reports the configuration of no others."


def _config(
    name: str, text: str, labels: tuple[str, ...] = (), unit: str = "", kind: Kind = "gauge"
) -> Metric:
    return Metric(name, kind, text, (*_MODEL, *labels), unit, _CONFIG, caveat=_ONLY_READY)


def _statistic(name: str, kind: Kind, text: str, unit: str = "", caveat: str = "") -> Metric:
    return Metric(name, kind, text, _MODEL, unit, _STATISTICS, caveat=caveat)


INFO = _config(
    "triton_model_info", "Backend and platform of the model, always 1.", ("backend", "platform"), kind="info"
)
SCHEDULER_INFO = _config(
    "triton_model_scheduler_info",
    "How requests are put into executions, always 1: scheduler is none, dynamic, sequence or ensemble; the other "
    "labels are empty where nothing is configured.",
    ("scheduler", "preferred_batch_sizes", "priority_levels", "rate_limiter"),
    kind="info",
)
MAX_BATCH_SIZE = _config(
    "triton_model_max_batch_size", "Largest batch the model takes; 0 when it does not batch."
)
INSTANCES = _config(
    "triton_model_instances",
    "Instances of the model by kind, on each GPU (CUDA ordinal in Triton's process, empty for none).",
    ("kind", "gpu"),
)
MAX_QUEUE_DELAY = _config(
    "triton_model_max_queue_delay_seconds",
    "Longest time the batcher holds a request back to fill a batch; absent without a batcher.",
    unit="s",
)
QUEUE_SIZE_LIMIT = _config(
    "triton_model_queue_size_limit",
    "Requests a queue holds before it rejects more, absent when unlimited; priority is empty by default.",
    ("priority",),
    "requests",
)
QUEUE_TIMEOUT = _config(
    "triton_model_queue_timeout_seconds",
    "Time after which a queued request times out, absent when unlimited; priority is empty by default.",
    ("priority", "action"),
    "s",
)
RESPONSE_CACHE = _config(
    "triton_model_response_cache", "1 when the response cache is enabled; absent otherwise."
)
DECOUPLED = _config(
    "triton_model_decoupled", "1 when a request may have any number of responses; absent otherwise."
)
ENSEMBLE_STEP = _config(
    "triton_model_ensemble_step",
    "1 for each step of the ensemble, by its position in the configuration (from 1); step_version is -1 for the "
    "latest.",
    ("position", "step_model", "step_version"),
)

BUSY_SECONDS = _statistic(
    "triton_model_busy_seconds_total",
    "counter",
    "Time the model's instances spent executing, per execution and not per request: divided by the number of "
    "instances, its rate is their utilization.",
    unit="s",
    caveat="Always 0 for ensembles; work done by asynchronous decoupled models is not in it.",
)
BATCH_SIZE_SQUARES = _statistic(
    "triton_model_batch_size_squares_total",
    "counter",
    "Sum over executions of the square of their batch size: its rate over that of nv_inference_exec_count, less the "
    "square of the mean batch size, is the variance of batch sizes.",
    caveat="Always 0 for ensembles.",
)

CONFIGURATION: tuple[Metric, ...] = (
    INFO,
    SCHEDULER_INFO,
    MAX_BATCH_SIZE,
    INSTANCES,
    MAX_QUEUE_DELAY,
    QUEUE_SIZE_LIMIT,
    QUEUE_TIMEOUT,
    RESPONSE_CACHE,
    DECOUPLED,
    ENSEMBLE_STEP,
)
"""What shows how a model version is configured."""
