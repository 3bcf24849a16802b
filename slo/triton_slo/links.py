"""Links to runbooks and to dashboards, which Grafana finds by their uids."""

from __future__ import annotations

from collections.abc import Iterable

from triton_slo.artifact import Options

FLEET, MODEL, SLO, GPU, SERVER, ON_CALL = (
    "triton-fleet",
    "triton-model",
    "triton-slo",
    "triton-gpu",
    "triton-server",
    "triton-on-call",
)
"""Stable uids of the dashboards."""


def runbook_url(options: Options, alert: str) -> str:
    return options.runbook_url.format(alert=alert)


def dashboard_url(base: str, uid: str) -> str:
    """Return a dashboard; without a base address a path, to be opened under the Grafana one has."""
    return f"{base.rstrip('/')}/d/{uid}"


def alert_links(options: Options, alert: str, uid: str, labels: Iterable[str]) -> dict[str, str]:
    """Return the links of an alert: `labels` of it choose what its dashboard shows."""
    query = "&".join(f"var-{label}={{{{ $labels.{label} | urlquery }}}}" for label in labels)
    dashboard = dashboard_url(options.dashboard_url, uid) + (f"?{query}" if query else "")
    return {"runbook_url": runbook_url(options, alert), "dashboard_url": dashboard}
