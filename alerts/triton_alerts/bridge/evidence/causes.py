"""The cause and the first step: from the alert's annotations, else from Triton's own reason.

An alert that fires at the exporter's first poll does not know its cause yet; Triton's reason is there already.
"""

from __future__ import annotations

import re

from triton_alerts.bridge.incidents.incident import Incident
from triton_alerts.bridge.incidents.notification import Member
from triton_alerts.catalogue import ALERTS
from triton_exporter.lifecycle.reasons import NOT_LISTED, classify
from triton_slo.burn.causes import cause_words, named_in
from triton_slo.indicators import KINDS, Readiness
from triton_slo.names import INDICATOR

UNKNOWN = "not known"
_MISSING = re.compile(
    r"(?:No such file or directory: |unable to find |failed to (?:open|stat) file )'?([\w./-]*[\w-])"
)
_STEPS: dict[str, dict[str, str]] = {alert.name: dict(alert.steps) for alert in ALERTS if alert.steps}
_STEPS[Readiness.burn_alert] = _STEPS["TritonModelNotReadyProlonged"]


def cause(incident: Incident, lead: Member) -> str:
    """The alert's own cause; for a model that is not ready else the class of Triton's reason; else nothing."""
    known = lead.annotations.get("cause", "")
    if known not in ("", UNKNOWN):
        return known
    return _class_of_reason(incident, lead) if lead.labels.get("alertname") in _STEPS else ""


def brief(incident: Incident, lead: Member) -> str:
    """Return the cause in a few words, for a title: the missing file by its name, else the class of the cause."""
    name = cause(incident, lead)
    files = {match[1] for text in _reasons(incident, lead) if (match := _MISSING.search(text))}
    if name == "missing_file" and len(files) == 1:
        return f"{files.pop().rpartition('/')[2]} is missing"
    return cause_words(name)


def largest(incident: Incident, lead: Member) -> str:
    """Return the cause in words, for a list: else the largest part of the split in the message; or nothing."""
    return cause_words(cause(incident, lead)) or incident.findings.largest_cause or _named(incident, lead)


def _named(incident: Incident, lead: Member) -> str:
    """Return what the alert's text names, else what the exporter sees."""
    named = named_in(lead.annotations.get("description", ""))
    return named or ("missing" if NOT_LISTED in _reasons(incident, lead) else "")


def first_step(incident: Incident, lead: Member) -> str:
    """The alert's own first step, or that for the cause which Prometheus or Triton's reason shows."""
    own = lead.annotations.get("action", "")
    kind = KINDS.get(lead.labels.get(INDICATOR, ""))
    if kind is not None and own.endswith(kind.all_steps()):
        step = incident.findings.first_step or kind.step_for_words(_named(incident, lead))
        own = own.removesuffix(kind.all_steps()) + step
    steps = _STEPS.get(lead.labels.get("alertname", ""), {})
    if lead.annotations.get("cause", "") in steps:
        return own
    return steps.get(_class_of_reason(incident, lead), own)


def _class_of_reason(incident: Incident, lead: Member) -> str:
    classes = {classify(text) for text in _reasons(incident, lead)} - {"other"}
    return classes.pop() if len(classes) == 1 else ""


def _reasons(incident: Incident, lead: Member) -> list[str]:
    """Return Triton's own words about the model of an alert."""
    model = lead.labels.get("model", "")
    reasons = incident.findings.reasons if model else {}
    return [text for name, text in reasons.items() if name == model or name.startswith(f"{model} v")]
