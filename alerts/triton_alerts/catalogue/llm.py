"""Language models: vLLM, TensorRT-LLM, and what NIM serves."""

from __future__ import annotations

from functools import partial

from triton_alerts.alert import Alert
from triton_exporter.catalogue import Metric, llm
from triton_slo import signals

_MODEL = ("instance", "model", "version")
_ON = "on (instance, model, version)"


def _slots(kind: str) -> str:
    return f'{llm.TRTLLM_REQUESTS}{{request_type="{kind}"}}'


_WAITING = f'{llm.REQUESTS}{{state="waiting"}}'


def _buckets(metric: Metric, window: str = "5m") -> str:
    """Return the buckets, or the native histogram where a Prometheus 3 has converted them."""
    classic, native = (
        f"sum without (gpu_uuid) (rate({series}[{window}]))" for series in (metric.bucket, metric)
    )
    return f"{classic} or ignoring (le) {native}"


def _buckets_1h(metric: Metric) -> str:
    return _buckets(metric, "1h")


_llm_alert = partial(Alert, component="llm", labels=_MODEL)

TENSORRT_LLM = (
    _llm_alert(
        name="LlmKvCacheNearFull",
        # A full cache without waiting requests is normal.
        expr=f"""\
{signals.KV_CACHE.expr(str)} > $threshold
and {_ON} {_WAITING} > 0""",
        until=f"""\
{signals.KV_CACHE.expr(signals.mean_30m)} > 0.9 * $threshold
and {_ON} max_over_time({_WAITING}[30m]) > 0""",
        threshold=signals.KV_CACHE.threshold,
        severity="warning",
        for_="10m",
        keep_firing_for="15m",
        summary="The KV cache of {{ $labels.model }} on {{ $labels.instance }} was "
        "{{ $value | humanizePercentage }} full and requests waited",
        description="The cache holds the context of running requests; others wait for space in it. The time to the first token "
        "increases.",
        action="Add replicas, or give the cache more memory (TensorRT-LLM: kv_cache_free_gpu_mem_fraction, "
        "vLLM: gpu_memory_utilization).",
        silence="model, during a load test",
    ),
    _llm_alert(
        name="TrtLlmSlotsFull",
        expr=f"""\
{_slots("active")} >= {_ON} ({_slots("max")} > 0)
and {_ON} {_slots("waiting")} > 0""",
        severity="warning",
        for_="10m",
        keep_firing_for="15m",
        summary="All {{ $value }} request slots of {{ $labels.model }} on {{ $labels.instance }} were in use "
        "and requests waited",
        description="The engine executes as many requests at once as it is configured for.",
        action="Check the KV cache: if blocks are free, raise the maximum batch size; otherwise add "
        "replicas.",
        silence="model, during a load test",
    ),
    _llm_alert(
        name="LlmRequestsPaused",
        expr=f'min without (state) (min_over_time({llm.REQUESTS}{{state="paused"}}[10m])) > 0',
        severity="warning",
        for_="10m",
        keep_firing_for="10m",
        summary="{{ $value }} requests to {{ $labels.model }} on {{ $labels.instance }} were paused for [10m]",
        description="The engine kept requests paused: it scheduled more than fit into the KV cache. For the users of these requests, the output stops.",
        action="TensorRT-LLM: use the scheduler policy guaranteed_no_evict. Or give the KV cache more memory.",
        silence="model, during a load test",
    ),
    _llm_alert(
        name="TrtLlmEngineStuck",
        # The iteration counter is exposed as a gauge; it only grows while the engine turns.
        expr=f"""\
min without (general_type) (changes({llm.TRTLLM_GENERAL}{{general_type="iteration_counter"}}[5m])) == 0
and {_ON} {_slots("active")} > 0""",
        severity="critical",
        for_="3m",
        keep_firing_for="2m",
        summary="The engine of {{ $labels.model }} on {{ $labels.instance }} made no progress for over [5m]",
        description="The TensorRT-LLM engine has requests and is stuck. The most common causes are a GPU error or, in a multi-GPU engine, a lost peer process.",
        action="Take the server out of service, search dmesg for XID errors, then restart the server.",
        silence="instance and model",
    ),
)

VLLM = (
    _llm_alert(
        name="LlmFirstTokenSlow",
        expr=f"{signals.FIRST_TOKEN.expr(_buckets)} > $threshold",
        until=f"{signals.FIRST_TOKEN.expr(_buckets_1h)} > 0.9 * $threshold",
        threshold=signals.FIRST_TOKEN.threshold,
        severity="warning",
        for_="10m",
        keep_firing_for="15m",
        summary="One in twenty requests to {{ $labels.model }} on {{ $labels.instance }} waited "
        '{{ $value | printf "%.2g" | humanizeDuration }} or longer for its first token',
        description="The alert fires above $threshold. Users see no answer before the first token.",
        action="Compare the lengths of prompts and the request rate with yesterday's.",
        silence="model, during a load test",
    ),
    _llm_alert(
        name="LlmOutputTokenSlow",
        expr=f"{signals.OUTPUT_TOKEN.expr(_buckets)} > $threshold",
        until=f"{signals.OUTPUT_TOKEN.expr(_buckets_1h)} > 0.9 * $threshold",
        threshold=signals.OUTPUT_TOKEN.threshold,
        severity="warning",
        for_="10m",
        keep_firing_for="15m",
        summary="One in twenty output tokens of {{ $labels.model }} on {{ $labels.instance }} took "
        '{{ $value | printf "%.2g" | humanizeDuration }} or longer',
        description="The alert fires above $threshold. This is slower than people read.",
        action="Check whether too many requests share the engine, or the GPU is throttled.",
        silence="model, during a load test",
    ),
)

ALERTS = (*TENSORRT_LLM, *VLLM)
