"""Define the proofs of the llm family."""

from __future__ import annotations

from alerts.proofs.proof import Fires, boundary, fires, quiet, reset
from alerts.proofs.proof_series import VERSION, only, series
from triton_exporter.catalogue import Metric, llm

_ENGINE = only(VERSION, "instance", "model", "version")


def _requests(kind: str) -> str:
    return series(llm.TRTLLM_REQUESTS, VERSION, request_type=kind)


_KV_CACHE = series(llm.KV_CACHE, VERSION)
_WAITING = series(llm.REQUESTS, VERSION, state="waiting")


def _buckets(metric: Metric, *bounds: tuple[str, str]) -> dict[str, str]:
    return {series(metric.bucket, VERSION, le=bound): values for bound, values in bounds}


_PAUSED = series(llm.REQUESTS, VERSION, state="paused")
_ITERATIONS = series(llm.TRTLLM_GENERAL, VERSION, general_type="iteration_counter")
_FULL = {_KV_CACHE: "0.99x80", _WAITING: "3x80"}
_SLOTS = {_requests("active"): "8x80", _requests("max"): "8x80", _requests("waiting"): "3x80"}
_STUCK = {_ITERATIONS: "0+10x20 200x60", _requests("active"): "4x80"}
_SLOW_START = _buckets(llm.FIRST_TOKEN, ("1", "0+10x80"), ("5", "0+100x80"), ("+Inf", "0+100x80"))
_SLOW_TOKEN = _buckets(llm.INTER_TOKEN, ("0.1", "0+10x80"), ("0.5", "0+100x80"), ("+Inf", "0+100x80"))

PROOFS = (
    fires(
        "LlmKvCacheNearFull",
        "fires when requests wait for a full cache",
        _FULL,
        "10m",
        Fires(VERSION, "99%"),
        before="9m45s",
    ),
    boundary("LlmKvCacheNearFull", "is quiet at exactly 95 percent", _FULL | {_KV_CACHE: "0.95x80"}, "15m"),
    quiet(
        "LlmKvCacheNearFull",
        "is quiet about a full cache with nobody waiting",
        _FULL | {_WAITING: "0x80"},
        "15m",
    ),
    fires(
        "TrtLlmSlotsFull",
        "fires when all slots are taken and requests wait",
        _SLOTS,
        "10m",
        Fires(_ENGINE, "8"),
        before="9m45s",
    ),
    boundary("TrtLlmSlotsFull", "is quiet with one slot left", _SLOTS | {_requests("active"): "7x80"}, "15m"),
    quiet("TrtLlmSlotsFull", "is quiet when nobody waits", _SLOTS | {_requests("waiting"): "0x80"}, "15m"),
    fires(
        "LlmRequestsPaused",
        "fires when requests stay paused",
        {_PAUSED: "2x100"},
        "12m",
        Fires(VERSION, "2"),
        before="9m45s",
    ),
    quiet("LlmRequestsPaused", "is quiet about a short pause", {_PAUSED: "2x8 0 2x8 0x80"}, "16m"),
    fires(
        "TrtLlmEngineStuck",
        "fires when the engine makes no progress on its requests",
        _STUCK,
        "14m",
        Fires(VERSION),
        before="12m",
    ),
    quiet(
        "TrtLlmEngineStuck",
        "is quiet about an engine without requests",
        _STUCK | {_requests("active"): "0x80"},
        "15m",
    ),
    reset(
        "TrtLlmEngineStuck",
        "takes a restart of the engine for movement",
        _STUCK | {_ITERATIONS: "500+10x20 0+10x60"},
        "15m",
    ),
    fires(
        "LlmFirstTokenSlow",
        "fires when one in twenty waits 2 s or longer",
        _SLOW_START,
        "11m",
        Fires(VERSION, "4.8s"),
        before="10m",
    ),
    quiet(
        "LlmFirstTokenSlow",
        "is quiet when all answer within a second",
        _buckets(llm.FIRST_TOKEN, ("1", "0+100x80"), ("+Inf", "0+100x80")),
        "15m",
    ),
    reset(
        "LlmFirstTokenSlow",
        "is quiet when the counters begin again",
        _buckets(llm.FIRST_TOKEN, ("1", "0+100x40 0+100x40"), ("+Inf", "0+100x40 0+100x40")),
        "15m",
    ),
    fires(
        "LlmOutputTokenSlow",
        "fires when tokens come slower than people read",
        _SLOW_TOKEN,
        "11m",
        Fires(VERSION, "480ms"),
        before="10m",
    ),
    quiet(
        "LlmOutputTokenSlow",
        "is quiet at 100 ms",
        _buckets(llm.INTER_TOKEN, ("0.1", "0+100x80"), ("+Inf", "0+100x80")),
        "15m",
    ),
    reset(
        "LlmOutputTokenSlow",
        "is quiet when the counters begin again",
        _buckets(llm.INTER_TOKEN, ("0.1", "0+100x40 0+100x40"), ("+Inf", "0+100x40 0+100x40")),
        "15m",
    ),
)
