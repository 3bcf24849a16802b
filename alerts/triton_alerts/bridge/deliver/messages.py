"""Slack messages of incidents, which answer the first five questions of the person on call.

What is affected, since when and how urgent, the cause, the first step, who acknowledged it. Pure functions: the same
incident and time give the same message. First the blocks that messages are made of, then the pages that they link to,
the texts that lists of incidents share, and the messages.
https://docs.slack.dev/reference/block-kit/blocks
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from triton_alerts.bridge import text
from triton_alerts.bridge.evidence import causes
from triton_alerts.bridge.incidents.incident import (
    ABOUT_READINESS,
    BUDGET_LEFT,
    BURN_RATE,
    FACTS_WHILE_OPEN,
    GPU,
    OBJECTIVE,
    SPLIT,
    WIDE_FACTS,
    Event,
    Fault,
    Incident,
    Matcher,
    beside,
    is_tier_beside,
    key_of,
    subject_names,
    subject_text,
    summary_of,
    thing_of,
    title_of,
    worded,
)
from triton_alerts.bridge.incidents.notification import Member, subject_labels
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
from triton_exporter.common.moments import hour_text
from triton_exporter.common.printable import listed
from triton_exporter.family import escape
from triton_slo.names import ALERTS

Block = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    """`text` is what notifications and screen readers get, `blocks` what the channel shows."""

    text: str
    blocks: tuple[Block, ...] = ()


def bare(message: Message) -> Message:
    """Return the message without blocks, for when Slack refuses them."""
    return Message(message.text)


def header(title: str) -> Block:
    """Return a title block; one that is too long is cut."""
    return {
        "type": "header",
        "text": {"type": "plain_text", "text": plain(title, text.MAX_HEADER_LENGTH), "emoji": False},
    }


def section(body: str) -> Block:
    """Return a block of Slack markup."""
    return {"type": "section", "text": mrkdwn(body)}


def field(name: str, value: str) -> Block:
    """Return a fact of a section: its name and its value."""
    return mrkdwn(f"*{name}*\n{value}")


def mrkdwn(body: str) -> Block:
    """Return text in Slack's markup."""
    # verbatim: Slack makes no mention, channel or link of a name such as @here or model.ai.
    return {"type": "mrkdwn", "text": body, "verbatim": True}


def plain_text(label: str) -> Block:
    """Return the label of a button, cut to what Slack takes."""
    return {"type": "plain_text", "text": plain(label, text.MAX_BUTTON_LENGTH)}


def button(label: str, action: str) -> Block:
    """Return a button that sends an action back to the bridge."""
    return {"type": "button", "text": plain_text(label), "action_id": action, "value": action}


@dataclass(frozen=True, slots=True)
class Style:
    """Style of the bridge's messages: buttons need Socket Mode; `grafana` completes relative dashboard links."""

    buttons: bool = False
    grafana: str = ""


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
    labelled.append(("Query", _expression_url(lead)))
    if incident.open and incident.external_url:
        about = subject_labels(lead.labels) or incident.group_labels
        group = (Matcher(name=name, values=frozenset({value})) for name, value in sorted(about.items()))
        labelled.append(("Alertmanager", f"{incident.external_url}/#/alerts?filter={_filter(group)}"))
        # Alertmanager's form for each silence that the incident's alerts need together.
        sets = [matchers for matchers in incident.matchers if matchers] if not style.buttons else []
        for number, matchers in enumerate(sets, 1):
            label = "Silence" if len(sets) == 1 else f"Silence {number} of {len(sets)}"
            address = f"{incident.external_url}/#/silences/new?filter={_filter(matchers)}"
            labelled.append((label, address))
    return labelled


def _expression_url(lead: Member) -> str:
    """Return the URL of the expression in Prometheus, of this model and server alone; of ALERTS if that is too long."""
    try:
        parts = urlsplit(lead.generator_url)
    except ValueError:
        return ""
    asked = dict(parse_qsl(parts.query))
    chosen = {
        name: value for name, value in lead.labels.items() if name in ("alertname", "model", "instance")
    }
    if not parts.path.endswith("/graph") or "g0.expr" not in asked or chosen.keys() <= {"alertname"}:
        return lead.generator_url if len(lead.generator_url) <= text.MAX_URL_LENGTH else ""

    def address(expr: str) -> str:
        return urlunsplit(parts._replace(query=urlencode(asked | {"g0.expr": expr})))

    expr = f"({asked['g0.expr']})"
    for name in ("model", "instance"):
        if name in chosen:
            value = escape(chosen[name].replace("$", "$$"))  # a dollar would be a group of its pattern
            expr += f'\nand on ({name}) label_replace(vector(1), "{name}", "{value}", "", "")'
    if len(address(expr)) <= text.MAX_URL_LENGTH:
        return address(expr)
    selector = ", ".join(f'{name}="{escape(value)}"' for name, value in sorted(chosen.items()))
    return address(f"{ALERTS}{{{selector}}}")


def _filter(matchers: Iterable[Matcher]) -> str:
    """Return matchers as a part of an address, as Alertmanager's pages read them."""
    return quote("{" + text.clean(",".join(map(str, matchers))) + "}")


DOT = {"critical": "🔴", "warning": "🟠", "info": "🔵", "none": "⚪"}
RESOLVED = "🟢"
WATCHED = "🟡"
"""What was urgent is over; alerts fire on for a while, because they look back."""
NOT_CONFIRMED = "⚪ Ended, not confirmed"
"""An alert also ends where nothing is measured any more: Prometheus is dead, or the server is."""
WORD = {"critical": "page", "warning": "ticket", "info": "information", "none": "watchdog"}


_LEAST_REASON = 12
"""Characters of a reason that say something."""


def headline(incident: Incident, *, state: bool = True, limit: int | None = None) -> str:
    """Return what is wrong, in one line, after its state; the reason is cut to stay below a limit, and not what is new."""
    dot = WATCHED if incident.is_watched else DOT[incident.severity]
    mark = "🔕" if incident.silenced else "👀" if incident.acknowledged is not None else ""
    if not state:
        title = ""
    elif incident.open:
        title = f"{dot}{mark} "
    else:
        title = f"{NOT_CONFIRMED if _not_confirmed(incident) else f'{RESOLVED} Resolved'}: "
    title += title_of(incident)
    end = f"; {over}" if incident.open and (over := incident.fault(incident.lead).over) else ""
    things = dict.fromkeys(map(thing_of, (incident.lead, *(incident.firing or incident.members.values()))))
    lead, *others = things
    # A title about a server is about all that it serves.
    if others and (lead in title or incident.lead.labels.get("instance", lead) not in title):
        end += f" (and {listed(others, 2)})"
    if reason := causes.brief(incident, incident.lead):
        left = _LEAST_REASON if limit is None else limit - text.units(f"{title}: {end}")
        if left >= _LEAST_REASON:
            title += f": {reason if limit is None else plain(reason, left)}"
    return title + end


def person(by: str) -> str:
    """Return a Slack user as a mention, anyone else as text."""
    known = by.isalnum() and by.isascii() and by[:1] in ("U", "W") and by.isupper()
    return f"<@{by}>" if known else prose(by, 80)


def what_happened(incident: Incident, event: Event, others: int | None = None) -> str:
    """Return what an event changed, without its time."""
    names = _alert_names(event)
    by = person(event.by) if event.by else ""
    tier = f" ({WORD[event.severity]})" if event.severity in ("critical", "warning") else ""
    why = f" ({prose(event.words, 200)})" if event.words else ""
    doubt = "" if _were_over(incident, event.keys) else _not_confirmed(incident)
    if doubt and event.kind in ("resolved", "passed"):
        return f"{NOT_CONFIRMED}{tier}: {', '.join(prose(name, 80) for name in event.alerts)}{why}; {doubt}"
    return {
        "fired": f"also firing{tier}{why}: {names}",
        "resolved": f"{RESOLVED} resolved{tier}: {names}{why}",
        "passed": f"{RESOLVED} fired and resolved before it could be posted{tier}: {names}",
        "closed": _closed_line(incident, others) + why,
        "acknowledged": f"👀 {by} acknowledged the incident",
        "silenced": f"🔕 {by} silenced the incident {prose(event.words, 500)}",
        "unsilenced": f"🔔 {prose(event.words, 500)}" + (f" by {by}" if by else ""),
        "escalated": f"📣 escalated: nobody has acknowledged the page for {prose(event.words, 80)}",
        "released": f"👋 {by} removed the acknowledgement",
        "raised": f"{_now_is(event)}: {prose(event.words, 600) or names}",
        "over": prose(event.words, 600),
        "note": f"{prose(event.words, 600)}" + (f" (requested by {by})" if by else ""),
    }[event.kind]


ANSWER_SECONDS = 10.0
"""Time within which the sources have said whether an alert that fires is over already."""


def as_known(incident: Incident, event: Event) -> Event:
    """Return an event; of alerts that fired when their faults were over, one that says so, and calls nobody."""
    over = _were_over(incident, event.keys, event.at + ANSWER_SECONDS)
    if not over or event.words or event.kind not in ("fired", "raised"):
        return event
    return event.model_copy(update={"kind": "fired", "words": "already over"})


def _were_over(incident: Incident, keys: Sequence[str], at: float = math.inf) -> bool:
    """Return whether the faults of these alerts (`key_of`) were seen to be over by then."""
    faults = incident.evidence.faults if incident.evidence is not None else {}
    known = [faults.get(key, Fault()) for key in keys]
    return bool(known) and all(fault.over and (fault.since or math.inf) <= at for fault in known)


def _now_is(event: Event) -> str:
    if event.words or event.again:
        return f"{DOT.get(event.severity, '')} *{'It fails again' if event.words else 'Another page'}*"
    word = {"critical": "a page", "warning": "a ticket"}.get(event.severity, prose(event.severity, 80))
    return f"{DOT.get(event.severity, '')} *The incident is now {word}*".strip()


def _raised_line(incident: Incident, event: Event, mention: str) -> str:
    """Return the line that calls somebody: all that a push notification shows."""
    who = f" {mention}" if mention else ""
    what = event.words or f"{headline(incident, state=False)} · since {hour_text(incident.began, event.at)}"
    lines = [f"{_now_is(event)}{who}: {prose(what, 600)}"]
    if incident.lead.name not in event.alerts:
        lines.append(_alert_names(event).strip())
    known = incident.facts
    lines += [f"{name}: {prose(known[name], 300)}" for name in (OBJECTIVE, BUDGET_LEFT) if name in known]
    if event.by:
        what = "it before it was over" if event.words else "the earlier alert"
        lines.append(f"{person(event.by)} acknowledged {what}; nobody has acknowledged this page yet")
    return "\n".join(lines)


def _since(incident: Incident) -> str:
    """Return when what fails began, for a message of an open incident."""
    return f"{'again ' if incident.again_since else ''}since {slack_time(incident.began)}"


def _closed_line(incident: Incident, others: int | None) -> str:
    """Return the line about recovery: all alerts have resolved, or the model is ready on all its servers."""
    lasted = in_words(incident.ended_at - incident.since)
    thing = thing_of(incident.lead)
    if doubt := _not_confirmed(incident):
        line = f"{NOT_CONFIRMED}: {doubt}."
    else:
        line = f"{RESOLVED} *Recovered* after {lasted}: {prose(headline(incident, state=False), 500)}. " + (
            f"{code(thing, 120)} is ready on all its servers."
            if _serves_again(incident)
            else f"All alerts about {code(thing, 120)} have resolved."
        )
    if others is not None:
        few = {0: "No other incident is", 1: "One other incident is"}
        line += f" {few.get(others, f'{others} other incidents are')} open."
    return line


def _not_confirmed(incident: Incident) -> str:
    """Return why the end of an alert is no recovery: nothing serves, or Prometheus does not answer; else nothing.

    That of one whose faults were seen to be over before is one.
    """
    were_over = _were_over(incident, [key_of(member.labels) for member in incident.members.values()])
    if incident.evidence is None or incident.end_of_outage is not None or were_over:
        return ""
    since = incident.evidence.prometheus_silent_since
    if since:
        return f"Prometheus does not answer since {hour_text(since, incident.evidence.at)}"
    return prose(incident.evidence.not_served or "", 300)


def _serves_again(incident: Incident) -> bool:
    """Return whether a model that was not ready has been seen ready on all servers after the end."""
    evidence = incident.evidence
    if evidence is None or evidence.at < (incident.closed_at or 0.0):
        return False
    was_not_ready = any(member.name in ABOUT_READINESS for member in incident.members.values())
    return was_not_ready and evidence.servers_not_ready == 0


def _alert_names(event: Event) -> str:
    """Name alerts by their summaries, else by name and subject."""
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
    return f"{', '.join(prose(name, 80) for name in event.alerts)} for {names}"


def _beside(member: Member) -> str:
    return f"{named} ({WORD[member.severity]})" if (named := beside(member)) else summary_of(member)


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
    step = causes.first_step(incident, incident.lead)
    blocks: list[Block] = [
        header(headline(incident, limit=text.MAX_HEADER_LENGTH)),
        section(state),
        *([{"type": "section", "fields": facts}] if facts else []),
        *_why_blocks(incident),
        *([section(f"*First step*\n{prose(step, 800)}")] if step else []),
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
    for event in events:
        raised = event.kind == "raised"
        what = _raised_line(incident, event, mention) if raised else what_happened(incident, event, others)
        lines.append(f"{slack_time(event.at)}  {what}")
    body = "\n".join(lines) or "No change."
    if text.units(body) <= text.MAX_SECTION_LENGTH:
        return Message(body, (section(body),))
    # Never cut inside an entity or a link: whole lines only, a section each.
    return Message(lines[-1], tuple(section(line) for line in lines))


def digest(incidents: Sequence[Incident], total: int, firing: int, own: int) -> Message:
    """Return one message about many incidents, for when they arrive faster than Slack accepts messages.

    `incidents` have no message of their own, and are named as far as there is space; `own` is how many of those that fire have one.
    """
    head = f"📋 {total} incidents: {firing} firing, {total - firing} resolved"
    note = (
        "These incidents were reported faster than Slack accepts messages, or while Slack was unreachable. "
        f"The most urgent have their own message ({own} now); when one of these resolves, the next incident gets "
        "its own. "
        "To list all, run tritonwatch incidents list"
    )
    context: Block = {"type": "context", "elements": [mrkdwn(note)]}
    lines = []
    for incident in incidents[:DIGEST_LINES]:
        when = _since(incident)
        if not incident.open:
            when = f"{utc_time(incident.since)}, for {in_words(incident.ended_at - incident.since)}"
        lines.append(f"{prose(headline(incident), 120)} (`{incident.name}`), {when}")
    if len(incidents) > DIGEST_LINES:
        lines.append(f"and {len(incidents) - DIGEST_LINES} more")
    parts = (section("\n".join(lines[start : start + 10])) for start in range(0, len(lines), 10))
    return Message(head, (header(head), context, *parts))


def refused(incident: Incident) -> Message:
    """Return what is posted in place of a message that Slack refuses: nothing that its alerts say."""
    severity, name = incident.severity, incident.name
    return Message(
        f"{DOT[severity]} {WORD[severity]}: Slack refuses the message about incident {name}. To read it, run "
        f"tritonwatch incidents show {name}"
    )


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
        f"{fires} {slack_time(incident.began)}, incident `{incident.name}`",
    ]
    body = "".join(lines).strip()
    if incident.open and not is_page:
        article = "a " if incident.severity == "warning" else ""
        body += f"\nThe page is over; the incident continues as {article}{WORD[incident.severity]}"
    elif incident.acknowledged is not None:
        body += f"\n{next(_acknowledged(incident))}"
    return Message(body, (section(body),))


def _state_line(incident: Incident, now: float) -> str:
    """Return start time, severity and acknowledgement in one line."""
    word = WORD[incident.severity]
    if incident.is_watched:  # no age: the message is edited only where something changes
        when, word = f"open since {slack_time(incident.since)}", f"{word}, over"
    elif incident.open:
        lasts = now - incident.began
        when = f"{_since(incident)} ({in_words(lasts)})"
    else:
        lasted = in_words(incident.ended_at - incident.since)
        when = f"{slack_time(incident.since)} to {slack_hour(incident.ended_at, incident.since)}: *{lasted}*"
    parts = [when, word, *_acknowledged(incident)]
    doubt = _not_confirmed(incident)
    if not incident.open and doubt:
        parts.append(doubt)
    ended = len(incident.members) - len(incident.firing)
    if incident.open and ended:
        parts.append(f"{len(incident.firing)} firing, {ended} resolved")
    return " · ".join(parts)


def _fact_pairs(incident: Incident) -> list[tuple[str, str]]:
    members = [
        member for member in incident.firing or incident.members.values() if subject_names(member.labels)
    ]
    places = dict.fromkeys(map(_where, members))
    # The alert about a model on all servers adds nothing to the one about the model on a server.
    exact = [place for place in places if not any(other.startswith(f"{place} ") for other in places)]
    facts = [("Affected", _listed(exact))] if exact else []
    ranked = [incident.lead, *(each for each in incident.worst_first if each is not incident.lead)]
    others = dict.fromkeys(
        _beside(member) + (", over" if incident.fault(member).over else "")
        for place, member in enumerate(ranked)
        if place and member.firing and not any(is_tier_beside(member, worse) for worse in ranked[:place])
    )
    if others:
        facts.append(("Also firing", _listed([prose(other, 200) for other in others])))
    facts += [(name, _listed(list(lines))) for name, lines in _ended(incident).items()]
    narrow = ((name, value) for name, value in _shown_facts(incident).items() if name not in WIDE_FACTS)
    facts += [(prose(name, 60), prose(value, 300)) for name, value in narrow]
    if len(facts) > _MAX_FIELDS:
        names = ", ".join(name for name, _ in facts[_MAX_FIELDS:])
        _LOG.warning(
            "incident %s: not shown in Slack, which takes %d fields: %s", incident.name, _MAX_FIELDS, names
        )
    return facts[:_MAX_FIELDS]


def _ended(incident: Incident) -> dict[str, dict[str, None]]:
    """Return the alerts that ended while others fire, the last first, by whether that is a recovery.

    Tiers of an objective that still fires are left out.
    """
    firing = {key_of(member.labels) for member in incident.firing}
    ended = [member for member in incident.members.values() if key_of(member.labels) not in firing]
    lines: dict[str, dict[str, None]] = {}
    doubt = _not_confirmed(incident)
    for member in sorted(ended, key=lambda member: member.ends_at or 0.0, reverse=True) if firing else ():
        line = f"{prose(_beside(member), 200)}, {slack_hour(member.ends_at or 0.0, incident.since)}"
        is_doubted = doubt and not incident.fault(member).over
        lines.setdefault("Ended, not confirmed" if is_doubted else "Resolved", {})[line] = None
    return lines


def _listed(lines: Sequence[str]) -> str:
    more = len(lines) - _MAX_LISTED
    return "\n".join([*lines[:_MAX_LISTED], *([f"and {more} more"] if more > 0 else [])])


def _where(member: Member) -> str:
    labels = member.labels
    name = code(labels["model"], 120) if labels.get("model") else code(subject_text(labels), 120)
    if subject_names(labels) == ("job",):
        name = f"all of job {name}"
    if labels.get("model") and labels.get("version"):
        name += f" version {code(labels['version'], 40)}"
    if labels.get("instance") and subject_text(labels) != labels["instance"]:
        name += f" on {code(labels['instance'], 120)}"
    return name


def _acknowledged(incident: Incident) -> Iterator[str]:
    silence = incident.silence
    if incident.acknowledged is not None:
        at = slack_hour(incident.acknowledged.at, incident.since)
        yield f"acknowledged by {person(incident.acknowledged.by)} at {at}"
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
    # What is over is described no more, nor a failed load where the server is dead; what caused it stays worth reading.
    is_past = incident.is_over or incident.source_facts.dead_server
    description = "" if is_past else lead.annotations.get("description", "")
    blocks = [section(f"*Description*\n{prose(description, 1200)}")] if description else []
    cause = causes.brief(incident, lead)
    if cause and cause not in headline(incident, limit=text.MAX_HEADER_LENGTH):
        blocks.append(section(f"*Cause*\n{prose(cause, 600)}"))
    reasons: dict[str, list[str]] = {}
    for name, reason in incident.source_facts.reasons.items():
        if lead.name not in ABOUT_READINESS or reason in causes.reasons(incident, lead):
            reasons.setdefault(reason, []).append(name)
    limit = 2600 // max(1, min(len(reasons), 3))
    for reason, names in list(reasons.items())[:3]:
        alike = listed([code(name) for name in names], 3)
        blocks.append(section(f"*Error message* for {alike}\n{code_block(reason, limit)}"))
    facts = _shown_facts(incident)
    return blocks + [section(f"*{name}*\n{prose(facts[name], 900)}") for name in WIDE_FACTS if name in facts]


def _shown_facts(incident: Incident) -> dict[str, str]:
    # These change all the time, and say nothing about what is over; a burn rate looks back at it.
    past: tuple[str, ...] = (
        (GPU, BUDGET_LEFT) if incident.is_watched else () if incident.open else FACTS_WHILE_OPEN
    )
    past += (BURN_RATE,) if incident.is_over else ()
    past += (BURN_RATE, SPLIT) if incident.source_facts.dead_server else ()
    return {name: value for name, value in incident.facts.items() if name not in past}


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
        number = incident.recurrence + 1
        suffix = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
        if number % 100 in (11, 12, 13):
            suffix = "th"
        parts.append(f"{number}{suffix} incident of this model or server in 24 h")
    if owners := {
        member.labels["owner"] for member in incident.members.values() if member.labels.get("owner")
    }:
        parts.append(f"owner {prose(', '.join(sorted(owners)[:3]), 100)}")
    return " · ".join(parts)
