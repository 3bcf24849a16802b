"""Errors: requests that failed for a reason that counts, of all that were not cancelled.

Triton asks the backend whether a request succeeded. The Python backend, and with it vLLM and every Python-based
backend, reports a failure only where `execute` raises: an error response counts as a success (server#7713; on 2.51
10 of 10 did). An ensemble fails when a part answers with an error (2.51). Whether other backends
than those listed below report failures is unknown, so they count as hiding them. docs/exporter.md#what-triton-cannot-count has the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Literal, Self

from pydantic import model_validator

from triton_exporter.catalogue import models, triton
from triton_slo.fields import Names
from triton_slo.indicators.gateways import GatewayIndicator, GatewayName
from triton_slo.indicators.indicator import FieldFinding, Indicator, Measure, Scope, failures, shares
from triton_slo.indicators.queue import QUEUE_FULL, full_queue, full_queue_counter, untraced
from triton_slo.promql import Matchers, quote, regex_of
from triton_slo.sources import BACKEND_COUNTERS, CLIENTS, COUNTERS, UNTRACED_QUEUE

FAILURE_REASONS = ("REJECTED", "BACKEND", "OTHER")
"""Failure reasons that count by default: all of Triton's but CANCELED, which is the client's doing."""
CANCELED = "CANCELED"
ALL_REASONS = (*FAILURE_REASONS, CANCELED)
"""All values of the label `reason` of Triton's failure counter."""
_CHOICES = ", ".join((*ALL_REASONS, QUEUE_FULL))
_REPORT_FAILURES = "dali|onnxruntime|openvino|pytorch|tensorflow|tensorrt"
"""Backends that report each request without a good response as failed, by their sources of 2026."""


class Errors(GatewayIndicator):
    """Share of requests that did not fail for a reason that counts."""

    kind: Literal["errors"] = "errors"
    source: Literal["triton", GatewayName] = "triton"
    reasons: Names = FAILURE_REASONS
    burn_alert: ClassVar = "TritonErrorsBudgetBurn"
    share_words: ClassVar = "of requests without an error"
    failing_words: ClassVar = "requests fail"
    cause_split: ClassVar = "errors"
    first_step: ClassVar = (
        "Read the model's errors in Triton's log; if they began with a new version, roll it back."
    )
    steps_by_cause: ClassVar = {
        "failure:REJECTED": "Requests wait longer than the queue's timeout: add instances or replicas, or reduce the "
        "request rate of the clients.",
        "failure:BACKEND": "The model's own code fails: read its errors in Triton's log; if they began with a "
        "new version, roll it back.",
    }

    @model_validator(mode="after")
    def _check_reasons(self) -> Self:
        if not self.reasons:
            raise ValueError(f"reasons is empty, so no failure would count; list some of {_CHOICES}")
        if self.gateway is not None and "reasons" in self.model_fields_set:
            raise ValueError(
                f"reasons are Triton's, and {self.source} has codes; write for example codes: [5xx, 429]"
            )
        return self

    def measure(self, threshold: float | None, scope: Scope) -> Measure:
        """Measure failures of the chosen reasons over successes and those failures.

        A server before 24.07 has no label `reason`: its failures count, whatever they were.
        """
        if self.gateway is not None:
            requests = self.at_gateway(scope).answered
            counted = requests.counted(requests.gateway.counted)
            presence = requests.present(requests.gateway.counted)
            return Measure(requests.with_zero(requests.failed, counted), counted, ((presence, CLIENTS),))
        reasons = f"reason=~{quote(regex_of((*self._counted_by_triton, '')))}"
        success = scope.series(triton.REQUEST_SUCCESS)
        failed = scope.series(triton.REQUEST_FAILURE, reasons)
        if "OTHER" in self.reasons:
            # The configuration would tell an ensemble, but may be unknown for a while: a counter that then doubles, and
            # later halves, is worse than half of the few failures of other models that are OTHER.
            # https://github.com/triton-inference-server/core/blob/main/src/ensemble_scheduler/ensemble_scheduler.cc
            other = scope.series(triton.REQUEST_FAILURE, 'reason="OTHER"')
            failed = f"{other} / 2 or {failed}"
        sees_full = QUEUE_FULL in self.reasons
        if sees_full:
            failed += f" or {full_queue_counter(scope)}"
        # A failure without a reason has the labels of the successes; `or` must not take it for one of them.
        apart = f'label_replace({failed}, "outcome", "failure", "", "")'
        return Measure(
            f"sum without (reason) ({failed})\nor 0 * {success}",
            f"sum without (reason, outcome) ({success} or {apart})",
            sources=(
                (_groups_by_backend(scope, "and"), COUNTERS),
                (_groups_by_backend(scope, "unless"), BACKEND_COUNTERS),
                *([(untraced(scope), UNTRACED_QUEUE)] if sees_full else []),
            ),
            comment="The empty reason at the end is that of a Triton before 24.07, which states none; `or 0` is for "
            "servers without a failure. OTHER is a failed request of an ensemble, which Triton counts twice.",
        )

    @property
    def _counted_by_triton(self) -> tuple[str, ...]:
        return tuple(reason for reason in self.reasons if reason != QUEUE_FULL)

    @classmethod
    def causes(cls, selector: Matchers, window: str, used: Sequence[Indicator]) -> Iterator[tuple[str, str]]:
        """Yield why requests failed; a full queue where some objective counts it."""
        failed = failures(triton.REQUEST_FAILURE, selector.also(f'reason!="{CANCELED}"'), "reason", window)
        if any(isinstance(indicator, Errors) and QUEUE_FULL in indicator.reasons for indicator in used):
            failed = f"{failed} or {full_queue(selector, window)}"
        yield "", shares(failed)

    def findings(self, group_by: Sequence[str], chosen: Sequence[str]) -> Iterator[FieldFinding]:
        """Yield reasons that Triton does not know."""
        for reason in self.reasons:
            if reason not in (*ALL_REASONS, QUEUE_FULL):
                yield (
                    "indicator.reasons",
                    f"Triton counts no failure as {reason!r}: it would never be bad",
                    f"write some of {_CHOICES}",
                )


def hiding_models() -> Mapping[str, str]:
    """Return PromQL for the models of which each hiding source may miss failures, by label `model`."""
    scope = Scope(Matchers(), ("model",))
    return {BACKEND_COUNTERS: _groups_by_backend(scope, "unless"), UNTRACED_QUEUE: untraced(scope)}


def _groups_by_backend(scope: Scope, operator: str) -> str:
    """Return groups of models whose backend is known to report failures (`and`), or of the others (`unless`).

    By model alone: an ensemble's traffic is counted under version 1, whatever its version is. A response cache
    stores failed responses, too, and answers with them as successes (measured on 2.51).
    """
    known = " or ".join(
        f"{models.INFO}{scope.models.also(matcher)}"
        for matcher in (f'backend=~"{_REPORT_FAILURES}"', 'platform="ensemble"')
    )
    known = f"({known}) unless on (model) {models.RESPONSE_CACHE}{scope.models} == 1"
    return f"group {scope.by} ({triton.REQUEST_SUCCESS}{scope.matchers} {operator} on (model) ({known}))"
