"""Latency: successful requests that took longer than the threshold, in the server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

from triton_exporter.catalogue import Metric, gpu, models, state, triton
from triton_exporter.common.duration import duration_text, time_text
from triton_slo import names
from triton_slo.indicators.gateways import GatewayIndicator, GatewayName
from triton_slo.indicators.histograms import (
    HistogramIndicator,
    by_bucket,
    in_buckets,
    no_bucket,
    share_of_time,
)
from triton_slo.indicators.indicator import FieldFinding, Indicator, Measure, Scope
from triton_slo.promql import Matchers, by, le_matcher, on

_SLOWING = "sw_power_cap|hw_slowdown|sw_thermal|hw_thermal|hw_power_brake"
"""Throttle reasons that take speed away; idle and app_clocks are normal."""


class Latency(HistogramIndicator, GatewayIndicator):
    """Share of requests answered within the threshold."""

    kind: Literal["latency"] = "latency"
    source: Literal["auto", "histogram", GatewayName] = "auto"  # type: ignore[assignment]
    burn_alert: ClassVar = "TritonLatencyBudgetBurn"
    share_words: ClassVar = "of requests within"
    failed_words: ClassVar = "requests took over {}"
    failing_words: ClassVar = "requests take over {}"
    histogram: ClassVar = state.REQUEST_DURATION
    signal: ClassVar = "request"

    def measure(self, threshold: float | None, scope: Scope) -> Measure:
        """Count requests over the threshold, of those that succeeded."""
        if self.gateway is None:
            return super().measure(threshold, scope)
        assert threshold is not None
        requests, edge = self.at_gateway(scope).succeeded, self.gateway.edge(threshold)
        presence = requests.present(self.gateway.durations.bucket, le_matcher(edge))
        return Measure(
            *in_buckets(self.gateway.durations, edge, requests),
            ((presence, "histogram"),),
            (no_bucket(self.gateway.durations, edge, requests),),
        )

    def buckets(self, scope: Scope) -> tuple[str, float]:
        """Return PromQL for the buckets of the exporter or a gateway, and the unit of `le` in seconds."""
        if self.gateway is None:
            return super().buckets(scope)
        requests = self.at_gateway(by_bucket(scope)).succeeded
        return requests.present(self.gateway.durations.bucket), 1 / self.gateway.edge(1.0)

    @property
    def _needed(self) -> str:
        assert self.gateway is not None
        return self.gateway.durations.count

    def notes(self, thresholds: Sequence[float]) -> Iterator[FieldFinding]:
        """Yield notes on thresholds between the default buckets."""
        if self.gateway is None:
            yield from super().notes(thresholds)
            return
        for threshold in thresholds:
            if threshold not in self.gateway.bounds:
                bounds = ", ".join(map(duration_text, _nearest_buckets(threshold, self.gateway.bounds)))
                yield (
                    "indicator.threshold",
                    f"threshold {time_text(threshold)} is between the default buckets of {self.source}",
                    f"use {bounds}, or set its buckets",
                )

    @classmethod
    def exact_with(cls, bucket: str) -> str | None:
        """Return words for Triton's own histogram of request times."""
        return f"Triton 26.01 or later: --metrics-config histogram_latencies=true, with a bucket at {bucket}"

    @classmethod
    def causes(cls, selector: Matchers, window: str, used: Sequence[Indicator]) -> Iterator[tuple[str, str]]:
        """Yield shares of the time by cause; they may add up to over one: a GPU is throttled while it computes."""
        composed = f"on (model) ({models.ENSEMBLE_STEP}{selector} or {state.TRACED_STEP_SECONDS}{selector})"
        for cause, metric in triton.PHASES.items():
            # The compute of a model that calls others is their time: queue and compute of each of them say more.
            whole = "" if cause == "queue" else f"\nunless {composed}"
            yield cause, f"{share_of_time(metric, selector, window)}{whole}"
        yield "", _steps(selector, window)
        yield "gpu_throttled", _throttled(selector, window)


def _nearest_buckets(threshold: float, bounds: Sequence[float]) -> list[float]:
    """Return the buckets below and above."""
    below, above = (
        [bound for bound in bounds if bound < threshold],
        [bound for bound in bounds if bound > threshold],
    )
    return [*([max(below)] if below else []), *([min(above)] if above else [])]


def _steps(selector: Matchers, window: str) -> str:
    """Return `queue of X` and `compute of X` for each model X that a model calls: as traced, else of an ensemble's steps.

    Triton's counters have the mean of all who call a step, so without traces nothing is said of a step that serves
    over 1.02 times the ensemble's requests: a few calls of others can take longer than all of the ensemble's. Servers
    may have different steps while a new version is rolled out. Triton counts an ensemble under version 1.
    """

    def seconds(*labels: str, matcher: str) -> str:
        return f"sum {by(labels)} (rate({state.TRACED_STEP_SECONDS}{selector.also(matcher)}[{window}]))"

    parts = seconds(*names.GROUPING, "part", "step_model", matcher='part!="request"')
    whole = seconds(*names.GROUPING, matcher='part="request"')
    named = f'label_join({parts}, "{names.CAUSE}", " of ", "part", "step_model")'
    each = f"sum {by((*names.GROUPING, names.CAUSE))} ({named})"
    shares = [f"clamp_max({each}\n/ {on(names.GROUPING)} group_left () ({whole} > 0), 1)"]

    def rate(metric: Metric) -> str:
        return f"sum by (model) (rate({metric}{selector}[{window}]))"

    def of_step(expr: str) -> str:
        renamed = f'label_replace({expr}, "step_model", "$1", "model", "(.+)")'
        return f"on (step_model) group_left () sum by (step_model) ({renamed})"

    requests = rate(triton.REQUEST_SUCCESS)
    took, queued = (
        f"({rate(metric)} / ({requests} > 0))"
        for metric in (triton.REQUEST_DURATION_US, triton.QUEUE_DURATION_US)
    )
    steps = f"group by (instance, model, position, step_model) ({models.ENSEMBLE_STEP}{selector})"
    calls = f"max by (model, step_model) (count by (instance, model, step_model) ({steps}))"
    others = f"1.02 * {calls} * on (model) group_left () {requests}\n  < {of_step(requests)}"
    for part, micros in (("queue", queued), ("compute", f"{took} - {queued}")):
        share = (
            f"{calls}\n"
            f"* {of_step(micros)}\n"
            f"/ on (model) group_left () ({took} > 0)\n"
            f"unless on (model) {state.TRACED_STEP_SECONDS}{selector}\n"
            f"unless on (model, step_model) ({others})"
        )
        named = f'label_replace(\n{share},\n"{names.CAUSE}", "{part} of $1", "step_model", "(.+)")'
        shares.append(
            f'label_replace(clamp_max(sum by (model, {names.CAUSE}) ({named}), 1), "version", "1", "", "")'
        )
    return "\nor\n".join(shares)


def _throttled(selector: Matchers, window: str) -> str:
    """Return the share of time in which any of the model's GPUs was throttled."""
    slowing = selector.also(f'reason=~"{_SLOWING}"')
    held = f"max by (gpu_uuid) (avg_over_time({gpu.THROTTLE_REASON}{slowing}[{window}]))"
    runs_on = f"group by (model, version, gpu_uuid) ({gpu.MODEL_GPU_INFO}{selector})"
    return f"max {by(names.GROUPING)} (\n  {runs_on}\n  * on (gpu_uuid) group_left ()\n  {held}\n)"
