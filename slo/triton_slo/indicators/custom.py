"""Custom: the user's own PromQL, summed by group; `{{window}}` becomes each recorded window."""

from __future__ import annotations

from triton_slo.indicators.measure import Events, Measure, Scope
from triton_slo.objective import model as model
from triton_slo.sources import CLIENTS


def measure(indicator: model.Custom, scope: Scope) -> Measure:
    """Good or failed events over all events, or a ratio in which every second weighs the same."""

    def summed(query: str, window: str) -> str:
        return f"sum {scope.by} (\n{query.strip().replace(model.WINDOW, window)}\n)"

    def counted(window: str) -> Events:
        if indicator.error_ratio is not None:
            ratio = f"avg {scope.by} (\n{indicator.error_ratio.strip().replace(model.WINDOW, window)}\n)"
            # A ratio of nothing is NaN, and NaN is equal to nothing: such a second is no event.
            return Events(error=f"({ratio}) >= 0", total=f"(({ratio}) >= 0) * 0 + 1")
        assert indicator.total is not None
        total = summed(indicator.total, window)
        if indicator.errors is not None:
            failed = f"({summed(indicator.errors, window)} or {scope.on} 0 * {total})"
            return Events(error=f"{failed} and {scope.on} {total} >= 0", total=f"{total} >= 0")
        assert indicator.good is not None
        good = f"({summed(indicator.good, window)} or {scope.on} 0 * {total})"
        return Events(error=f"clamp_min({total} - {scope.on} {good}, 0) >= 0", total=f"{total} >= 0")

    presence = f"group {scope.by} (\n{counted(scope.slice_window).total}\n)"
    source = CLIENTS if indicator.counts_failures else "custom"
    exact = indicator.error_ratio is None
    return Measure(presence=presence, counted=counted, exact=exact, sources=((presence, source),))
