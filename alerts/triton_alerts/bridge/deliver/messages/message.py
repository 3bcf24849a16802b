"""Slack messages of incidents, which answer the first five questions of the person on call.

What is affected, since when and how urgent, the cause, the first step, who acknowledged it. Pure functions:
the same incident and time give the same message. https://docs.slack.dev/reference/block-kit/blocks
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from triton_alerts.bridge import text
from triton_alerts.bridge.deliver.messages.blocks import (
    Block,
    Message,
    button,
    field,
    header,
    mrkdwn,
    plain_text,
    section,
)
from triton_alerts.bridge.deliver.messages.incident_links import Style, links
from triton_alerts.bridge.deliver.messages.incident_text import (
    DOT,
    WORD,
    headline,
    person,
    summary_of,
    what_happened,
)
from triton_alerts.bridge.evidence import causes
from triton_alerts.bridge.incidents.incident import (
    FACTS_WHILE_OPEN,
    WIDE_FACTS,
    Event,
    Incident,
    subject_text,
    worded,
)
from triton_alerts.bridge.incidents.notification import Member
from triton_alerts.bridge.text import (
    code,
    code_block,
    link,
    plain,
    prose,
    slack_hour,
    slack_time,
    utc_time,
)
from triton_exporter.common.duration import in_words
from triton_exporter.common.printable import listed
from triton_slo.causes import cause_words
from triton_slo.names import GROUPING, SLO

UNTIL_RESOLVED = "resolved"
"""Value of the silence that is renewed for as long as the incident lasts."""
DIGEST_LINES = 40
"""Incidents one digest names: 40 lines of 200 characters stay under Slack's limit of all blocks together."""
_LOG = logging.getLogger(__name__)
_MAX_LISTED = 5
_MAX_ALERT_NAMES = 10
"""In the footer of a message."""
_MAX_FIELDS = 10  # of a section; Slack refuses a message with more


def root(incident: Incident, style: Style, now: float, ticket: str = "") -> Message:
    """Return the incident's message in a channel.

    `ticket` is the address of its thread in the tickets' channel.
    """
    title, state = headline(incident), _state_line(incident, now)
    if ticket:
        state += f" · {link(ticket, 'earlier ticket')}"
    facts = [field(name, value) for name, value in _fact_pairs(incident)]
    blocks: list[Block] = [
        header(title),
        section(state),
        *([{"type": "section", "fields": facts}] if facts else []),
        *_why_blocks(incident),
        *_first_step(incident),
        *_actions(incident, style),
        {"type": "context", "elements": [mrkdwn(_footer(incident))]},
    ]
    return Message(f"{prose(title, 1000)} · {state}", tuple(blocks))


def reply(
    incident: Incident,
    events: Sequence[Event],
    missed: int = 0,
    *,
    mention: str = "",
    others: int | None = None,
) -> Message:
    """Return what changed, for the thread; `missed` older changes are only counted.

    `mention` is Slack markup for who is called when a ticket becomes a page.
    `others` is how many other incidents are open.
    """
    listing = f"tritonwatch incidents show {incident.name}"
    lines = [f"_{missed} earlier changes are not shown; to list them, run {listing}_"] if missed else []
    lines += [_event_line(incident, event, mention, others) for event in events]
    body = "\n".join(lines) or "No change."
    if text.units(body) <= text.MAX_SECTION_LENGTH:
        return Message(body, (section(body),))
    # Never cut inside an entity or a link: whole lines only, a section each.
    return Message(lines[-1], tuple(section(line) for line in lines))


def digest(incidents: Sequence[Incident], total: int, firing: int, now: float, *, threads: bool) -> Message:
    """Return one message about many incidents, for when they arrive faster than Slack accepts messages."""
    head = f"📋 {total} incidents: {firing} firing, {total - firing} resolved"
    note = (
        "These incidents were reported faster than Slack accepts messages, or while Slack was unreachable. "
    )
    note += (
        "The thread lists every incident. The most urgent incidents have their own message; when one "
        "of them resolves, the next incident gets its own message."
        if threads
        else "Next, each incident that is still firing gets its own message, the most urgent first."
    )
    blocks: list[Block] = [
        header(head),
        {"type": "context", "elements": [mrkdwn(note)]},
    ]
    return Message(head, (*blocks, *_digest_lines(incidents, now)))


def digest_part(incidents: Sequence[Incident], now: float) -> Message:
    """Return the message in the thread of a digest that names some of its incidents."""
    still = sum(1 for incident in incidents if incident.open)
    head = f"📋 {len(incidents)} incidents: {still} firing, {len(incidents) - still} resolved"
    return Message(head, tuple(_digest_lines(incidents, now)))


def refused(incident: Incident) -> Message:
    """Return what is posted in place of a message that Slack refuses: nothing that its alerts say."""
    severity, name = incident.severity, incident.name
    return Message(
        f"{DOT[severity]} {WORD[severity]}: Slack refuses the message about incident {name}. To read it, run "
        f"tritonwatch incidents show {name}"
    )


def _digest_lines(incidents: Sequence[Incident], now: float) -> list[Block]:
    lines = [_digest_line(incident, now) for incident in incidents[:DIGEST_LINES]]
    return [section("\n".join(lines[start : start + 10])) for start in range(0, len(lines), 10)]


def escalation(incident: Incident, mention: str, after: float, permalink: str, now: float) -> Message:
    """Return the escalation of a page: a mention while nobody has acknowledged it, otherwise its current state.

    `mention` is Slack markup from the configuration.
    """
    where = f" ({link(permalink, 'thread')})" if permalink else ""
    is_page = incident.open and incident.severity == "critical"
    calls = is_page and incident.acknowledged is None and incident.escalated_at is not None
    fires = "firing since" if incident.open else "fired"
    lines = [
        f"{mention} *Nobody has acknowledged" if calls else "*Nobody had acknowledged",
        f" this page for {in_words(after)}*{where}\n",
        f"{prose(headline(incident), 500)}\n",
        f"{fires} {slack_time(incident.since)}, incident `{incident.name}`",
    ]
    body = "".join(lines).strip()
    if incident.open and not is_page:
        state = "as a ticket" if incident.severity == "warning" else f"as {WORD[incident.severity]}"
        body += f"\nThe page has resolved; the incident continues {state}"
    elif incident.acknowledged is not None:
        body += f"\n{next(_acknowledged(incident))}"
    return Message(body, (section(body),))


def _state_line(incident: Incident, now: float) -> str:
    """Return start time, severity and acknowledgement in one line."""
    parts = [_since(incident, now), WORD[incident.severity], *_acknowledged(incident)]
    ended = len(incident.members) - len(incident.firing)
    if incident.open and ended:
        parts.append(f"{len(incident.firing)} firing, {ended} resolved")
    return " · ".join(parts)


def _fact_pairs(incident: Incident) -> list[tuple[str, str]]:
    places = dict.fromkeys(_where(member) for member in incident.firing or incident.members.values())
    # The alert about a model on all servers adds nothing to the one about the model on a server.
    exact = [place for place in places if not any(other.startswith(f"{place} ") for other in places)]
    facts = [("Affected", _listed(exact))]
    others = dict.fromkeys(summary_of(member) for member in incident.firing if member is not incident.lead)
    others.pop(summary_of(incident.lead), None)
    if others:
        facts.append(("Also firing", _listed([prose(other, 200) for other in others])))
    if ended := _ended(incident):
        facts.append(("Resolved", _listed(ended)))
    narrow = ((name, value) for name, value in _shown_facts(incident).items() if name not in WIDE_FACTS)
    facts += [(prose(name, 60), prose(value, 300)) for name, value in narrow]
    if len(facts) > _MAX_FIELDS:
        names = ", ".join(name for name, _ in facts[_MAX_FIELDS:])
        _LOG.warning(
            "incident %s: not shown in Slack, which takes %d fields: %s", incident.name, _MAX_FIELDS, names
        )
    return facts[:_MAX_FIELDS]


def _ended(incident: Incident) -> list[str]:
    """Return the alerts that ended while others fire, the last first.

    Tiers of an objective that still fires are left out.
    """
    if not incident.open:
        return []
    firing = {_alert_identity(member) for member in incident.firing}
    ended = [member for member in incident.members.values() if _alert_identity(member) not in firing]
    lines = [
        f"{prose(summary_of(member), 200)}, {slack_hour(member.ends_at or 0.0)}"
        for member in sorted(ended, key=lambda member: member.ends_at or 0.0, reverse=True)
    ]
    return list(dict.fromkeys(lines))


def _alert_identity(member: Member) -> tuple[str, ...]:
    return tuple(member.labels.get(name, "") for name in ("alertname", SLO, *GROUPING, "instance"))


def _listed(lines: Sequence[str]) -> str:
    more = len(lines) - _MAX_LISTED
    return "\n".join([*lines[:_MAX_LISTED], *([f"and {more} more"] if more > 0 else [])])


def _where(member: Member) -> str:
    labels = member.labels
    name = code(labels["model"], 120) if labels.get("model") else code(subject_text(labels), 120)
    if labels.get("model") and labels.get("version"):
        name += f" version {code(labels['version'], 40)}"
    if labels.get("instance") and subject_text(labels) != labels["instance"]:
        name += f" on {code(labels['instance'], 120)}"
    return name


def _since(incident: Incident, now: float) -> str:
    if incident.open:
        return f"since {slack_time(incident.since)} ({in_words(now - incident.since)})"
    end = incident.ended_at
    return f"{slack_time(incident.since)} to {slack_hour(end)}: *{in_words(end - incident.since)}*"


def _acknowledged(incident: Incident) -> Iterator[str]:
    silence = incident.silence
    if incident.acknowledged is not None:
        yield f"acknowledged by {person(incident.acknowledged.by)} at {slack_hour(incident.acknowledged.at)}"
    elif not incident.open:
        yield "not acknowledged"
    elif not incident.silenced:
        yield "*not acknowledged*" + (", escalated" if incident.escalated_at is not None else "")
    if silence is not None:
        until = "resolved" if silence.until_resolved else slack_time(silence.until)
        covered = sum(map(silence.covers, incident.firing))
        what = "" if incident.silenced else f"{covered} of {len(incident.firing)} alerts "
        yield f"{what}silenced by {person(silence.by)} until {until}"


def _why_blocks(incident: Incident) -> list[Block]:
    lead = incident.lead
    # The thread reports how it ended; what caused it stays worth reading.
    description = lead.annotations.get("description", "") if incident.open else ""
    blocks = [section(f"*Description*\n{prose(description, 1200)}")] if description else []
    cause = causes.cause(incident, lead)
    if cause:
        blocks.append(section(f"*Cause*\n{prose(cause_words(cause), 600)}"))
    reasons = incident.source_facts.reasons
    limit = 2600 // max(1, min(len(reasons), 3))
    for name, reason in list(reasons.items())[:3]:
        blocks.append(section(f"*Error message* for {code(name)}\n{code_block(reason, limit)}"))
    facts = _shown_facts(incident)
    return blocks + [section(f"*{name}*\n{prose(facts[name], 900)}") for name in WIDE_FACTS if name in facts]


def _shown_facts(incident: Incident) -> dict[str, str]:
    return {
        name: value for name, value in incident.facts.items() if incident.open or name not in FACTS_WHILE_OPEN
    }


def _first_step(incident: Incident) -> list[Block]:
    step = causes.first_step(incident, incident.lead)
    return [section(f"*First step*\n{prose(step, 800)}")] if step and incident.open else []


def _actions(incident: Incident, style: Style) -> list[Block]:
    elements = _buttons(incident) if style.buttons and incident.open else []
    lead = incident.lead
    for label, url in links(incident, lead, style):
        if text.safe_url(url):
            elements.append(
                {
                    "type": "button",
                    "text": plain_text(label),
                    "url": url,
                    "action_id": f"open_{label.lower()}",
                }
            )
    return (
        [{"type": "actions", "block_id": f"incident:{incident.name}", "elements": elements}]
        if elements
        else []
    )


def _buttons(incident: Incident) -> list[Block]:
    acknowledged = incident.acknowledged is not None
    acknowledge = button(
        "Remove acknowledgement" if acknowledged else "Acknowledge",
        "release" if acknowledged else "acknowledge",
    )
    if not acknowledged:
        acknowledge["style"] = "primary"
    if incident.silence is not None:
        silence: Block = button("Undo silence", "unsilence")
    else:
        silence = {
            "type": "static_select",
            "action_id": "silence",
            "placeholder": plain_text("Silence"),
            "confirm": {
                "title": plain_text("Silence these alerts?"),
                "text": {
                    "type": "plain_text",
                    "text": plain(f"Matchers: {worded(incident.matchers)}", text.MAX_CONFIRM_LENGTH),
                },
                "confirm": plain_text("Silence"),
                "deny": plain_text("Cancel"),
            },
            "options": [
                {"text": plain_text(label), "value": value}
                for label, value in (
                    ("for 1 hour", "1h"),
                    ("for 4 hours", "4h"),
                    ("until resolved", UNTIL_RESOLVED),
                )
            ],
        }
    return [acknowledge, silence, button("Check again", "recheck")]


def _footer(incident: Incident) -> str:
    names = dict.fromkeys(member.labels.get("alertname", "?") for member in incident.members.values())
    # An incident that ended before its message could be posted names its alerts nowhere else.
    parts = [listed([code(name, 80) for name in names], _MAX_ALERT_NAMES), f"incident `{incident.name}`"]
    if incident.recurrence:
        parts.append(f"{_ordinal(incident.recurrence + 1)} incident of this model or server in 24 h")
    if owners := {
        member.labels["owner"] for member in incident.members.values() if member.labels.get("owner")
    }:
        parts.append(f"owner {prose(', '.join(sorted(owners)[:3]), 100)}")
    return " · ".join(parts)


def _event_line(incident: Incident, event: Event, mention: str, others: int | None) -> str:
    return f"{slack_time(event.at)}  {what_happened(incident, event, mention, others)}"


def _digest_line(incident: Incident, now: float) -> str:
    line = f"{prose(headline(incident), 120)} (`{incident.name}`), "
    if incident.open:
        return line + f"since {slack_time(incident.since)}"
    return line + f"{utc_time(incident.since)}, for {in_words(incident.ended_at - incident.since)}"


def _ordinal(number: int) -> str:
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"
