"""Probe: cheap real inferences that the exporter sends; each fails unless the model answered it."""

from __future__ import annotations

from triton_exporter.catalogue import probe
from triton_slo.indicators.measure import Events, Measure, Scope
from triton_slo.sources import PROBER

_COUNTED = f'result!~"{"|".join(probe.SAYS_NOTHING)}"'
"""A probe whose input the model refuses, or that has never worked, shows nothing about the model."""
_SELDOM = 1 / 60
"""Probes a second, where nobody knows better: one a minute."""
_FAILED = f'result!~"success|{"|".join(probe.SAYS_NOTHING)}"'


def measure(scope: Scope) -> Measure:
    """Probes without success over all probes that the model could have answered."""

    def counted(window: str) -> Events:
        total = scope.rate(probe.REQUESTS, window, _COUNTED)
        failed = f"({scope.rate(probe.REQUESTS, window, _FAILED)} or {scope.on} 0 * {total})"
        return Events(error=failed, total=total)

    def silent(window: str) -> str:
        # The counter that began a window ago: a model that has just appeared has had no time to be probed.
        before = f"group {scope.by} ({probe.REQUESTS}{scope.matchers.also(_COUNTED)} offset {window})"
        told = f"({scope.rate(probe.REQUESTS, window, _COUNTED)} > 0)"
        return f"{present} and {scope.on} {before} unless {scope.on} {told}"

    present = scope.present(probe.REQUESTS, _COUNTED)
    return Measure(
        presence=present, counted=counted, silent=silent, unseen=_SELDOM, sources=((present, PROBER),)
    )
