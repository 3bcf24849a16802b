"""Texts about an incident that Slack messages and the incident list share: title and events."""

from __future__ import annotations

from triton_alerts.bridge.evidence import causes
from triton_alerts.bridge.incidents.incident import (
    BUDGET_LEFT,
    EXPLAINED_BY_LOAD_FAILURE,
    LOAD_FAILED,
    OBJECTIVE,
    Event,
    Incident,
    subject_text,
)
from triton_alerts.bridge.incidents.notification import Member
from triton_alerts.bridge.text import code, prose
from triton_exporter.common.duration import in_words

DOT = {"critical": "🔴", "warning": "🟠", "info": "🔵", "none": "⚪"}
RESOLVED = "🟢"
WORD = {"critical": "page", "warning": "ticket", "info": "information", "none": "watchdog"}


def headline(incident: Incident, *, state: bool = True) -> str:
    """Return what is wrong, in one line, after its state."""
    lead = incident.lead
    title = summary_of(lead)
    if reason := causes.brief(incident, lead):
        title += f": {reason}"
    others = len({thing_of(member) for member in incident.firing or incident.members.values()}) - 1
    if others > 0:
        title += (
            f" (and {others} other models, servers or GPUs)"
            if others > 1
            else " (and one other model, server or GPU)"
        )
    if not state:
        return title
    if not incident.open:
        return f"{RESOLVED} Resolved: {title}"
    dot = DOT[incident.severity]
    if incident.silenced:
        return f"{dot}🔕 {title}"
    return f"{dot}👀 {title}" if incident.acknowledged is not None else f"{dot} {title}"


def person(by: str) -> str:
    """Return a Slack user as a mention, anyone else as text."""
    known = by.isalnum() and by.isascii() and by[:1] in ("U", "W") and by.isupper()
    return f"<@{by}>" if known else prose(by, 80)


def what_happened(incident: Incident, event: Event, mention: str = "", others: int | None = None) -> str:
    """Return what an event changed, without its time."""
    names = _alert_names(event)
    by = person(event.by) if event.by else ""
    tier = f" ({WORD[event.severity]})" if event.severity in ("critical", "warning") else ""
    return {
        "fired": f"also firing{tier}: {names}",
        "resolved": f"{RESOLVED} resolved{tier}: {names}",
        "passed": f"{RESOLVED} fired and resolved before it could be posted{tier}: {names}",
        "closed": _closed_line(incident, event, others),
        "acknowledged": f"👀 {by} acknowledged the incident",
        "silenced": f"🔕 {by} silenced the incident {prose(event.words, 500)}",
        "unsilenced": f"🔔 {prose(event.words, 500)}" + (f" by {by}" if by else ""),
        "escalated": f"📣 escalated: nobody has acknowledged the page for {prose(event.words, 80)}",
        "released": f"👋 {by} removed the acknowledgement",
        "raised": _raised_line(incident, event, by, mention),
        "note": f"{prose(event.words, 600)}" + (f" (requested by {by})" if by else ""),
    }[event.kind]


def _raised_line(incident: Incident, event: Event, by: str, mention: str) -> str:
    word = {"critical": "a page", "warning": "a ticket"}.get(event.severity, prose(event.severity, 80))
    dot, who = DOT.get(event.severity, ""), f" {mention}" if mention else ""
    lines = [f"{dot} *The incident is now {word}*{who}: {_alert_names(event)}".strip()]
    cause = causes.brief(incident, incident.lead)
    if cause and incident.lead.name not in event.alerts:
        lines.append(f"Same cause: {prose(cause, 300)}")
    known = incident.facts
    lines += [f"{name}: {prose(known[name], 300)}" for name in (OBJECTIVE, BUDGET_LEFT) if name in known]
    if by:
        lines.append(f"{by} acknowledged the earlier ticket; nobody has acknowledged this page yet")
    return "\n".join(lines)


def _closed_line(incident: Incident, event: Event, others: int | None) -> str:
    """Return the line about recovery: all alerts have resolved, or the model is ready on all its servers."""
    lasted = in_words(incident.ended_at - incident.since)
    thing = thing_of(incident.lead)
    line = f"{RESOLVED} *Recovered* after {lasted}: " + (
        f"{code(thing, 120)} is ready on all its servers."
        if _serves_again(incident)
        else f"all alerts about {code(thing, 120)} have resolved."
    )
    if others is not None:
        line += f" {others} other incidents are open." if others > 1 else ""
        line += (
            " One other incident is open." if others == 1 else "" if others else " No other incident is open."
        )
    return line


def _serves_again(incident: Incident) -> bool:
    """Return whether a model that was not ready has been seen ready on all servers after the end."""
    evidence = incident.evidence
    if evidence is None or evidence.at < (incident.closed_at or 0.0):
        return False
    was_not_ready = {LOAD_FAILED, *EXPLAINED_BY_LOAD_FAILURE} & {
        member.name for member in incident.members.values()
    }
    return bool(was_not_ready) and evidence.servers_not_ready == 0


def _alert_names(event: Event) -> str:
    """Name alerts by their summaries, else by name and subject; events of older bridges have only subjects."""
    if len(event.summaries) == 1:
        return f"{prose(event.summaries[0], 250)} ({', '.join(prose(name, 80) for name in event.alerts)})"
    if event.summaries:
        more = (
            f"\nand {event.count - len(event.summaries)} more" if event.count > len(event.summaries) else ""
        )
        return "".join(f"\n• {prose(summary, 250)}" for summary in event.summaries) + more
    names = ", ".join(code(name, 50) for name in event.subjects)
    if event.count > len(event.subjects):
        names += f" ({event.count} alerts)"
    return f"{', '.join(prose(name, 80) for name in event.alerts)} for {names}" if event.alerts else names


def summary_of(member: Member) -> str:
    return member.annotations.get("summary") or f"{member.name}: {subject_text(member.labels)}"


def thing_of(member: Member) -> str:
    """Name the model, GPU or server: the versions and servers of a model are not several things."""
    return member.labels.get("model") or subject_text(member.labels)
