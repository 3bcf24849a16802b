"""Language models: first token, tokens between, last token, and goodput, from the series that every engine has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Literal, Self

from pydantic import model_validator

from triton_exporter.catalogue import Metric, llm, models
from triton_exporter.common.duration import parse_seconds, time_text
from triton_slo.fields import Threshold
from triton_slo.indicators.histograms import (
    WRONG_SETTINGS,
    TimedIndicator,
    by_bucket,
    in_buckets,
    no_bucket,
    no_histogram,
)
from triton_slo.indicators.indicator import FieldFinding, Indicator, Measure, Scope, WrongSetting
from triton_slo.promql import le_matcher

BURN_ALERT = "TritonTokensBudgetBurn"
_STEPS = (
    "Check whether requests wait for the engine, whether its KV cache is full, and whether prompts or answers "
    "became longer."
)
_VLLM_BOUNDS: Mapping[Metric, tuple[float, ...]] = {
    llm.FIRST_TOKEN: (
        *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    ),
    llm.INTER_TOKEN: (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5),
    llm.E2E: (1.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
}
"""https://github.com/triton-inference-server/vllm_backend/blob/main/src/utils/metrics.py: nobody can
change them, and those of vLLM and trtllm-serve themselves contain them."""


def _between_bounds(metric: Metric, threshold: float, field: str) -> Iterator[FieldFinding]:
    bounds = _VLLM_BOUNDS[metric]
    if threshold not in bounds:
        near = [time_text(bound) for bound in sorted(bounds, key=lambda bound: abs(bound - threshold))[:2]]
        reason = f"threshold {time_text(threshold)} is between the buckets of vLLM's histogram"
        yield field, reason, f"use {' or '.join(near)}, unless the engine has this bound"


def _wrong_settings(metric: Metric, threshold: float, scope: Scope) -> tuple[WrongSetting, ...]:
    """Return what leaves a language model without numbers: the engine's histogram, its bounds, or Prometheus."""
    exported = f"({metric.count}{scope.matchers} or {metric}{scope.matchers})"
    signs = (
        scope.present(llm.REQUESTS),
        scope.present(llm.GENERATION_TOKENS),
        scope.present(models.INFO, 'backend=~"vllm|tensorrtllm"'),
    )
    speaks = f"({' or '.join(signs)})"
    name = "no_request_means" if metric is llm.REQUEST_INTER_TOKEN else "no_token_times"
    lacking = WrongSetting(name, f"({speaks} unless {scope.on} {exported}) == 1", *WRONG_SETTINGS[name])
    return (
        no_bucket(metric, threshold, scope),
        no_histogram(metric, scope.present(metric), scope),
        lacking,
    )


class TokenIndicator(TimedIndicator):
    """A time of a language model that its engine counts in a histogram."""

    histogram: ClassVar[Metric]
    burn_alert: ClassVar = BURN_ALERT
    cause_split: ClassVar = ""
    first_step: ClassVar = _STEPS
    steps_by_cause: ClassVar = {}

    def measure(self, threshold: float | None, scope: Scope) -> Measure:
        """Count events over the threshold."""
        assert threshold is not None
        presence = scope.present(self.histogram.bucket, le_matcher(threshold))
        return Measure(
            *in_buckets(self.histogram, threshold, scope),
            ((presence, "histogram"),),
            _wrong_settings(self.histogram, threshold, scope),
        )

    def buckets(self, scope: Scope) -> tuple[str, float]:
        """Return PromQL for the buckets, which are in seconds."""
        return by_bucket(scope).present(self.histogram.bucket), 1.0

    def notes(self, thresholds: Sequence[float]) -> Iterator[FieldFinding]:
        """Yield notes on thresholds that Triton's vLLM backend has no bucket for."""
        for threshold in thresholds:
            yield from _between_bounds(self.histogram, threshold, "indicator.threshold")


class FirstToken(TokenIndicator):
    """Share of requests whose first token came within the threshold."""

    kind: Literal["first_token"] = "first_token"
    histogram: ClassVar = llm.FIRST_TOKEN
    share_words: ClassVar = "of first tokens within"
    failed_words: ClassVar = "requests waited over {} for their first token"
    failing_words: ClassVar = "first tokens take over {}"


class InterToken(TokenIndicator):
    """Share of tokens after the first that came within the threshold of the one before."""

    kind: Literal["inter_token"] = "inter_token"
    histogram: ClassVar = llm.INTER_TOKEN
    default_seconds: ClassVar[float] = 0.1
    share_words: ClassVar = "of further tokens within"
    failed_words: ClassVar = "tokens came over {} after the one before"
    failing_words: ClassVar = "tokens take over {}"


class EndToEnd(TokenIndicator):
    """Share of requests whose last token came within the threshold."""

    kind: Literal["end_to_end"] = "end_to_end"
    histogram: ClassVar = llm.E2E
    default_seconds: ClassVar[float] = 30.0
    share_words: ClassVar = "of answers complete within"
    failed_words: ClassVar = "answers took over {}"
    failing_words: ClassVar = "answers take over {}"


class Goodput(Indicator):
    """Share of requests that meet all limits: at least so many, since histograms do not say which request missed.

    A request that misses two limits counts twice; a page waits until the largest of the misses alone burns.
    """

    kind: Literal["goodput"] = "goodput"
    first_token: Threshold | None = None
    inter_token: Threshold | None = None
    """Of a request: the mean of its times between tokens."""
    end_to_end: Threshold | None = None
    burn_alert: ClassVar = BURN_ALERT
    share_words: ClassVar = "of requests, at least, within all limits"
    failed_words: ClassVar = "requests, at most, missed {}"
    failing_words: ClassVar = "requests, at most, miss a limit"
    first_step: ClassVar = f"See which of the limits is missed most. {_STEPS}"
    default_target: ClassVar[str] = "95%"

    @property
    def _limits(self) -> dict[str, tuple[Metric, str]]:
        """Histogram and threshold by field, in the order in which a request passes them."""
        given = {
            "first_token": (llm.FIRST_TOKEN, self.first_token),
            "inter_token": (llm.REQUEST_INTER_TOKEN, self.inter_token),
            "end_to_end": (llm.E2E, self.end_to_end),
        }
        return {name: (metric, text) for name, (metric, text) in given.items() if text is not None}

    @model_validator(mode="after")
    def _joins_limits(self) -> Self:
        if len(self._limits) < 2:
            raise ValueError(
                "goodput joins two or three of first_token, inter_token and end_to_end; one alone is a kind"
            )
        return self

    @property
    def threshold_text(self) -> str:
        return ", ".join(f"{name} {text}" for name, (_, text) in self._limits.items())

    def measure(self, threshold: float | None, scope: Scope) -> Measure:
        """Count misses of each limit, and requests that ended."""
        limits = [(metric, parse_seconds(text)) for metric, text in self._limits.values()]
        missed = "\n+ ".join(f"({in_buckets(metric, edge, scope)[0]})" for metric, edge in limits)
        last = limits[-1][0]
        presence = scope.present(last.bucket, le_matcher(limits[-1][1]))

        def doubt(window: str) -> str:
            """Return the share that counts twice at most: all misses but those of the limit most missed."""
            rates = [
                f"({scope.rate(metric.count, window)} - {scope.rate(metric.bucket, window, le_matcher(edge))})"
                for metric, edge in limits
            ]
            marked = "\nor ".join(
                f'label_replace({rate}, "limit", "{index}", "", "")' for index, rate in enumerate(rates)
            )
            requests = f"({scope.rate(last.count, window)} > 0)"
            return f"(\n  {' + '.join(rates)}\n  - max {scope.by} (\n{marked}\n)\n) / {requests}"

        return Measure(
            missed,
            f"{scope.series(last.count)}\n+ 0 * ({missed})",
            ((presence, "histogram"),),
            tuple(setting for metric, edge in limits for setting in _wrong_settings(metric, edge, scope)),
            stated_error=doubt,
            comment="A request that missed two limits counts twice: so many missed one at most.",
        )

    def notes(self, thresholds: Sequence[float]) -> Iterator[FieldFinding]:
        """Yield notes on limits that Triton's vLLM backend has no bucket for."""
        for name, (metric, text) in self._limits.items():
            if metric in _VLLM_BOUNDS:
                yield from _between_bounds(metric, parse_seconds(text), f"indicator.{name}")
