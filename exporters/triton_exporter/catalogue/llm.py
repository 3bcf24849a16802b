"""Series of language models: one set for every engine, and those of TensorRT-LLM that no other engine has.

TensorRT-LLM: https://github.com/triton-inference-server/tensorrtllm_backend#triton-metrics,
trtllm-serve: https://github.com/NVIDIA/TensorRT-LLM/blob/main/tensorrt_llm/metrics/collector.py
vLLM: https://docs.vllm.ai/en/stable/usage/metrics/, in Triton
https://github.com/triton-inference-server/vllm_backend/blob/main/src/utils/metrics.py
NIM: https://docs.nvidia.com/nim/large-language-models/latest/observability.html
"""

from __future__ import annotations

from triton_exporter.catalogue.metric import Kind, Metric
from triton_exporter.catalogue.triton import FIRST_RESPONSE_MS

_MODEL = ("model", "version")
_SHIFT = (
    "Values are packed by position: where the engine reports one key less, each later label shows its "
    "neighbour's value."
)


def _trtllm(name: str, text: str, label: str, unit: str) -> Metric:
    source = "TensorRT-LLM backend on Triton /metrics, relayed"
    return Metric(f"nv_trt_llm_{name}", "gauge", text, (*_MODEL, label), unit, source, "23.11", caveat=_SHIFT)


TRTLLM_REQUESTS = _trtllm(
    "request_metrics",
    "Requests in the engine, by request_type (active, max, scheduled, context, waiting).",
    "request_type",
    "requests",
)
TRTLLM_KV_CACHE = _trtllm(
    "kv_cache_block_metrics",
    "KV cache, by kv_cache_block_type (max, free, used, tokens_per, reused: blocks; fraction: share used).",
    "kv_cache_block_type",
    "blocks",
)
TRTLLM_BATCHER = _trtllm(
    "inflight_batcher_metrics",
    "In-flight batcher, by inflight_batcher_specific_metric (total_context_tokens, generation_requests, "
    "micro_batch_id, paused_requests).",
    "inflight_batcher_specific_metric",
    "",
)
TRTLLM_GENERAL = _trtllm(
    "general_metrics",
    "Engine, by general_type: timestamp of the last report and iteration_counter, which only grows.",
    "general_type",
    "",
)

SOURCES: dict[tuple[Metric, tuple[str, ...]], tuple[str, ...]] = {}
"""Series and its labels beyond model and version -> what engines call it; of a model's, the first counts."""


def _expanded(*sources: str) -> tuple[str, ...]:
    """Return the sources; `*x` is x as vLLM, trtllm-serve and NIM call it."""
    prefixes = ("vllm:", "trtllm_", "")
    return tuple(
        prefix + source.removeprefix("*")
        for source in sources
        for prefix in (prefixes if source[0] == "*" else ("",))
    )


def _of_every_engine(name: str, kind: Kind, text: str, unit: str, *sources: str, caveat: str = "") -> Metric:
    every = _expanded(*sources)
    metric = Metric(f"triton_llm_{name}", kind, text, _MODEL, unit, ", ".join(every), caveat=caveat)
    SOURCES[metric, ()] = every
    return metric


FIRST_TOKEN = _of_every_engine(
    "time_to_first_token_seconds",
    "histogram",
    "Time from a request to its first token.",
    "s",
    "*time_to_first_token_seconds",
    caveat=f"Where the engine has none: Triton's {FIRST_RESPONSE_MS}.",
)
INTER_TOKEN = _of_every_engine(
    "inter_token_latency_seconds",
    "histogram",
    "Time between two tokens of a response, each an event.",
    "s",
    "vllm:inter_token_latency_seconds",
    "inter_token_latency_seconds",
    "vllm:time_per_output_token_seconds",
    "time_per_output_token_seconds",
    "trtllm_time_per_output_token_seconds",
    caveat="Of trtllm-serve it is the mean of each request: it has no other.",
)
REQUEST_INTER_TOKEN = _of_every_engine(
    "request_time_per_output_token_seconds",
    "histogram",
    "Mean time between the tokens of a response, each request an event.",
    "s",
    "vllm:request_time_per_output_token_seconds",
    "trtllm_time_per_output_token_seconds",
    "request_time_per_output_token_seconds",
    caveat="Triton's vLLM backend does not export it (January 2026).",
)
E2E = _of_every_engine(
    "e2e_request_latency_seconds",
    "histogram",
    "Time from a request to its last token.",
    "s",
    "*e2e_request_latency_seconds",
    caveat="The buckets of Triton's vLLM backend begin at 1 s.",
)
PROMPT_TOKENS = _of_every_engine(
    "prompt_tokens_total",
    "counter",
    "Tokens read in.",
    "tokens",
    "*prompt_tokens_total",
    "nv_llm_input_token_len_sum",
)
GENERATION_TOKENS = _of_every_engine(
    "generation_tokens_total",
    "counter",
    "Tokens generated.",
    "tokens",
    "*generation_tokens_total",
    "nv_llm_output_token_len_sum",
)
PREEMPTIONS = _of_every_engine(
    "preemptions_total",
    "counter",
    "Requests taken out of execution because the KV cache was full; their output stops for a while.",
    "requests",
    "vllm:num_preemptions_total",
    "num_preemptions_total",
)
KV_CACHE = _of_every_engine(
    "kv_cache_usage_ratio",
    "gauge",
    "Share of the KV cache in use, of the fullest engine of a server.",
    "ratio",
    "vllm:kv_cache_usage_perc",
    "kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc",
    "gpu_cache_usage_perc",
    "trtllm_kv_cache_utilization",
    caveat=f"Of TensorRT-LLM in Triton: used / max of {TRTLLM_KV_CACHE}.",
)
_STATES = {
    "running": _expanded("*num_requests_running", f'{TRTLLM_REQUESTS}{{request_type="active"}}'),
    "waiting": _expanded("*num_requests_waiting", f'{TRTLLM_REQUESTS}{{request_type="waiting"}}'),
    "paused": _expanded(
        "vllm:num_requests_swapped",
        "trtllm_num_paused_requests",
        f'{TRTLLM_BATCHER}{{inflight_batcher_specific_metric="paused_requests"}}',
    ),
}
REQUESTS = Metric(
    "triton_llm_requests",
    "gauge",
    "Requests in the engine, by state (running, waiting, paused: preempted until the KV cache has room).",
    (*_MODEL, "state"),
    "requests",
    ", ".join(source for sources in _STATES.values() for source in sources),
)
SOURCES |= {(REQUESTS, (state,)): sources for state, sources in _STATES.items()}
FAMILIES = {
    source.partition("{")[0].removesuffix("_sum") for sources in SOURCES.values() for source in sources
}
"""The engines' families: vLLM, trtllm-serve and NIM on their own have these, and no nv_..."""
