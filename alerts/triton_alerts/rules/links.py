"""Links from an alert to its runbook page and its dashboard: one pass, so that no alert can lack one."""

from __future__ import annotations

from triton_alerts.alert import Alert
from triton_slo.artifact import Options

_DASHBOARDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "server": ("triton-server", ("instance",)),
    "model": ("triton-model", ("instance", "model", "version")),
    "gpu": ("triton-gpu", ("instance", "gpu_uuid")),
    "on_call": ("triton-on-call", ("model",)),
}
"""Dashboard -> its uid in Grafana (triton_dashboards.shared names them; siblings do not import each other, a
test compares) and the template variables it takes."""


def runbook_url(alert: str, options: Options) -> str:
    """Return the runbook page of an alert."""
    return options.runbook_url.format(alert=alert)


def dashboard_url(alert: Alert, options: Options) -> str:
    """Return the dashboard as an annotation template: its variables are filled from the alert's labels.

    Without a base address it is a path, to be opened under the Grafana one has.
    """
    uid, variables = _DASHBOARDS[alert.dashboard]
    query = "&".join(
        f"var-{label}={{{{ $labels.{label} | urlquery }}}}" for label in variables if label in alert.labels
    )
    return f"{options.dashboard_url.rstrip('/')}/d/{uid}" + (f"?{query}" if query else "")
