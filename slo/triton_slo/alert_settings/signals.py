"""Signals: PromQL that an alert compares with a threshold and a panel draws, with one threshold for both."""

from __future__ import annotations

from triton_exporter.catalogue import gpu, llm, models, own, triton
from triton_slo import bridge_series
from triton_slo.alert_settings.alert_threshold import AlertThreshold
from triton_slo.alert_settings.signal_kinds import Age, Share, Signal, Tail

QUEUE_SHARE = Share(
    "TritonQueueDominates",
    AlertThreshold(
        0.5,
        "share",
        "share of their time that requests spend in the queue",
        "Above a half, requests wait longer than they compute, and more instances shorten them more than a "
        "faster model does.",
    ),
    triton.QUEUE_DURATION_US,
    triton.REQUEST_DURATION_US,
)
INSTANCES_BUSY = Share(
    "TritonInstancesSaturated",
    AlertThreshold(
        0.9,
        "share",
        "share of the time that the instances of a model execute",
        "Waiting time grows with 1 / (1 - busy): at 90 % a request already waits about nine executions where one "
        "instance serves random arrivals, at 95 % about nineteen.",
    ),
    models.BUSY_SECONDS,
    models.INSTANCES,
)
PINNED_MEMORY = Share(
    "TritonPinnedMemoryExhausted",
    AlertThreshold(
        0.95,
        "share",
        "share of the pinned memory pool in use",
        "The pool has a fixed size (256 MB by default) and an allocation that does not fit falls back to "
        "ordinary memory: the last 5 % (13 MB) hold one batch of images or less.",
    ),
    triton.PINNED_POOL_USED_BYTES,
    triton.PINNED_POOL_TOTAL_BYTES,
)
GPU_MEMORY = Share(
    "GpuMemoryNearFull",
    AlertThreshold(
        0.97,
        "share",
        "share of the GPU's memory in use",
        "Servers of language models reserve 90 % to 95 % on purpose; 3 % of an 80 GB card are 2.4 GB, less than a "
        "further instance of most models needs.",
    ),
    gpu.MEMORY_USED,
    gpu.MEMORY_TOTAL,
)
KV_CACHE = Share(
    "TrtLlmKvCacheNearFull",
    AlertThreshold(
        0.95,
        "share",
        "share of the KV cache blocks in use while requests wait",
        "The engine is meant to fill its cache; only with requests waiting, and no block free for the longest of "
        "them, is it too small.",
    ),
    llm.TRTLLM_KV_CACHE,
    llm.TRTLLM_KV_CACHE,
    ('kv_cache_block_type="used"',),
    ('kv_cache_block_type="max"',),
)
FIRST_TOKEN = Tail(
    "VllmFirstTokenSlow",
    AlertThreshold(
        2,
        "seconds",
        "95th percentile of the time to the first token",
        "In a dialogue a pause of one to two seconds is noticed, and a longer one interrupts it. Long prompts or "
        "offline work need a larger value: set it to what your users were promised.",
    ),
    llm.VLLM_FIRST_TOKEN,
    0.95,
)
OUTPUT_TOKEN = Tail(
    "VllmOutputTokenSlow",
    AlertThreshold(
        0.2,
        "seconds",
        "95th percentile of the time for each further token",
        "People read about 250 words a minute, which is some five to six tokens a second: from 200 ms a token on "
        "they wait for the text.",
    ),
    llm.VLLM_OUTPUT_TOKEN,
    0.95,
)
GPU_DATA_AGE = Age(
    "GpuDataStale",
    AlertThreshold(
        120.0,
        "age",
        "age of the readings of a GPU",
        "Sources read a GPU every 1 to 30 seconds: two minutes are at least four readings missed, and more than "
        "the three after which Triton itself gives up.",
    ),
    gpu.DATA_AGE,
)
EXPORTER_AGE = Age(
    "TritonExporterStale",
    AlertThreshold(
        120.0,
        "age",
        "time since the exporter last read Triton's metrics",
        "The exporter reads them at every scrape: at the usual 15 to 30 seconds, two minutes are four to eight "
        "reads that failed in a row.",
    ),
    own.LAST_SUCCESS,
    is_moment=True,
)
UNDELIVERED_AGE = Age(
    "AlertBridgeDeliveryFailing",
    AlertThreshold(
        120.0,
        "age",
        "age of the oldest message that Slack has not accepted",
        "Slack asks to wait up to a minute when its rate limit is reached, and one retry follows: what is older "
        "does not wait for a limit.",
    ),
    bridge_series.OLDEST_UNDELIVERED_AGE,
)

SIGNALS: tuple[Signal, ...] = (
    QUEUE_SHARE,
    INSTANCES_BUSY,
    PINNED_MEMORY,
    GPU_MEMORY,
    KV_CACHE,
    FIRST_TOKEN,
    OUTPUT_TOKEN,
    GPU_DATA_AGE,
    EXPORTER_AGE,
    UNDELIVERED_AGE,
)
