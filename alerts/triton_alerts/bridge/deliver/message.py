"""Slack messages of incidents, which answer the first five questions of the person on call.

What is broken, since when and how badly, why, what to do first, who has it. Pure: same incident and time,
same message. https://docs.slack.dev/reference/block-kit/blocks
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from triton_alerts.bridge import text
from triton_alerts.bridge.evidence import causes
from triton_alerts.bridge.incidents.incident import (
    BUDGET_LEFT,
    FIRST_STEP,
    GPU,
    LAST_CHANGE,
    LOAD_FAILED,
    NOT_READY,
    OBJECTIVE,
    SERVERS,
    SPLIT,
    Event,
    Incident,
    subject,
)
from triton_alerts.bridge.incidents.matchers import Matcher, worded
from triton_alerts.bridge.incidents.notification import Member, subject_labels
from triton_alerts.bridge.text import (
    clock,
    code,
    code_block,
    link,
    plain,
    prose,
    slack_hour,
    slack_time,
)
from triton_exporter.duration import in_words
from triton_exporter.family import escape
from triton_exporter.printable import listed
from triton_slo.burn.causes import cause_words
from triton_slo.names import GROUPING, SLO

UNTIL_RESOLVED = "resolved"
"""Value of the silence that is renewed for as long as the incident lasts."""
Block = dict[str, Any]

DOT = {"critical": "🔴", "warning": "🟠", "info": "🔵", "none": "⚪"}
RESOLVED = "🟢"
DIGEST_LINES = 40
"""Incidents one digest names: 40 lines of 200 characters stay under Slack's limit of all blocks together."""

_LOG = logging.getLogger(__name__)
_SHOWN = 5
_ALERTS = 10
"""Names of alerts in the footer."""
_MOST_FIELDS = 10  # of a section; Slack refuses a message with more
_WIDE = (LAST_CHANGE, GPU)
"""Facts of several long lines: below the others, over the whole width."""
WORD = {"critical": "page", "warning": "ticket", "info": "for information", "none": "watchdog"}


@dataclass(frozen=True, slots=True)
class Message:
    """`text` is what notifications and screen readers get, `blocks` what the channel shows."""

    text: str
    blocks: tuple[Block, ...] = ()


@dataclass(frozen=True, slots=True)
class Style:
    """What this bridge offers: buttons need Socket Mode; `grafana` completes relative dashboard addresses."""

    buttons: bool = False
    grafana: str = ""


def root(incident: Incident, style: Style, now: float, ticket: str = "") -> Message:
    """Return the incident's message in a channel; `ticket` is the address of its thread in the tickets' channel."""
    title, state = headline(incident), _state(incident, now)
    if ticket:
        state += f" · {link(ticket, 'the ticket')}"
    facts = [_field(name, value) for name, value in _facts(incident)]
    blocks: list[Block] = [
        header(title),
        section(state),
        *([{"type": "section", "fields": facts}] if facts else []),
        *_why(incident),
        *_first_step(incident),
        *_actions(incident, style),
        {"type": "context", "elements": [_mrkdwn(_footer(incident))]},
    ]
    return Message(f"{prose(title, 1000)} · {state}", tuple(blocks))


def bare(message: Message) -> Message:
    """Return the message without blocks, for when Slack refuses them."""
    return Message(message.text)


def headline(incident: Incident, *, state: bool = True) -> str:
    """Return what is wrong, in one line, after its state."""
    lead = incident.lead
    title = _summary(lead)
    if reason := causes.brief(incident, lead):
        title += f": {reason}"
    others = len({_thing(member) for member in incident.firing or incident.members.values()}) - 1
    if others > 0:
        title += f" and {others} more"
    if not state:
        return title
    if not incident.open:
        return f"{RESOLVED} Resolved: {title}"
    dot = DOT[incident.severity]
    if incident.silenced:
        return f"{dot}🔕 {title}"
    return f"{dot}👀 {title}" if incident.acknowledged is not None else f"{dot} {title}"


def reply(
    incident: Incident,
    events: Sequence[Event],
    missed: int = 0,
    *,
    mention: str = "",
    others: int | None = None,
) -> Message:
    """Return what changed, for the thread; `missed` older changes are only counted.

    `mention` is Slack markup for who is called when a ticket becomes a page, `others` how many incidents are open
    beside this one.
    """
    lines = [f"_{missed} earlier changes are not listed_"] if missed else []
    lines += [_event_line(incident, event, mention, others) for event in events]
    body = "\n".join(lines) or "No change."
    if len(body) <= text.SECTION:
        return Message(body, (section(body),))
    # Never cut inside an entity or a link: whole lines only, a section each.
    return Message(lines[-1], tuple(section(line) for line in lines))


def digest(incidents: Sequence[Incident], total: int, firing: int, now: float, *, threads: bool) -> Message:
    """Many incidents in one message, when they come faster than Slack takes messages; some of them are named."""
    head = f"📋 {total} incidents: {firing} firing, {total - firing} already resolved"
    note = "They arrived faster than Slack accepts messages, or while Slack was unreachable. "
    note += (
        "The thread names each of them. The most urgent ones have a message of their own, the next one when one of "
        "these has ended."
        if threads
        else "Each incident that is still firing gets its own message next, most urgent first."
    )
    blocks: list[Block] = [
        header(head),
        {"type": "context", "elements": [_mrkdwn(note)]},
    ]
    return Message(head, (*blocks, *_digest_lines(incidents, now)))


def digest_part(incidents: Sequence[Incident], now: float) -> Message:
    """Name incidents in the thread of a digest."""
    still = sum(1 for incident in incidents if incident.open)
    head = f"📋 {len(incidents)} incidents: {still} firing, {len(incidents) - still} resolved"
    return Message(head, tuple(_digest_lines(incidents, now)))


def _digest_lines(incidents: Sequence[Incident], now: float) -> list[Block]:
    lines = [_digest_line(incident, now) for incident in incidents[:DIGEST_LINES]]
    return [section("\n".join(lines[start : start + 10])) for start in range(0, len(lines), 10)]


def escalation(incident: Incident, mention: str, after: float, permalink: str, now: float) -> Message:
    """Call for help while nobody has acknowledged a page; show what became of it when that has changed.

    `mention` is Slack markup from the configuration.
    """
    where = f" ({link(permalink, 'thread')})" if permalink else ""
    is_page = incident.open and incident.severity == "critical"
    calls = is_page and incident.acknowledged is None and incident.escalated_at is not None
    fires = "firing since" if incident.open else "fired"
    lines = [
        f"{mention} *Nobody has acknowledged" if calls else "*Nobody had acknowledged",
        f" this for {in_words(after)}*{where}\n",
        f"{prose(headline(incident), 500)}\n",
        f"{fires} {slack_time(incident.since)}, incident `{incident.name}`",
    ]
    body = "".join(lines).strip()
    if incident.open and not is_page:
        state = "as a ticket" if incident.severity == "warning" else WORD[incident.severity]
        body += f"\nThe page has ended; the incident continues {state}"
    elif incident.acknowledged is not None:
        body += f"\n{next(_acknowledged(incident))}"
    return Message(body, (section(body),))


def _summary(member: Member) -> str:
    return member.annotations.get("summary") or f"{member.name}: {subject(member.labels)}"


def _thing(member: Member) -> str:
    """Name the model, GPU or server: the versions and servers of a model are not several things."""
    return member.labels.get("model") or subject(member.labels)


def _state(incident: Incident, now: float) -> str:
    """Since when, how urgent, and who has it, in one line."""
    parts = [_since(incident, now), WORD[incident.severity], *_acknowledged(incident)]
    ended = len(incident.members) - len(incident.firing)
    if incident.open and ended:
        parts.append(f"{len(incident.firing)} firing, {ended} resolved")
    return " · ".join(parts)


def _facts(incident: Incident) -> list[tuple[str, str]]:
    places = dict.fromkeys(_where(member) for member in incident.firing or incident.members.values())
    # The alert about a model on all servers adds nothing to the one about the model on a server.
    exact = [place for place in places if not any(other.startswith(f"{place} ") for other in places)]
    facts = [("Affected", _listed(exact))]
    others = dict.fromkeys(_summary(member) for member in incident.firing if member is not incident.lead)
    others.pop(_summary(incident.lead), None)
    if others:
        facts.append(("Also firing", _listed([prose(other, 200) for other in others])))
    if ended := _ended(incident):
        facts.append(("Ended", _listed(ended)))
    # Where the model is ready now is not part of an incident that has ended.
    left_out = (*_WIDE, FIRST_STEP) if incident.open else (*_WIDE, FIRST_STEP, SERVERS)
    known = [(name, value) for name, value in _evidence(incident) if name not in left_out]
    facts += [(prose(name, 60), prose(value, 300)) for name, value in known]
    if len(facts) > _MOST_FIELDS:
        names = ", ".join(name for name, _ in facts[_MOST_FIELDS:])
        _LOG.warning(
            "incident %s: not shown in Slack, which takes %d fields: %s", incident.name, _MOST_FIELDS, names
        )
    return facts[:_MOST_FIELDS]


def _ended(incident: Incident) -> list[str]:
    """Return what has ended while others fire, the last first; not the tiers of an objective that still fires."""
    if not incident.open:
        return []
    firing = {_identity(member) for member in incident.firing}
    ended = [member for member in incident.members.values() if _identity(member) not in firing]
    lines = [
        f"{prose(_summary(member), 200)}, {slack_hour(member.ends_at or 0.0)}"
        for member in sorted(ended, key=lambda member: member.ends_at or 0.0, reverse=True)
    ]
    return list(dict.fromkeys(lines))


def _identity(member: Member) -> tuple[str, ...]:
    return tuple(member.labels.get(name, "") for name in ("alertname", SLO, *GROUPING, "instance"))


def _listed(lines: Sequence[str]) -> str:
    return "\n".join(lines[:_SHOWN]) + (f"\nand {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else "")


def _evidence(incident: Incident) -> tuple[tuple[str, str], ...]:
    return incident.evidence.facts if incident.evidence else ()


def _where(member: Member) -> str:
    labels = member.labels
    name = code(labels["model"], 120) if labels.get("model") else code(subject(labels), 120)
    if labels.get("model") and labels.get("version"):
        name += f" version {code(labels['version'], 40)}"
    if labels.get("instance") and subject(labels) != labels["instance"]:
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
        has = "has it" if incident.open else "had it"
        yield f"{person(incident.acknowledged.by)} {has} since {slack_hour(incident.acknowledged.at)}"
    elif not incident.open:
        yield "nobody acknowledged"
    elif not incident.silenced:
        yield "*nobody has acknowledged*" + (", escalated" if incident.escalated_at is not None else "")
    if silence is not None:
        until = "resolved" if silence.until_resolved else slack_time(silence.until)
        covered = sum(map(silence.covers, incident.firing))
        what = "" if incident.silenced else f"{covered} of {len(incident.firing)} alerts "
        yield f"{what}silenced by {person(silence.by)} until {until}"


def person(by: str) -> str:
    """Return a Slack user as a mention, anyone else as text."""
    known = by.isalnum() and by.isascii() and by[:1] in ("U", "W") and by.isupper()
    return f"<@{by}>" if known else prose(by, 80)


def _why(incident: Incident) -> list[Block]:
    lead = incident.lead
    # The thread reports how it ended; what caused it stays worth reading.
    description = lead.annotations.get("description", "") if incident.open else ""
    lines = [prose(description, 1200)] if description else []
    cause = causes.cause(incident, lead)
    if cause and SPLIT not in dict(_evidence(incident)):  # the split shows the same, and is newer
        lines.append(f"Cause: {prose(cause_words(cause), 600)}")
    blocks = [section("*Why*\n" + "\n".join(lines))] if lines else []
    reasons = incident.evidence.reasons if incident.evidence else {}
    limit = 2600 // max(1, min(len(reasons), 3))
    for name, reason in list(reasons.items())[:3]:
        blocks.append(section(f"*Reason* for {code(name)}\n{code_block(reason, limit)}"))
    known = dict(_evidence(incident))
    # The state of a GPU now is not part of an incident that has ended.
    wide = [name for name in _WIDE if name in known and (incident.open or name != GPU)]
    return blocks + [section(f"*{name}*\n{prose(known[name], 900)}") for name in wide]


def _first_step(incident: Incident) -> list[Block]:
    step = causes.first_step(incident, incident.lead)
    return [section(f"*First step*\n{prose(step, 800)}")] if step and incident.open else []


def _actions(incident: Incident, style: Style) -> list[Block]:
    elements = _buttons(incident) if style.buttons and incident.open else []
    lead = incident.lead
    for label, url in links(incident, lead, style):
        if text.safe_url(url):
            elements.append(
                {"type": "button", "text": _plain(label), "url": url, "action_id": f"open_{label.lower()}"}
            )
    return (
        [{"type": "actions", "block_id": f"incident:{incident.name}", "elements": elements}]
        if elements
        else []
    )


def _buttons(incident: Incident) -> list[Block]:
    acknowledged = incident.acknowledged is not None
    acknowledge = _button(
        "Un-acknowledge" if acknowledged else "Acknowledge", "release" if acknowledged else "acknowledge"
    )
    if not acknowledged:
        acknowledge["style"] = "primary"
    if incident.silence is not None:
        silence: Block = _button("Undo silence", "unsilence")
    else:
        silence = {
            "type": "static_select",
            "action_id": "silence",
            "placeholder": _plain("Silence"),
            "confirm": {
                "title": _plain("Silence these alerts?"),
                "text": {
                    "type": "plain_text",
                    "text": plain(worded(incident.matchers), text.CONFIRM),
                },
                "confirm": _plain("Silence"),
                "deny": _plain("Cancel"),
            },
            "options": [
                {"text": _plain(label), "value": value}
                for label, value in (
                    ("for 1 hour", "1h"),
                    ("for 4 hours", "4h"),
                    ("until resolved", UNTIL_RESOLVED),
                )
            ],
        }
    return [acknowledge, silence, _button("Check again", "recheck")]


def links(incident: Incident, lead: Member, style: Style) -> list[tuple[str, str]]:
    """Return the pages that help, with their names; an address may be empty or unsafe."""
    dashboard = lead.annotations.get("dashboard_url", "")
    if dashboard.startswith("/"):
        dashboard = f"{style.grafana.rstrip('/')}{dashboard}"
    if text.safe_url(dashboard):
        end = incident.closed_at
        wanted = {"var_model": lead.labels.get("model", ""), "from": str(int((incident.since - 1800) * 1000))}
        wanted["to"] = str(int((end + 900) * 1000)) if end is not None else "now"
        dashboard = text.with_query(dashboard, **{name: value for name, value in wanted.items() if value})
    labelled = [("Runbook", lead.annotations.get("runbook_url", "")), ("Dashboard", dashboard)]
    labelled.append(("Query", _query(lead)))
    if incident.open and incident.external_url:
        about = subject_labels(lead.labels) or incident.group_labels
        group = (Matcher(name=name, values=frozenset({value})) for name, value in sorted(about.items()))
        labelled.append(("Alertmanager", f"{incident.external_url}/#/alerts?filter={_filter(group)}"))
        if not style.buttons:
            labelled += _silences(incident)
    return labelled


def _silences(incident: Incident) -> list[tuple[str, str]]:
    """Return Alertmanager's form for each silence that the incident's alerts need together."""
    sets = [matchers for matchers in incident.matchers if matchers]
    return [
        (
            "Silence" if len(sets) == 1 else f"Silence {number} of {len(sets)}",
            f"{incident.external_url}/#/silences/new?filter={_filter(matchers)}",
        )
        for number, matchers in enumerate(sets, 1)
    ]


def _query(lead: Member) -> str:
    """Return Prometheus's page for the expression, or for ALERTS where Slack takes no address so long."""
    parts = urlsplit(lead.generator_url)
    if len(lead.generator_url) <= text.URL or not parts.path.endswith("/graph"):
        return lead.generator_url
    chosen = {
        name: value for name, value in lead.labels.items() if name in ("alertname", "model", "instance")
    }
    selector = ", ".join(f'{name}="{escape(value)}"' for name, value in sorted(chosen.items()))
    query = urlencode({"g0.expr": f"ALERTS{{{selector}}}", "g0.tab": "1"})
    return urlunsplit(parts._replace(query=query))


def _filter(matchers: Iterable[Matcher]) -> str:
    """Matchers in an address, as Alertmanager's pages read them."""
    return quote("{" + text.clean(",".join(map(str, matchers))) + "}")


def _footer(incident: Incident) -> str:
    names = dict.fromkeys(member.labels.get("alertname", "?") for member in incident.members.values())
    # An incident that ended before its message could be posted names its alerts nowhere else.
    parts = [listed([code(name, 80) for name in names], _ALERTS), f"incident `{incident.name}`"]
    if incident.recurrence:
        parts.append(f"{_ordinal(incident.recurrence + 1)} time in 24 h")
    if owners := {
        member.labels["owner"] for member in incident.members.values() if member.labels.get("owner")
    }:
        parts.append(f"owner {prose(', '.join(sorted(owners)[:3]), 100)}")
    return " · ".join(parts)


def _event_line(incident: Incident, event: Event, mention: str, others: int | None) -> str:
    return f"{slack_time(event.at)}  {what_happened(incident, event, mention, others)}"


def what_happened(incident: Incident, event: Event, mention: str = "", others: int | None = None) -> str:
    """Return what an event changed, without its time."""
    names = _named(event)
    by = person(event.by) if event.by else ""
    tier = f" ({WORD[event.text]})" if event.text in ("critical", "warning") else ""
    return {
        "fired": f"also firing{tier}: {names}",
        "resolved": f"{RESOLVED} ended{tier}: {names}",
        "passed": f"{RESOLVED} ended{tier}: {names}",
        "closed": _closed_line(incident, event, others),
        "acknowledged": f"👀 {by} acknowledged it",
        "silenced": f"🔕 {by} silenced it {prose(event.text, 500)}",
        "unsilenced": f"🔔 {prose(event.text, 500)}" + (f" by {by}" if by else ""),
        "escalated": f"📣 escalated: nobody acknowledged it for {prose(event.text, 80)}",
        "released": f"👋 {by} removed the acknowledgement",
        "raised": _raised_line(incident, event, by, mention),
        "note": f"{prose(event.text, 600)}" + (f" (requested by {by})" if by else ""),
    }[event.kind]


def _raised_line(incident: Incident, event: Event, by: str, mention: str) -> str:
    word = {"critical": "a page", "warning": "a ticket"}.get(event.text, prose(event.text, 80))
    lines = [f"{mention} {DOT.get(event.text, '')} *Now {word}*: {_named(event)}".strip()]
    cause = causes.brief(incident, incident.lead)
    if cause and incident.lead.name not in event.alerts:
        lines.append(f"Same cause: {prose(cause, 300)}")
    known = dict(_evidence(incident))
    lines += [f"{name}: {prose(known[name], 300)}" for name in (OBJECTIVE, BUDGET_LEFT) if name in known]
    if by:
        lines.append(f"{by} had acknowledged the less urgent incident; nobody has acknowledged this one")
    return "\n".join(lines)


def _closed_line(incident: Incident, event: Event, others: int | None) -> str:
    """Say what is known: alerts have ended, and a model serves again where it is ready on all servers."""
    lasted = in_words(incident.ended_at - incident.since)
    thing = _thing(incident.lead)
    line = f"{RESOLVED} *Recovered* after {lasted}: " + (
        f"{code(thing, 120)} serves again."
        if _serves_again(incident)
        else f"no alert about {code(thing, 120)} fires any more."
    )
    if others is not None:
        line += f" {others} other incidents are open." if others > 1 else ""
        line += (
            " One other incident is open." if others == 1 else "" if others else " Nothing else is firing."
        )
    return line


def _serves_again(incident: Incident) -> bool:
    """Return whether a model that was not ready has been seen ready on all servers after the end."""
    evidence = incident.evidence
    if evidence is None or evidence.at < (incident.closed_at or 0.0):
        return False
    was_not_ready = {LOAD_FAILED, *NOT_READY} & {member.name for member in incident.members.values()}
    return bool(was_not_ready) and evidence.servers_not_ready == 0


def _named(event: Event) -> str:
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


def _digest_line(incident: Incident, now: float) -> str:
    line = f"{prose(headline(incident), 120)} (`{incident.name}`), "
    if incident.open:
        return line + f"since {slack_time(incident.since)}"
    return line + f"{clock(incident.since)}, for {in_words(incident.ended_at - incident.since)}"


def _ordinal(number: int) -> str:
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


def _field(name: str, value: str) -> Block:
    return _mrkdwn(f"*{name}*\n{value}")


def header(title: str) -> Block:
    """Return a title block; one that is too long is cut."""
    return {
        "type": "header",
        "text": {"type": "plain_text", "text": plain(title, text.HEADER), "emoji": False},
    }


def section(body: str) -> Block:
    """Return a block of Slack markup."""
    return {"type": "section", "text": _mrkdwn(body)}


def _mrkdwn(body: str) -> Block:
    # verbatim: Slack makes no mention, channel or link of a name such as @here or model.ai.
    return {"type": "mrkdwn", "text": body, "verbatim": True}


def _plain(label: str) -> Block:
    return {"type": "plain_text", "text": plain(label, text.BUTTON)}


def _button(label: str, action: str) -> Block:
    return {"type": "button", "text": _plain(label), "action_id": action, "value": action}
