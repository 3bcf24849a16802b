"""First response: requests whose first response or token came later than the threshold; from histograms only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

from triton_exporter.catalogue import Metric, llm, models, triton
from triton_exporter.common.duration import time_text
from triton_slo.indicators.histograms import (
    WRONG_SETTINGS,
    TimedIndicator,
    by_bucket,
    in_buckets,
    no_bucket,
    no_histogram,
)
from triton_slo.indicators.indicator import FieldFinding, Measure, Scope, WrongSetting
from triton_slo.promql import le_matcher

TRITON_BOUNDS_MS = (100, 500, 2000, 5000)
"""Default buckets of Triton's own first-response histogram."""
_ON_VLLM = 'backend="vllm"'


class FirstResponse(TimedIndicator):
    """Share of requests whose first token or response came within the threshold."""

    kind: Literal["first_response"] = "first_response"
    engine: Literal["triton", "vllm"] = "triton"
    burn_alert: ClassVar = "TritonFirstResponseBudgetBurn"
    share_words: ClassVar = "of first responses within"
    failed_words: ClassVar = "requests waited over {} for their first response"
    failing_words: ClassVar = "first responses take over {}"

    def edge(self, threshold: float) -> tuple[Metric, float]:
        """Return the histogram, and the threshold in its unit: Triton counts milliseconds, vLLM seconds."""
        if self.engine == "vllm":
            return llm.FIRST_TOKEN, threshold
        return triton.FIRST_RESPONSE_MS, round(threshold * 1000, 6)

    def measure(self, threshold: float | None, scope: Scope) -> Measure:
        """Measure requests over the threshold."""
        assert threshold is not None
        histogram, edge = self.edge(threshold)
        presence = scope.present(histogram.bucket, le_matcher(edge))
        # Prometheus stores a converted (native) histogram under the name without a suffix.
        native = no_histogram(histogram, scope.present(histogram), scope)
        wrong_settings = (no_bucket(histogram, edge, scope), native, self._not_exported(histogram, scope))
        return Measure(*in_buckets(histogram, edge, scope), ((presence, "histogram"),), wrong_settings)

    def buckets(self, scope: Scope) -> tuple[str, float]:
        """Return PromQL for the buckets of Triton's or of vLLM's histogram, and the unit of `le` in seconds."""
        histogram, second = self.edge(1.0)
        return by_bucket(scope).present(histogram.bucket), 1 / second

    def _not_exported(self, histogram: Metric, scope: Scope) -> WrongSetting:
        """Return the reason for models without the histogram: vLLM's, Triton's that stream, or all if none has it.

        Triton before 26.01 exports it of decoupled models only, and of others the latency is the same.
        """
        exported = f"({histogram.count}{scope.matchers} or {histogram}{scope.matchers})"
        if self.engine == "vllm":
            lacking = f"{scope.present(models.INFO, _ON_VLLM)} unless {scope.on} {exported}"
            return WrongSetting("no_first_token", f"({lacking}) == 1", *WRONG_SETTINGS["no_first_token"])
        lacking = f"{scope.present(triton.REQUEST_SUCCESS)} unless {scope.on} {exported}"
        expr = (
            f"(\n  {lacking} unless on () {exported}\n"
            f"  or {lacking} and on (model) ({models.DECOUPLED}{scope.models} == 1)\n) == 1"
        )
        return WrongSetting("no_first_response", expr, *WRONG_SETTINGS["no_first_response"])

    def notes(self, thresholds: Sequence[float]) -> Iterator[FieldFinding]:
        """Yield notes on thresholds between Triton's default buckets."""
        for threshold in thresholds:
            if self.engine == "triton" and threshold * 1000 not in TRITON_BOUNDS_MS:
                bounds = ", ".join(map(str, TRITON_BOUNDS_MS))
                reason = f"threshold {time_text(threshold)} is between Triton's default buckets ({bounds} ms)"
                fix = f"set buckets for {triton.FIRST_RESPONSE_MS} in the model's model_metrics"
                yield "indicator.threshold", reason, fix
