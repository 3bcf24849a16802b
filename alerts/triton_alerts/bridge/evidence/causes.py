"""The cause and the first step: from the evidence, which is Prometheus's counters and Triton's own reason.

An alert that fires at the exporter's first poll has no counted cause yet, but the exporter already has the reason.
"""

from __future__ import annotations

import re

from triton_alerts.bridge.incidents.incident import ABOUT_READINESS, Incident
from triton_alerts.bridge.incidents.notification import Member
from triton_alerts.catalogue import ALERTS
from triton_exporter.lifecycle.load_failures import NOT_LISTED, classify
from triton_slo.amounts import cause_words
from triton_slo.indicators import KINDS, Readiness
from triton_slo.names import INDICATOR
from triton_slo.rules import action

_MISSING = re.compile(
    r"(?:No such file or directory: |unable to find |failed to (?:open|stat) file )'?([\w./-]*[\w-])"
)
_RAISED = re.compile(r"\b\w+(?:Error|Exception): .{1,80}")
"""The exception of a Python model, in one line."""
_EXECUTING = re.compile(r"[(][0-9]+[)]: execute\b")
"""The place of an exception that a request met, in Triton's words."""
UNLOADED = "unloaded at "
"""How a cause begins that is no failure: somebody unloaded the model."""
_STEPS: dict[str, dict[str, str]] = {alert.name: dict(alert.steps) for alert in ALERTS if alert.steps}
_STEPS[Readiness.burn_alert] = _STEPS["TritonModelNotReadyProlonged"]


def cause(incident: Incident, lead: Member) -> str:
    """Return the cause: that in the alert, what Prometheus knows, or the class of Triton's reason; else nothing."""
    if incident.source_facts.dead_server:
        return "state:unknown"  # whatever its model raised or lacked before
    known = incident.source_facts.cause or lead.annotations.get("cause", "")
    return known or (_class_of_reason(incident, lead) if lead.name in _STEPS else "")


def brief(incident: Incident, lead: Member) -> str:
    """Return the cause in a few words, for a title: the missing file by its name, the exception, else its class."""
    if incident.source_facts.dead_server:
        return ""  # the title says it
    name = cause(incident, lead)
    files = {match[1] for text in reasons(incident, lead) if (match := _MISSING.search(text))}
    if name == "missing_file" and len(files) == 1:
        return f"{files.pop().rpartition('/')[2]} is missing"
    raised = {match[0] for text in reasons(incident, lead) if (match := _RAISED.search(text))}
    if name == "python_error" and len(raised) == 1:
        return raised.pop()
    return cause_words(name)


def largest(incident: Incident, lead: Member) -> str:
    """Return the cause in words, for a list: the single cause, else the largest one, else nothing."""
    listed = next(iter(_not_listed(incident, lead)), "")
    return cause_words(cause(incident, lead) or incident.source_facts.largest_cause or listed)


def first_step(incident: Incident, lead: Member) -> str:
    """Return the step for the cause that Prometheus, the alert or Triton's reason names, else the alert's own.

    There is none once the fault is over.
    """
    if incident.is_over:
        return ""
    if incident.source_facts.dead_server:
        return Readiness.step_for("state:unknown")
    if cause(incident, lead).startswith(UNLOADED):
        return "Load it again; then find out who unloaded it, and why."
    own, alert = lead.annotations.get("action", ""), lead.labels.get("alertname", "")
    kind = KINDS.get(lead.labels.get(INDICATOR, ""))
    if kind is not None and own == action(alert, kind.all_steps()):
        own = action(alert, incident.source_facts.first_step or kind.step_for(*_not_listed(incident, lead)))
    steps = _STEPS.get(alert, {})
    return steps.get(cause(incident, lead)) or steps.get(_class_of_reason(incident, lead), own)


def _not_listed(incident: Incident, lead: Member) -> tuple[str, ...]:
    """Return the cause that the exporter sees where Triton does not list a model."""
    return ("state:missing",) if NOT_LISTED in reasons(incident, lead) else ()


def _class_of_reason(incident: Incident, lead: Member) -> str:
    classes = {classify(text) for text in reasons(incident, lead)} - {"other"}
    return classes.pop() if len(classes) == 1 else ""


def reasons(incident: Incident, member: Member) -> list[str]:
    """Return Triton's own words about the model of an alert, of whichever version and server.

    An exception of a request is no reason why a model is not ready.
    """
    model = member.labels.get("model", "")
    known = incident.source_facts.reasons if model else {}
    return [
        text
        for name, text in known.items()
        if name == model or name.startswith((f"{model} v", f"{model} on "))
        if member.name not in ABOUT_READINESS or not _EXECUTING.search(text)
    ]
