"""What an alert compares with a limit and a panel draws: one definition and one limit for both.

Readers turn a metric into the PromQL by which the caller looks at it: an alert for each model of a server over
a fixed window, a panel for what is chosen over the window of the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from triton_exporter.catalogue import Metric, bridge, gpu, llm, model, own, triton
from triton_exporter.duration import parse_seconds
from triton_slo.promql import number

Reader = Callable[..., str]
"""(metric, *matchers) -> PromQL."""


@dataclass(frozen=True, slots=True)
class Share:
    """Part of a whole that is not zero; `alert` fires above `limit`."""

    alert: str
    part: Metric
    whole: Metric
    limit: float
    part_matchers: tuple[str, ...] = ()
    whole_matchers: tuple[str, ...] = ()

    def expr(self, part: Reader, whole: Reader | None = None, on: str = "") -> str:
        """The share; `on` is a matching clause for sides that differ in labels."""
        divided = (whole or part)(self.whole, *self.whole_matchers)
        return f"{part(self.part, *self.part_matchers)} / {on}({divided} > 0)"

    @property
    def above(self) -> str:
        """The limit in PromQL."""
        return f"> {number(self.limit)}"


@dataclass(frozen=True, slots=True)
class Age:
    """Seconds since a moment, or seconds as they are reported; `alert` fires above `after`."""

    alert: str
    metric: Metric
    after: str
    is_moment: bool = False

    def expr(self, read: Reader) -> str:
        """The age in seconds."""
        return f"time() - {read(self.metric)}" if self.is_moment else read(self.metric)

    @property
    def limit(self) -> float:
        """Seconds."""
        return parse_seconds(self.after)

    @property
    def above(self) -> str:
        """The limit in PromQL: a duration, which a time scale shortens."""
        return f"> {self.after}"


@dataclass(frozen=True, slots=True)
class Tail:
    """A quantile of a histogram in its own unit; `alert` fires above `limit`."""

    alert: str
    metric: Metric
    level: float
    limit: float

    def expr(self, buckets: Reader) -> str:
        """The quantile; `buckets` gives rates with their le."""
        return f"histogram_quantile({number(self.level)}, {buckets(self.metric)})"

    @property
    def above(self) -> str:
        """The limit in PromQL."""
        return f"> {number(self.limit)}"


QUEUE_SHARE = Share("TritonQueueDominates", triton.QUEUE_DURATION_US, triton.REQUEST_DURATION_US, 0.5)
"""Above a half, requests wait longer than they compute."""
INSTANCES_BUSY = Share("TritonInstancesSaturated", model.BUSY_SECONDS, model.INSTANCES, 0.9)
PINNED_MEMORY = Share(
    "TritonPinnedMemoryExhausted", triton.PINNED_POOL_USED_BYTES, triton.PINNED_POOL_TOTAL_BYTES, 0.95
)
GPU_MEMORY = Share("GpuMemoryNearFull", gpu.MEMORY_USED, gpu.MEMORY_TOTAL, 0.97)
KV_CACHE = Share(
    "TrtLlmKvCacheNearFull",
    llm.TRTLLM_KV_CACHE,
    llm.TRTLLM_KV_CACHE,
    0.95,
    ('kv_cache_block_type="used"',),
    ('kv_cache_block_type="max"',),
)
FIRST_TOKEN = Tail("VllmFirstTokenSlow", llm.VLLM_FIRST_TOKEN, 0.95, 2)
OUTPUT_TOKEN = Tail("VllmOutputTokenSlow", llm.VLLM_OUTPUT_TOKEN, 0.95, 0.2)
GPU_DATA_AGE = Age("GpuDataStale", gpu.DATA_AGE, "2m")
EXPORTER_AGE = Age("TritonExporterStale", own.LAST_SUCCESS, "2m", is_moment=True)
UNDELIVERED_AGE = Age("AlertBridgeDeliveryFailing", bridge.OLDEST_UNDELIVERED_AGE, "2m")

Signal = Share | Age | Tail
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
