"""Rows of a model that only some models have: ensembles, language models, caches, optional metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from triton_dashboards import reading
from triton_dashboards.about import about, fires
from triton_dashboards.grafana.panels import heatmap, timeseries
from triton_dashboards.grafana.values import Display, Panel, Query
from triton_dashboards.query import quantile, ratio, total
from triton_dashboards.traffic import Raw
from triton_dashboards.view import QUANTILES, View
from triton_exporter.catalogue import Metric, gpu, llm, triton
from triton_exporter.catalogue import model as config
from triton_slo import signals
from triton_slo.signals import Tail


def ensemble(seen: View) -> tuple[Panel, ...]:
    """Where an ensemble's time goes: the mean latency and the failures of each of its steps."""
    everything = Raw(seen.servers)
    steps = f'label_replace({seen.model(config.ENSEMBLE_STEP)}, "model", "$1", "step_model", "(.+)")'
    member = f"and on (model) sum by (model) ({steps})"
    return (
        timeseries(
            "Latency of the steps",
            about(
                "Mean time of each step's requests; a step that others use too counts their requests "
                "as well.",
                config.ENSEMBLE_STEP,
                triton.REQUEST_DURATION_US,
            ),
            [Query(f"{everything.per_request(triton.REQUEST_DURATION_US, 'model')} {member}", "{{model}}")],
            replace(reading.MICROSECONDS, no_value="No ensemble"),
            stacked=True,
        ),
        timeseries(
            "Failures of the steps",
            about(
                "Share of each step's requests that failed: blame the step, not the ensemble.",
                triton.REQUEST_FAILURE,
            ),
            [Query(f"{everything.failed('model')} {member}", "{{model}}")],
            replace(reading.FAILED, no_value="No ensemble"),
        ),
    )


def vllm(seen: View) -> tuple[Panel, ...]:
    """What a user of a vLLM model feels: first token, token by token, whole answers, throughput."""
    none = "No vLLM series"

    def shown(metric: Metric) -> list[Query]:
        return [Query(quantile(q, seen.raw.buckets(metric)), f"p{q * 100:g}") for q in QUANTILES]

    def tail(title: str, lead: str, signal: Tail) -> Panel:
        display = reading.warned(replace(reading.SECONDS, no_value=none), signal)
        described = about(f"{lead} For the p{signal.level * 100:g}, {fires(signal)}", signal.metric)
        return timeseries(title, described, shown(signal.metric), display, limit_line=True)

    return (
        tail("Time to first token", "How long until an answer begins.", signals.FIRST_TOKEN),
        tail("Time per output token", "How fast an answer flows.", signals.OUTPUT_TOKEN),
        timeseries(
            "Whole requests",
            about("How long whole answers take.", llm.VLLM_E2E_LATENCY),
            shown(llm.VLLM_E2E_LATENCY),
            replace(reading.SECONDS, no_value=none),
        ),
        timeseries(
            "Tokens",
            about("Tokens read and written a second.", llm.VLLM_PROMPT_TOKENS, llm.VLLM_GENERATION_TOKENS),
            [
                Query(seen.raw.rate(llm.VLLM_GENERATION_TOKENS), "generated"),
                Query(seen.raw.rate(llm.VLLM_PROMPT_TOKENS), "prompt"),
            ],
            Display("count:tok/s", minimum=0, no_value=none),
        ),
    )


def tensorrt_llm(seen: View) -> tuple[Panel, ...]:
    """Whether a TensorRT-LLM engine is full: requests by state, KV cache, the in-flight batcher."""
    none = "No TensorRT-LLM series"
    iterations = seen.chosen.rate(llm.TRTLLM_GENERAL, 'general_type="iteration_counter"')

    def blocks(metric: Metric, *kind: str) -> str:
        return total(seen.chosen(metric, *kind), "instance")

    return (
        timeseries(
            "Requests in the engine",
            about(
                "Active against the most the engine takes; waiting ones found it full.", llm.TRTLLM_REQUESTS
            ),
            [Query(total(seen.chosen(llm.TRTLLM_REQUESTS), "request_type"), "{{request_type}}")],
            replace(reading.COUNT, no_value=none),
            legend="right",
            calcs=("lastNotNull",),
        ),
        timeseries(
            "KV cache used",
            about(
                "Share of the KV cache in use; at 1 new requests wait. While requests wait, "
                + fires(signals.KV_CACHE),
                llm.TRTLLM_KV_CACHE,
            ),
            [Query(signals.KV_CACHE.expr(blocks), "{{instance}}")],
            reading.warned(replace(reading.SHARE, no_value=none), signals.KV_CACHE),
            limit_line=True,
        ),
        timeseries(
            "In-flight batcher",
            about("Requests the batcher works on, and those it had to pause.", llm.TRTLLM_BATCHER),
            [
                Query(
                    total(seen.chosen(llm.TRTLLM_BATCHER, f'{_BATCHER}=~".+_requests"'), _BATCHER),
                    f"{{{{{_BATCHER}}}}}",
                )
            ],
            replace(reading.COUNT, no_value=none),
        ),
        timeseries(
            "Engine iterations",
            about("Iterations a second; 0 with active requests is a stuck engine.", llm.TRTLLM_GENERAL),
            [Query(f"sum by (instance) ({iterations})", "{{instance}}")],
            Display("iops", minimum=0, no_value=none),
        ),
    )


_BATCHER = "inflight_batcher_specific_metric"


def cache(seen: View) -> tuple[Panel, ...]:
    """What the response cache saves."""
    hits, misses = seen.raw.rate(triton.CACHE_HITS_PER_MODEL), seen.raw.rate(triton.CACHE_MISSES_PER_MODEL)
    return (
        timeseries(
            "Cache hits",
            about(
                "Share of requests answered from the cache.",
                triton.CACHE_HITS_PER_MODEL,
                triton.CACHE_MISSES_PER_MODEL,
            ),
            [Query(ratio(hits, f"({hits} + {misses})"), "hits")],
            replace(reading.SHARE, no_value="No response cache"),
        ),
    )


def gpu_share(seen: View) -> tuple[Panel, ...]:
    """What this model takes of its GPUs, estimates named as such."""
    by = ("instance", "gpu_uuid")
    legend = "{{instance}} {{gpu_uuid}}"
    return (
        timeseries(
            "Busy with this model",
            about("Time of executions on each GPU; overlapping ones add up.", gpu.MODEL_BUSY),
            [Query(seen.raw.rate(gpu.MODEL_BUSY, *by), legend)],
            Display("percentunit", minimum=0, no_value="No GPU known"),
        ),
        timeseries(
            "Utilisation caused (estimate)",
            about("Part of each GPU's utilisation that this model caused.", gpu.MODEL_UTILIZATION),
            [Query(total(seen.chosen(gpu.MODEL_UTILIZATION), *by), legend)],
            replace(reading.SHARE, no_value="No GPU known"),
        ),
    )


def first_response(seen: View) -> tuple[Panel, ...]:
    buckets = seen.raw.buckets(triton.FIRST_RESPONSE_MS)
    return (
        timeseries(
            "Time to first response",
            about("Quantiles over all servers.", triton.FIRST_RESPONSE_MS),
            [Query(quantile(level, buckets), f"p{level * 100:g}") for level in QUANTILES],
            Display("ms", minimum=0, no_value="Needs histogram_latencies"),
        ),
        heatmap(
            "First responses",
            about("How many first responses took how long.", triton.FIRST_RESPONSE_MS),
            [Query(total(seen.chosen.increase(triton.FIRST_RESPONSE_MS.bucket), "le"))],
            Display("ms", no_value="Needs histogram_latencies"),
        ),
    )


def summaries(seen: View) -> tuple[Panel, ...]:
    def panel(title: str, metric: Metric) -> Panel:
        return timeseries(
            title,
            about("The worst server's quantiles; Triton's cannot be added up over servers.", metric),
            [Query(f"max by (quantile) ({seen.chosen(metric)})", "q{{quantile}}")],
            replace(reading.MICROSECONDS, no_value="Needs summary_latencies"),
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
