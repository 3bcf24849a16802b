"""Errors: requests that failed for a reason that counts, of all that were not cancelled."""

from __future__ import annotations

from triton_exporter.catalogue import triton
from triton_slo import objective as model
from triton_slo.indicators.measure import Events, Measure, Scope
from triton_slo.promql import quote, regex_of


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

    present = scope.present(triton.REQUEST_SUCCESS)
    return Measure(presence=present, counted=counted, stuck=True, sources=((present, "counters"),))
