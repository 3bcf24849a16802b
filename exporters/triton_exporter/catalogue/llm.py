"""Series that language-model backends expose on Triton's /metrics; the exporter relays them unchanged.

TensorRT-LLM: https://github.com/triton-inference-server/tensorrtllm_backend#triton-metrics
vLLM: https://github.com/triton-inference-server/vllm_backend#triton-metrics
"""

from __future__ import annotations

from triton_exporter.catalogue.metric import Kind, Metric

_MODEL = ("model", "version")
_TRTLLM = "TensorRT-LLM backend on Triton /metrics"
_VLLM = "vLLM backend on Triton /metrics"
_SHIFT = (
    "Values are packed by position: where the engine reports one key less, each later label shows its "
    "neighbour's value."
)
_VLLM_FLAG = 'model parameter REPORT_CUSTOM_METRICS "true" and disable_log_stats false'


def _trtllm(
    name: str,
    text: str,
    label: str,
    unit: str,
    kind: Kind = "gauge",
    since: str = "23.11",
    caveat: str = _SHIFT,
) -> Metric:
    return Metric(f"nv_{name}", kind, text, (*_MODEL, label), unit, _TRTLLM, since, caveat=caveat)


def _vllm(name: str, text: str, unit: str, kind: Kind = "histogram", caveat: str = "") -> Metric:
    return Metric(f"vllm:{name}", kind, text, _MODEL, unit, _VLLM, "24.08", _VLLM_FLAG, caveat)


TRTLLM_REQUESTS = _trtllm(
    "trt_llm_request_metrics",
    "Requests in the engine, by request_type (active, max, scheduled, context, waiting).",
    "request_type",
    "requests",
)
TRTLLM_MEMORY = _trtllm(
    "trt_llm_runtime_memory_metrics",
    "Memory of the runtime, by memory_type (cpu, gpu, pinned).",
    "memory_type",
    "bytes",
)
TRTLLM_KV_CACHE = _trtllm(
    "trt_llm_kv_cache_block_metrics",
    "KV cache, by kv_cache_block_type (max, free, used, tokens_per, reused: blocks; fraction: share used).",
    "kv_cache_block_type",
    "blocks",
)
TRTLLM_BATCHER = _trtllm(
    "trt_llm_inflight_batcher_metrics",
    "In-flight batcher, by inflight_batcher_specific_metric (total_context_tokens, generation_requests, "
    "micro_batch_id, paused_requests).",
    "inflight_batcher_specific_metric",
    "",
)
TRTLLM_GENERAL = _trtllm(
    "trt_llm_general_metrics",
    "Engine, by general_type: timestamp of the last report and iteration_counter, which only grows.",
    "general_type",
    "",
)
TRTLLM_DISAGGREGATED = _trtllm(
    "trt_llm_disaggregated_serving_metrics",
    "Transfers of the KV cache, by disaggregated_serving_type (kv_cache_transfer_ms, request_count).",
    "disaggregated_serving_type",
    "",
    "counter",
    "2025",
)
LLM_INPUT_TOKENS = _trtllm(
    "llm_input_token_len",
    "Tokens of a request's input.",
    "response_metric_type",
    "tokens",
    "histogram",
    "2025",
    "",
)
LLM_OUTPUT_TOKENS = _trtllm(
    "llm_output_token_len",
    "Tokens of a request's output.",
    "response_metric_type",
    "tokens",
    "histogram",
    "2025",
    "",
)

VLLM_PROMPT_TOKENS = _vllm("prompt_tokens_total", "Tokens read in.", "tokens", "counter")
VLLM_GENERATION_TOKENS = _vllm("generation_tokens_total", "Tokens generated.", "tokens", "counter")
VLLM_FIRST_TOKEN = _vllm("time_to_first_token_seconds", "Time to first token.", "s")
VLLM_OUTPUT_TOKEN = _vllm("time_per_output_token_seconds", "Time for each token after the first.", "s")
VLLM_E2E_LATENCY = _vllm(
    "e2e_request_latency_seconds", "Time of a whole request.", "s", caveat="Buckets begin at 1 s."
)
VLLM_REQUEST_PROMPT_TOKENS = _vllm("request_prompt_tokens", "Tokens of a request's prompt.", "tokens")
VLLM_REQUEST_GENERATION_TOKENS = _vllm(
    "request_generation_tokens", "Tokens generated for a request.", "tokens"
)
