"""The highest severity of an incident, and when the incident becomes more urgent."""

from __future__ import annotations

from triton_alerts.bridge.incidents.incident import Incident
from triton_slo.names import SEVERITIES

CALM_SECONDS = 3600.0
"""Time after the last page ended from which a page is a new one: the acknowledgement does not count."""

_RANK = {severity: rank for rank, severity in enumerate(SEVERITIES)}
"""0 for the most urgent severity."""


def becomes_more_urgent(before: Incident, after: Incident, now: float) -> bool:
    """Return whether a higher severity fires than ever before in the incident, or a page fires again.

    A page that fires again counts if nobody has acknowledged the incident, or CALM_SECONDS after the last one.
    """
    peak, severity = _peak(before), after.severity
    if not peak or not after.firing:
        return False
    if severity != peak:
        return _RANK[severity] < _RANK[peak]
    fires_again = before.eased_at is not None and (
        before.acknowledged is None or now - before.eased_at >= CALM_SECONDS
    )
    return fires_again and severity == SEVERITIES[0]


def record_severity(before: Incident, after: Incident, now: float) -> Incident:
    """Return the incident with its highest severity, and since when nothing as urgent fires."""
    peak, severity = _peak(before), after.severity
    if not peak or not after.firing:
        return after.model_copy(update={"peak": peak or severity})
    if _RANK[severity] > _RANK[peak]:
        return after.model_copy(update={"peak": peak, "eased_at": before.eased_at or now})
    after = after.model_copy(update={"peak": severity, "eased_at": None})
    if not becomes_more_urgent(before, after, now):
        return after
    # The acknowledgement was of a less urgent incident, so escalation starts again.
    started_again = {"acknowledged": None, "escalated_at": None, "released_at": now, "raised_at": now}
    return after.model_copy(update=started_again)


def _peak(incident: Incident) -> str:
    """Return the highest severity of an incident so far; empty for one without alerts."""
    return incident.peak or (incident.severity if incident.members else "")
