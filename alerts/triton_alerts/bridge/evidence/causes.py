"""The cause and the first step: from the alert's annotations, else from Triton's own reason.

An alert that fires at the exporter's first poll does not know its cause yet; Triton's reason is there already.
"""

from __future__ import annotations

import re

from triton_alerts.bridge.incidents.incident import FIRST_STEP, Incident
from triton_alerts.bridge.incidents.notification import Member
from triton_alerts.catalogue import ALERTS
from triton_exporter.lifecycle.reasons import classify
from triton_slo.indicators import KINDS, Readiness
from triton_slo.names import INDICATOR

UNKNOWN = "not known"
_STEPS: dict[str, dict[str, str]] = {alert.name: dict(alert.steps) for alert in ALERTS if alert.steps}
_STEPS[Readiness.burn_alert] = _STEPS["TritonModelNotReadyProlonged"]


def cause(incident: Incident, lead: Member) -> str:
    """The alert's own cause; for a model that is not ready else the class of Triton's reason; else nothing."""
    known = lead.annotations.get("cause", "")
    if known not in ("", UNKNOWN):
        return known
    return _class_of_reason(incident, lead) if lead.labels.get("alertname") in _STEPS else ""


def worded(name: str) -> str:
    """Return a cause's name for people: `state:unavailable` is unavailable, `compute_infer` compute infer."""
    return re.sub(r"\b(?:state|failure):", "", name).replace("_", " ")


def first_step(incident: Incident, lead: Member) -> str:
    """The alert's own first step, or that for the cause which Prometheus or Triton's reason shows."""
    own = lead.annotations.get("action", "")
    kind = KINDS.get(lead.labels.get(INDICATOR, ""))
    if kind is not None and own == kind.all_steps() and incident.evidence is not None:
        own = dict(incident.evidence.facts).get(FIRST_STEP, own)
    steps = _STEPS.get(lead.labels.get("alertname", ""), {})
    if lead.annotations.get("cause", "") in steps:
        return own
    return steps.get(_class_of_reason(incident, lead), own)


def _class_of_reason(incident: Incident, lead: Member) -> str:
    model = lead.labels.get("model", "")
    reasons = incident.evidence.reasons if model and incident.evidence is not None else {}
    about = [text for name, text in reasons.items() if name == model or name.startswith(f"{model} v")]
    classes = {classify(text) for text in about} - {"other"}
    return classes.pop() if len(classes) == 1 else ""
