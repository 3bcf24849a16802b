"""First response: requests whose first response or token came later than the threshold; from histograms only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

from triton_exporter.catalogue import Metric, models, triton
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
from triton_slo.indicators.tokens import FirstToken
from triton_slo.promql import le_matcher

TRITON_BOUNDS_MS = (100, 500, 2000, 5000)
"""Default buckets of Triton's own first-response histogram."""


def milliseconds(seconds: float) -> float:
    """Return a threshold in the unit of Triton's histogram, without a rounding error."""
    return round(seconds * 1000, 6)


class FirstResponse(TimedIndicator):
    """Share of requests whose first token or response came within the threshold."""

    kind: Literal["first_response"] = "first_response"
    engine: Literal["triton", "vllm"] = "triton"
    """`vllm` is how older files call the kind `first_token`."""
    burn_alert: ClassVar = "TritonFirstResponseBudgetBurn"
    share_words: ClassVar = "of first responses within"
    failed_words: ClassVar = "requests waited over {} for their first response"
    failing_words: ClassVar = "first responses take over {}"

    def measure(self, threshold: float | None, scope: Scope) -> Measure:
        """Measure requests over the threshold."""
        assert threshold is not None
        if self.engine == "vllm":
            return FirstToken(threshold=self.threshold).measure(threshold, scope)
        histogram, edge = triton.FIRST_RESPONSE_MS, milliseconds(threshold)
        presence = scope.present(histogram.bucket, le_matcher(edge))
        # Prometheus stores a converted (native) histogram under the name without a suffix.
        native = no_histogram(histogram, scope.present(histogram), scope)
        wrong_settings = (no_bucket(histogram, edge, scope), native, self._not_exported(histogram, scope))
        return Measure(*in_buckets(histogram, edge, scope), ((presence, "histogram"),), wrong_settings)

    def buckets(self, scope: Scope) -> tuple[str, float]:
        """Return PromQL for the buckets of Triton's histogram or the engine's, and the unit of `le` in seconds."""
        if self.engine == "vllm":
            return FirstToken(threshold=self.threshold).buckets(scope)
        return by_bucket(scope).present(triton.FIRST_RESPONSE_MS.bucket), 1 / 1000

    def _not_exported(self, histogram: Metric, scope: Scope) -> WrongSetting:
        """Return the reason for models without the histogram: those that stream, or all if none has it.

        Triton before 26.01 exports it of decoupled models only, and of others the latency is the same.
        """
        exported = f"({histogram.count}{scope.matchers} or {histogram}{scope.matchers})"
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
