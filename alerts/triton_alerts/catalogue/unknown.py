"""What nobody can know: a model that should have been served, and that no server reports now. Once for all
objectives."""

from __future__ import annotations

from triton_alerts.alert import Alert
from triton_exporter.catalogue import state
from triton_slo import names

INTERVAL = "4m"
"""Time between two evaluations of the family: it is about minutes without data."""
COPIED = f"max by (cluster, instance, model) ({state.MODEL_EXPECTED})"
"""What is recorded for it."""

ALERTS = (
    Alert(
        name=names.UNKNOWN_ALERT,
        component="slo",
        # A server that reports other models has dropped it on purpose.
        expr=f"""\
group by (cluster, model) (
  last_over_time({names.MODEL_EXPECTED_COPY}[1d]) == 1
  unless on (cluster, instance) {names.MODEL_EXPECTED_COPY}
) unless on (cluster, model) {names.MODEL_EXPECTED_COPY}""",
        severity="critical",
        labels=("model",),
        for_="10m",
        keep_firing_for="5m",
        summary="No server reports model {{ $labels.model }} any more: whether it is served is unknown",
        description="Its servers or their exporters are gone. The model should be served. Its objectives have no data, and "
        "their alerts cannot fire.",
        action="Check that the model's servers respond and that Prometheus scrapes their exporters.",
        silence="model, while it is moved or removed on purpose; it is forgotten a day after its servers",
    ),
)
