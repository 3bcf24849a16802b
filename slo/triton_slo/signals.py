"""Signals: PromQL that an alert compares with a threshold and a panel draws, with one threshold for both.

A signal is a share, an age or a quantile. Readers turn a metric into the PromQL that the caller needs: an alert for each
model of a server over a fixed window, a panel for what is chosen over the window of the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Self

from triton_exporter.catalogue import EXPORTER_JOB, Metric, gpu, llm, models, own, state, triton
from triton_exporter.catalogue.external import stack
from triton_slo import bridge_series
from triton_slo.alert_settings import AlertThreshold, TunedPart, Tuning
from triton_slo.promql import number

Reader = Callable[..., str]
"""(metric, *matchers) -> PromQL."""


def mean_30m(metric: Metric) -> str:
    return f"avg_over_time({metric}[30m])"


EXPORTER_UP = f'{stack.UP}{{job="{EXPORTER_JOB}"}}'
"""Whether the last scrape of each exporter succeeded."""
MAYBE_READY = f"last_over_time({state.MODEL_READY}[1h]) == 1 and on (cluster, instance) {EXPORTER_UP} == 0"
"""The models that a server had ready when its exporter, which is silent, last answered."""


@dataclass(frozen=True, slots=True)
class Signal:
    """A series that `alert` compares with `threshold`."""

    alert: str
    threshold: AlertThreshold
    enabled: bool = field(default=True, kw_only=True)
    exceptions: tuple[str, ...] = field(default=(), kw_only=True)
    """Thresholds that some models have instead, in words."""

    @property
    def limit(self) -> float | None:
        """The threshold as a number, an age in seconds; None where no alert fires."""
        return self.threshold.value if self.enabled else None

    def tuned(self, tuning: Tuning, model: str = "") -> Self:
        """Return the signal in force for one model; without a name, for most of them, and with the exceptions."""
        *parts, _ = tuning.parts(self.alert)
        setting = tuning.of_model(self.alert, model)
        exceptions = () if model else tuple(self._exception(exception) for exception in parts)
        return replace(
            self,
            threshold=self.threshold.tuned(setting),
            enabled=setting.enabled is not False,
            exceptions=exceptions,
        )

    def _exception(self, part: TunedPart) -> str:
        fires = self.threshold.tuned(part.setting).condition
        return f"{part.models}: {'off' if part.setting.enabled is False else fires}"


@dataclass(frozen=True, slots=True)
class Share(Signal):
    """A part of a whole that is not zero."""

    part: Metric
    whole: Metric

    def expr(self, part: Reader, whole: Reader | None = None) -> str:
        return f"{part(self.part)} / ({(whole or part)(self.whole)} > 0)"


@dataclass(frozen=True, slots=True)
class Level(Signal):
    """A value as it is reported, or the seconds since a moment."""

    metric: Metric
    is_moment: bool = False

    def expr(self, read: Reader) -> str:
        return f"time() - {read(self.metric)}" if self.is_moment else read(self.metric)


@dataclass(frozen=True, slots=True)
class Tail(Signal):
    """A quantile of a histogram in its own unit."""

    metric: Metric
    level: float

    def expr(self, buckets: Reader) -> str:
        """Return the quantile; `buckets` gives rates with their le."""
        return f"histogram_quantile({number(self.level)}, {buckets(self.metric)})"


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
KV_CACHE = Level(
    "LlmKvCacheNearFull",
    AlertThreshold(
        0.95,
        "share",
        "share of the KV cache in use while requests wait",
        "The engine is meant to fill its cache; only with requests waiting, and no block free for the longest of "
        "them, is it too small.",
    ),
    llm.KV_CACHE,
)
FIRST_TOKEN = Tail(
    "LlmFirstTokenSlow",
    AlertThreshold(
        2,
        "seconds",
        "95th percentile of the time to the first token",
        "In a dialogue a pause of one to two seconds is noticed, and a longer one interrupts it. Long prompts or "
        "offline work need a larger value: set it to what your users were promised.",
    ),
    llm.FIRST_TOKEN,
    0.95,
)
OUTPUT_TOKEN = Tail(
    "LlmOutputTokenSlow",
    AlertThreshold(
        0.2,
        "seconds",
        "95th percentile of the time for each further token",
        "People read about 250 words a minute, which is some five to six tokens a second: from 200 ms a token on "
        "they wait for the text.",
    ),
    llm.INTER_TOKEN,
    0.95,
)
GPU_DATA_AGE = Level(
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
EXPORTER_AGE = Level(
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
UNDELIVERED_AGE = Level(
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
