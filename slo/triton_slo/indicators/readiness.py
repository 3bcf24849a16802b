"""Readiness: each second in which a model version should serve is an event; it fails when not ready.

What should serve: a version that is neither unloaded on purpose nor on its way out, of a model the exporter
calls expected. The first load of a version is a deployment: nothing that served is lost, and a model that takes
minutes to load would page at each of its deployments; a load that fails or is never over has alerts of its own,
and counts once it has failed. A version whose state is `unknown` (Triton cannot be asked) is not known to be
ready: it fails.
"""

from __future__ import annotations

from triton_exporter.catalogue import state
from triton_slo.indicators.measure import Events, Measure, Scope


def measure(scope: Scope) -> Measure:
    """Events per second are servers on which the version should serve."""
    meant = scope.matchers.also('state!~"unloaded|unloading"')
    should_serve = (
        f"{state.MODEL_STATE}{meant} == 1\n"
        f"and on (instance, model) {state.MODEL_EXPECTED}{scope.models} == 1\n"
        f"unless on (instance, model, version) {state.MODEL_FIRST_LOAD}{scope.matchers}"
    )
    total = f"count {scope.by} (\n{should_serve}\n)"
    ready = f"{state.MODEL_READY}{scope.matchers} == 1"
    failed = f"count {scope.by} (\n({should_serve})\nunless on (instance, model, version) {ready}\n)"
    return Measure(
        presence=scope.present(state.MODEL_STATE),
        sampled=Events(error=f"{failed}\nor\n0 * {total}", total=total),
        exact=False,
        unseen=1.0,
        sources=((scope.present(state.MODEL_STATE), "state"),),
    )
