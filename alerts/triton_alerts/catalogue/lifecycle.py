"""Is each model and each server there, and fit to serve?"""

from __future__ import annotations

from triton_alerts.alert import Alert, Lookup
from triton_exporter.catalogue import state

_LOAD_REASON = Lookup(
    f"sum by (reason) ({state.MODEL_LOAD_FAILURES}{{instance=%q,model=%q}}) > 0",
    ("instance", "model"),
    "reason",
)

ALERTS = (
    Alert(
        name="TritonModelLoadFailed",
        # The counter sees attempts, also those a retry hides; the state sees a failure that was there
        # before the exporter, whose counter was born too late to increase.
        expr=f"""\
sum without (reason) (increase({state.MODEL_LOAD_FAILURES}[15m])) > 0
or
max without (version, state) ({state.MODEL_STATE}{{state="unavailable"}}) == 1""",
        severity="warning",
        component="lifecycle",
        labels=("instance", "model"),
        keep="5m",
        summary="Model {{ $labels.model }} failed to load on {{ $labels.instance }}",
        description="Triton tried to load model {{ $labels.model }} on {{ $labels.instance }} within the "
        "last [15m] and could not. A version that was serving before may still serve; a version that never "
        "loaded does not.",
        cause_from=_LOAD_REASON,
        silence="model, during a planned rollout of that model",
    ),
    Alert(
        name="TritonModelNotReadyProlonged",
        # The exporter's timestamp spans the retries (UNAVAILABLE, LOADING, UNAVAILABLE) that would reset a
        # `for` on the state for ever.
        expr=f"time() - {state.MODEL_NOT_READY_SINCE} > 10m",
        severity="critical",
        component="lifecycle",
        labels=("instance", "model", "version"),
        keep="5m",
        summary="Model {{ $labels.model }} version {{ $labels.version }} has not been ready for "
        "{{ $value | humanizeDuration }} on {{ $labels.instance }}",
        description="Model {{ $labels.model }} version {{ $labels.version }} should serve on "
        "{{ $labels.instance }} and has not been ready for {{ $value | humanizeDuration }}. Requests for it "
        "fail there.",
        cause_from=_LOAD_REASON,
        silence="instance and model, during planned work on that model",
    ),
    Alert(
        name="TritonServerDown",
        expr=f"{state.SERVER_LIVE} == 0 and on (instance) {state.UP} == 0",
        severity="critical",
        component="lifecycle",
        labels=("instance",),
        hold="1m",
        keep="1m",
        dashboard="fleet",
        summary="Triton behind {{ $labels.instance }} is down",
        description="Neither the API nor the metrics port of the Triton server behind {{ $labels.instance }} "
        "answers. It serves no model: the process is gone, or it is still loading models at start-up.",
        silence="instance, during a planned restart",
    ),
    Alert(
        name="TritonServerNotLive",
        expr=f"{state.SERVER_LIVE} == 0 and on (instance) {state.UP} == 1",
        severity="critical",
        component="lifecycle",
        labels=("instance",),
        hold="2m",
        keep="1m",
        dashboard="fleet",
        summary="Triton behind {{ $labels.instance }} exposes metrics but does not serve",
        description="The metrics port of the Triton server behind {{ $labels.instance }} answers while its "
        "API is not live: it is draining, stuck in shutdown, or its API port is closed to the exporter.",
        silence="instance, during a planned shutdown",
    ),
)
