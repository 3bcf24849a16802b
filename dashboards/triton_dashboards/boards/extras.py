"""Rows of a model that only some models have: ensembles, language models, caches, optional metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from triton_dashboards import displays
from triton_dashboards.about import fires
from triton_dashboards.query import quantile, ratio, total
from triton_dashboards.traffic import UNCOUNTED
from triton_dashboards.values import (
    Display,
    Panel,
    Query,
    Stat,
    TimeSeries,
)
from triton_dashboards.view import View
from triton_exporter.catalogue import Metric, llm, triton
from triton_exporter.catalogue.state import QUANTILES
from triton_slo import signals
from triton_slo.signals import Tail


def ensemble(view: View) -> tuple[Panel, ...]:
    """Return panels of the steps of an ensemble, from what is recorded of the requests that it sends to them."""
    requests = view.raw.of_steps("requests", "step_model")

    def per_request(what: str) -> str:
        return ratio(view.raw.of_steps(what, "step_model"), requests)

    return (
        TimeSeries(
            "Latency of the steps",
            "Mean duration of a request to each step, in its queue and in compute.",
            {"{{step_model}}": per_request("request_seconds")},
            displays.SECONDS.when_empty("No ensemble"),
            stacked=True,
            width=8,
        ),
        TimeSeries(
            "Queue of the steps",
            "Mean time of a request in the queue of each step: an ensemble has no queue of its own.",
            {"{{step_model}}": per_request("queue_seconds")},
            displays.SECONDS.when_empty("No ensemble"),
            stacked=True,
            width=8,
        ),
        TimeSeries(
            "Failures of the steps",
            f"Share of the ensemble's requests to each step that failed: shows which step causes failures of the "
            f"ensemble. {UNCOUNTED}",
            {"{{step_model}}": per_request("failures")},
            displays.FAILED_BY.when_empty("No step failed"),
            width=8,
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
    """Return panels of the load of a TensorRT-LLM engine: requests by state, and KV cache."""
    kv_cache = view.signal(signals.KV_CACHE)
    none = "No TensorRT-LLM series"

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
    )


def language(view: View) -> tuple[Panel, ...]:
    """Return what matters first of a language model, whichever backend serves it; requests say little about it."""
    none = "–"
    raw, kv_cache = view.raw, view.signal(signals.KV_CACHE)
    first_token, output_token = (
        view.signal(signal) for signal in (signals.FIRST_TOKEN, signals.OUTPUT_TOKEN)
    )
    first_response = quantile(0.95, raw.buckets(triton.FIRST_RESPONSE_MS))

    def blocks(metric: Metric, *kind: str) -> str:
        return total(view.chosen(metric, *kind), "instance")

    return (
        Stat(
            "First token, p95",
            "95 % of the responses began sooner. From vLLM, or from Triton's histogram of first responses.",
            f"{quantile(0.95, raw.histogram(llm.VLLM_FIRST_TOKEN))} or ({first_response}) / 1000",
            displays.judged(displays.SECONDS.when_empty(none), first_token),
            width=6,
            height=3,
        ),
        Stat(
            "Further tokens, p95",
            "95 % of the further tokens took less. From vLLM.",
            quantile(0.95, raw.histogram(llm.VLLM_OUTPUT_TOKEN)),
            displays.judged(displays.SECONDS.when_empty(none), output_token),
            width=6,
            height=3,
        ),
        Stat(
            "Tokens per second",
            "Tokens generated per second.",
            f"{raw.rate(llm.VLLM_GENERATION_TOKENS)} or {total(view.chosen.rate(llm.LLM_OUTPUT_TOKENS.sum))}",
            Display("count:tok/s", minimum=0, no_value=none),
            width=6,
            height=3,
        ),
        Stat(
            "KV cache",
            "Share of the KV cache blocks in use, on the fullest server; at 1, new requests must wait. From "
            "TensorRT-LLM: vLLM does not export it through Triton.",
            f"max({kv_cache.expr(blocks)})",
            displays.judged(displays.SHARE.when_empty(none), kv_cache),
            width=6,
            height=3,
        ),
    )


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


def first_response(view: View) -> tuple[Panel, ...]:
    buckets = view.raw.buckets(triton.FIRST_RESPONSE_MS)
    return (
        TimeSeries(
            "Time to first response",
            "Quantiles over all servers.",
            [Query(quantile(level, buckets), f"p{level * 100:g}") for level in QUANTILES],
            Display("ms", minimum=0, no_value="Needs histogram_latencies"),
        ),
    )


LANGUAGE = ("vllm", "tensorrtllm")
"""Rows that only a language model has."""

EXTRAS: Mapping[str, tuple[str, Callable[[View], tuple[Panel, ...]]]] = {
    "ensemble": ("Ensemble steps", ensemble),
    "vllm": ("Language model (vLLM)", vllm),
    "tensorrtllm": ("Language model (TensorRT-LLM)", tensorrt_llm),
    "cache": ("Response cache", cache),
    "histogram": ("First response (needs histogram_latencies)", first_response),
}
"""Key -> heading and panels of a row that only some models have."""
