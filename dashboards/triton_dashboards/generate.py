"""Generation of dashboards, and of the recording rules that they read."""

from __future__ import annotations

from collections.abc import Sequence

from triton_dashboards.boards import fleet, gpu, model, on_call, server, slo
from triton_dashboards.grafana import dashboard_text
from triton_dashboards.recording import rules_text
from triton_dashboards.values import Dashboard
from triton_slo.artifact import Artifact, Options


def artifacts(objectives: Sequence[object], options: Options) -> tuple[Artifact, ...]:
    """Make the dashboards for objectives, and their recording rules."""
    return (
        *(
            Artifact("dashboards", f"{board.uid}.json", dashboard_text(board))
            for board in dashboards(options)
        ),
        Artifact("rules", "triton-dashboards.rules.yml", rules_text(options)),
    )


def dashboards(options: Options) -> tuple[Dashboard, ...]:
    """Return the dashboards that serve any fleet."""
    return tuple(board.dashboard(options) for board in (fleet, model, slo, gpu, server, on_call))
