"""An incident as the JSON that other systems get: docs/on-call.md describes its fields."""

from __future__ import annotations

from typing import Any

from triton_alerts.bridge import text
from triton_alerts.bridge.deliver.messages.incident_links import Style, links
from triton_alerts.bridge.evidence import causes
from triton_alerts.bridge.incidents.incident import Incident
from triton_alerts.bridge.incidents.notification import Member
from triton_exporter.common.moments import rfc3339

SCHEMA = "tritonwatch/incident/1"
MAX_ALERTS = 100


def document(incident: Incident, style: Style) -> dict[str, Any]:
    """Return the incident's lead, cause, evidence, links and acknowledgement."""
    lead = incident.lead
    acknowledged = incident.acknowledged
    return {
        "schema": SCHEMA,
        "incident": incident.name,
        "status": "firing" if incident.open else "resolved",
        "severity": incident.severity,
        "title": lead.annotations.get("summary") or lead.labels.get("alertname", "Alert"),
        "since": moment(incident.since),
        "resolved_at": None if incident.open else moment(incident.ended_at),
        "lead": _alert_json(lead),
        "cause": causes.largest(incident, lead),
        "first_step": causes.first_step(incident, lead) if incident.open else "",
        "errors": dict(incident.source_facts.reasons),
        "evidence": incident.facts,
        "alerts": [_alert_json(member) for member in list(incident.members.values())[:MAX_ALERTS]],
        "alerts_total": len(incident.members),
        "acknowledged": (
            {"by": acknowledged.by, "at": moment(acknowledged.at)} if acknowledged is not None else None
        ),
        "silenced_until": moment(incident.silence.until) if incident.silence is not None else None,
        "links": {label.lower(): url for label, url in links(incident, lead, style) if text.safe_url(url)},
    }


def _alert_json(member: Member) -> dict[str, Any]:
    return {
        "status": "firing" if member.firing else "resolved",
        "labels": member.labels,
        "description": member.annotations.get("description", ""),
        "since": moment(member.starts_at),
        "resolved_at": moment(member.ends_at),
    }


def moment(at: float | None) -> str | None:
    """Return a moment in RFC 3339."""
    return rfc3339(at) if at is not None else None
