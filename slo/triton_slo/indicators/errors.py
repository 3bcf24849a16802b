"""Errors: requests that failed for a reason that counts, of all that were not cancelled.

Triton asks the backend whether a request succeeded. The Python backend, and with it vLLM and every Python-based
backend, reports a failure only where `execute` raises: an error response counts as a success (server#7713; on 2.51
10 of 10 did). An ensemble fails when a part answers with an error (2.51). Of backends that are not listed below
nobody knows, so they count as hiding failures.
"""

from __future__ import annotations

from triton_exporter.catalogue import model as models
from triton_exporter.catalogue import triton
from triton_slo.indicators.measure import Events, Measure, Scope
from triton_slo.objective import model as model
from triton_slo.promql import Matchers, quote, regex_of
from triton_slo.sources import BACKEND_COUNTERS, COUNTERS

_REPORT_FAILURES = "dali|onnxruntime|openvino|pytorch|tensorflow|tensorrt"
"""Backends that report each request without a good response as failed, by their sources of 2026."""


def measure(indicator: model.Errors, scope: Scope) -> Measure:
    """Failures of the chosen reasons over successes and those failures.

    A server before 24.07 has no label `reason`: its failures count, whatever they were.
    """
    reasons = f"reason=~{quote(regex_of((*indicator.reasons, '')))}"

    def counted(window: str) -> Events:
        success = scope.rate(triton.REQUEST_SUCCESS, window)
        failure = f"({scope.rate(triton.REQUEST_FAILURE, window, reasons)} or {scope.on} 0 * {success})"
        # `and`: failure counters outlive an unloaded model, and would pass for its traffic.
        return Events(error=f"{failure}\nand {scope.on} {success}", total=f"{success} + {scope.on} {failure}")

    return Measure(
        presence=scope.present(triton.REQUEST_SUCCESS),
        counted=counted,
        stuck=True,
        sources=(
            (_models(scope, "and"), COUNTERS),
            (_models(scope, "unless"), BACKEND_COUNTERS),
        ),
    )


def hiding_models() -> str:
    """PromQL for the models whose backend may hide failures, by label `model`."""
    return _models(Scope(Matchers(), ("model",), ""), "unless")


def _models(scope: Scope, operator: str) -> str:
    """Groups of models whose backend is known to report failures (`and`), or of the others (`unless`).

    By model alone: an ensemble's traffic is counted under version 1, whatever its version is.
    """
    known = " or ".join(
        f"{models.INFO}{scope.models.also(matcher)}"
        for matcher in (f'backend=~"{_REPORT_FAILURES}"', 'platform="ensemble"')
    )
    return f"group {scope.by} ({triton.REQUEST_SUCCESS}{scope.matchers} {operator} on (model) ({known}))"
