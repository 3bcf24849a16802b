"""Rows of a model that only some models have: ensembles, language models, caches, optional metrics.

Long functions because each lists the panels of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from triton_dashboards import displays
from triton_dashboards.about import fires
from triton_dashboards.query import quantile, ratio, total
from triton_dashboards.traffic import UNCOUNTED, RawTraffic
from triton_dashboards.values import (
    Display,
    Heatmap,
    Panel,
    Query,
    TimeSeries,
)
from triton_dashboards.view import View
from triton_exporter.catalogue import Metric, gpu, llm, models, triton
from triton_exporter.catalogue.state import QUANTILES
from triton_slo.alert_settings import signals
from triton_slo.alert_settings.signal_kinds import Tail


def ensemble(view: View) -> tuple[Panel, ...]:
    """Return panels of the steps of an ensemble: mean latency and failures of each."""
    everything = RawTraffic(view.servers)
    steps = f'label_replace({view.model(models.ENSEMBLE_STEP)}, "model", "$1", "step_model", "(.+)")'
    member = f"and on (model) sum by (model) ({steps})"
    return (
        TimeSeries(
            "Latency of the steps",
            "Mean duration of the requests to each step; if other ensembles or clients use the same "
            "step, their requests are included.",
            {"{{model}}": f"{everything.per_request(triton.REQUEST_DURATION_US, 'model')} {member}"},
            displays.MICROSECONDS.when_empty("No ensemble"),
            reads=(models.ENSEMBLE_STEP, triton.REQUEST_DURATION_US),
            stacked=True,
        ),
        TimeSeries(
            "Failures of the steps",
            f"Share of each step's requests that failed: shows which step causes failures of the "
            f"ensemble. {UNCOUNTED}",
            {"{{model}}": f"{everything.failed('model')} {member}"},
            displays.FAILED_BY.when_empty("No ensemble"),
            reads=triton.REQUEST_FAILURE,
        ),
    )


def vllm(view: View) -> tuple[Panel, ...]:
    """Return panels of a vLLM model: times to the first token, between tokens and to the end, and throughput."""
    none = "No vLLM series"

    def shown(metric: Metric) -> list[Query]:
        return [Query(quantile(q, view.raw.histogram(metric)), f"p{q * 100:g}") for q in QUANTILES]

    def tail(title: str, lead: str, signal: Tail) -> Panel:
        signal = view.signal(signal)
        display = displays.warned(displays.SECONDS.when_empty(none), signal)
        described = f"{lead} For the p{signal.level * 100:g}, {fires(signal)}"
        return TimeSeries(title, described, shown(signal.metric), display, limit_line=True)

    return (
        tail("Time to first token", "Time until the first token of a response.", signals.FIRST_TOKEN),
        tail("Time per output token", "Time between two output tokens.", signals.OUTPUT_TOKEN),
        TimeSeries(
            "Whole requests",
            "Duration of complete requests.",
            shown(llm.VLLM_E2E_LATENCY),
            displays.SECONDS.when_empty(none),
        ),
        TimeSeries(
            "Tokens",
            "Prompt tokens and generated tokens per second.",
            {
                "generated": view.raw.rate(llm.VLLM_GENERATION_TOKENS),
                "prompt": view.raw.rate(llm.VLLM_PROMPT_TOKENS),
            },
            Display("count:tok/s", minimum=0, no_value=none),
            reads=(llm.VLLM_PROMPT_TOKENS, llm.VLLM_GENERATION_TOKENS),
        ),
    )


def tensorrt_llm(view: View) -> tuple[Panel, ...]:
    """Return panels of the load of a TensorRT-LLM engine: requests by state, KV cache, the in-flight batcher."""
    kv_cache = view.signal(signals.KV_CACHE)
    none = "No TensorRT-LLM series"
    iterations = view.chosen.rate(llm.TRTLLM_GENERAL, 'general_type="iteration_counter"')

    def blocks(metric: Metric, *kind: str) -> str:
        return total(view.chosen(metric, *kind), "instance")

    return (
        TimeSeries(
            "Requests in the engine",
            "Active and waiting requests, and the maximum number of active requests of the engine.",
            {"{{request_type}}": total(view.chosen(llm.TRTLLM_REQUESTS), "request_type")},
            displays.COUNT.when_empty(none),
            legend="right",
            calcs=("lastNotNull",),
        ),
        TimeSeries(
            "KV cache used",
            "Share of the KV cache blocks in use; at 1, new requests must wait. While requests wait, "
            + fires(kv_cache),
            {"{{instance}}": kv_cache.expr(blocks)},
            displays.warned(displays.SHARE.when_empty(none), kv_cache),
            limit_line=True,
        ),
        TimeSeries(
            "In-flight batcher",
            "Requests that the in-flight batcher processes, and requests that it has paused.",
            {
                f"{{{{{_BATCHER}}}}}": total(
                    view.chosen(llm.TRTLLM_BATCHER, f'{_BATCHER}=~".+_requests"'), _BATCHER
                )
            },
            displays.COUNT.when_empty(none),
        ),
        TimeSeries(
            "Engine iterations a second",
            "Iterations of the engine per second; 0 with active requests means that the engine is stuck.",
            {"{{instance}}": f"sum by (instance) ({iterations})"},
            Display("short", minimum=0, no_value=none),
        ),
    )


_BATCHER = "inflight_batcher_specific_metric"


def cache(view: View) -> tuple[Panel, ...]:
    """Return panels of the hits and savings of the response cache."""
    hits, misses = view.raw.rate(triton.CACHE_HITS_PER_MODEL), view.raw.rate(triton.CACHE_MISSES_PER_MODEL)
    return (
        TimeSeries(
            "Cache hits",
            "Share of requests answered from the cache.",
            {"hits": ratio(hits, f"({hits} + {misses})")},
            displays.SHARE.when_empty("No response cache"),
        ),
    )


def gpu_share(view: View) -> tuple[Panel, ...]:
    """Return panels of the model's share of its GPUs; estimates are named as such."""
    by = ("instance", "gpu_uuid")
    legend = "{{instance}} {{gpu_uuid}}"
    return (
        TimeSeries(
            "Execution time on GPUs",
            "Execution time of this model on each GPU; overlapping executions add up.",
            {legend: view.raw.rate(gpu.MODEL_BUSY, *by)},
            Display("percentunit", minimum=0, no_value="No GPU known"),
        ),
        TimeSeries(
            "Utilisation caused (estimate)",
            "Estimated share of each GPU's utilisation that this model caused.",
            {legend: total(view.chosen(gpu.MODEL_UTILIZATION), *by)},
            displays.SHARE.when_empty("No GPU known"),
        ),
    )


def first_response(view: View) -> tuple[Panel, ...]:
    buckets = view.raw.buckets(triton.FIRST_RESPONSE_MS)
    return (
        TimeSeries(
            "Time to first response",
            "Quantiles over all servers.",
            [Query(quantile(level, buckets), f"p{level * 100:g}") for level in QUANTILES],
            Display("ms", minimum=0, no_value="Needs histogram_latencies"),
        ),
        Heatmap(
            "First responses",
            "Distribution of the time to first response.",
            total(view.chosen.increase(triton.FIRST_RESPONSE_MS.bucket), "le"),
            Display("ms", no_value="Needs histogram_latencies"),
        ),
    )


def summaries(view: View) -> tuple[Panel, ...]:
    def panel(title: str, metric: Metric) -> Panel:
        return TimeSeries(
            title,
            "Quantiles of the slowest server, because Triton's quantiles cannot be aggregated over servers.",
            {"q{{quantile}}": f"max by (quantile) ({view.chosen(metric)})"},
            displays.MICROSECONDS.when_empty("Needs summary_latencies"),
        )

    return (panel("Request time", triton.REQUEST_SUMMARY_US), panel("Queue time", triton.QUEUE_SUMMARY_US))


EXTRAS: Mapping[str, tuple[str, Callable[[View], tuple[Panel, ...]]]] = {
    "ensemble": ("Ensemble steps", ensemble),
    "vllm": ("Language model (vLLM)", vllm),
    "tensorrtllm": ("Language model (TensorRT-LLM)", tensorrt_llm),
    "gpu": ("Share of the GPUs", gpu_share),
    "cache": ("Response cache", cache),
    "histogram": ("First response (needs histogram_latencies)", first_response),
    "summary": ("Triton's own quantiles (needs summary_latencies)", summaries),
}
"""Key -> heading and panels of a row that only some models have."""
