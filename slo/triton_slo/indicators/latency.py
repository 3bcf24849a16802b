"""Latency: successful requests that took longer than the threshold, in the server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from triton_exporter.catalogue import Metric, gpu, state, triton
from triton_slo import conventions as names
from triton_slo.indicators.durations import HistogramOrSlices
from triton_slo.promql import Matchers, by, on

_TIMES: tuple[tuple[str, Metric], ...] = (
    ("queue", triton.QUEUE_DURATION_US),
    ("compute_input", triton.COMPUTE_INPUT_DURATION_US),
    ("compute_infer", triton.COMPUTE_INFER_DURATION_US),
    ("compute_output", triton.COMPUTE_OUTPUT_DURATION_US),
)
_SLOWING = "sw_power_cap|hw_slowdown|sw_thermal|hw_thermal|hw_power_brake"
"""Throttle reasons that take speed away; idle and app_clocks are normal."""


class Latency(HistogramOrSlices):
    """Share of requests answered within the threshold."""

    kind: Literal["latency"] = "latency"
    burn_alert: ClassVar = "TritonLatencyBudgetBurn"
    default_seconds: ClassVar = 1.0
    """Threshold that is proposed where nothing was measured."""
    histogram: ClassVar = state.REQUEST_DURATION
    sums: ClassVar = triton.REQUEST_DURATION_US
    signal: ClassVar = "request"

    @classmethod
    def exact_with(cls, bucket: str) -> str | None:
        """Triton's own histogram of request times."""
        return f"Triton 26.01 or later: --metrics-config histogram_latencies=true, with a bucket at {bucket}"

    @classmethod
    def causes(cls, selector: Matchers, window: str) -> Iterator[tuple[str, str]]:
        """Where time went; shares need not add up to one, because a GPU is held back while a request computes."""
        for cause, metric in _TIMES:
            yield cause, _share_of_time(metric, selector, window)
        yield "gpu_throttled", _throttled(selector, window)


def _share_of_time(metric: Metric, selector: Matchers, window: str) -> str:
    """Share of the requests' time; a batch counts its time once for each request, so it is capped at 1."""
    part, whole = (
        f"sum {by(names.GROUPING)} (rate({m}{selector}[{window}]))"
        for m in (metric, triton.REQUEST_DURATION_US)
    )
    return f"clamp_max({part} / {on(names.GROUPING)} ({whole} > 0), 1)"


def _throttled(selector: Matchers, window: str) -> str:
    """Return the share of time in which any of the model's GPUs was held back."""
    slowing = selector.also(f'reason=~"{_SLOWING}"')
    held = f"max by (gpu_uuid) (avg_over_time({gpu.THROTTLE_REASON}{slowing}[{window}]))"
    runs_on = f"group by (model, version, gpu_uuid) ({gpu.MODEL_GPU_INFO}{selector})"
    return f"max {by(names.GROUPING)} (\n  {runs_on}\n  * on (gpu_uuid) group_left ()\n  {held}\n)"
