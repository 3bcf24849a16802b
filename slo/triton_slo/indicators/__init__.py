"""One module for each kind of indicator; each knows its best source and what it falls back to."""

from __future__ import annotations

from typing import assert_never

from triton_slo.indicators import custom, durations, errors, probing, readiness
from triton_slo.indicators.measure import Events, Measure, Scope
from triton_slo.objective import model as model

__all__ = ["Events", "Measure", "Scope", "measure"]


def measure(indicator: model.Indicator, threshold: float | None, scope: Scope) -> Measure:
    """Say how to measure an indicator, with its threshold in seconds where it has one."""
    match indicator:
        case model.Readiness():
            return readiness.measure(scope)
        case model.Errors():
            return errors.measure(indicator, scope)
        case model.Custom():
            return custom.measure(indicator, scope)
        case model.Latency():
            assert threshold is not None
            return durations.latency(indicator, threshold, scope)
        case model.Queue():
            assert threshold is not None
            return durations.queue(indicator, threshold, scope)
        case model.FirstResponse():
            assert threshold is not None
            return durations.first_response(indicator, threshold, scope)
        case model.Probe():
            return probing.measure(scope)
        case _:
            assert_never(indicator)
