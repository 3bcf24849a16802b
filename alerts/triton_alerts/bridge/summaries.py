"""Recorded incidents as text of a terminal and as JSON.

The JSON is what other systems get: docs/on-call.md describes its fields.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from triton_alerts.bridge import text
from triton_alerts.bridge.deliver.messages import (
    WORD,
    Style,
    as_known,
    headline,
    links,
    person,
    what_happened,
)
from triton_alerts.bridge.deliver.transport import as_text
from triton_alerts.bridge.evidence import causes
from triton_alerts.bridge.incidents.history import RecordedIncident
from triton_alerts.bridge.incidents.incident import FACTS_OF_HISTORY, Event, Incident, key_of, title_of
from triton_alerts.bridge.incidents.notification import Member
from triton_alerts.bridge.text import clean, plain
from triton_exporter.common.duration import in_words
from triton_exporter.common.moments import hour_text, rfc3339, utc_text

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
        "title": title_of(incident),
        "since": moment(incident.since),
        "resolved_at": None if incident.open else moment(incident.ended_at),
        "lead": _alert_json(lead),
        "cause": causes.largest(incident, lead),
        "first_step": causes.first_step(incident, lead),
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


WIDTH = 80
_LABEL = 16


def listed(record: RecordedIncident, now: float) -> str:
    """Return the lines of one incident in the list: name, start, severity, duration, acknowledgement, title."""
    incident = record.incident
    head = f"{incident.name}  {utc_text(incident.since)}  {WORD[record.severity]:<6}  "
    what = f"{lasted(record, now)}, {acknowledged(record)}"
    return _wrapped(head, what) + "\n" + _wrapped(" " * 10, title(record))


def incident_text(record: RecordedIncident, now: float) -> str:
    """Return one incident with its cause, its acknowledgement and all its events."""
    incident = record.incident
    lines = [
        _wrapped("", title(record)),
        f"incident {incident.name}, {state(record)}",
        "",
        *(_wrapped(f"{name:<{_LABEL}}", value) for name, value in facts(record, now)),
    ]
    return "\n".join([*lines, "", "Timeline (UTC)", *_timeline(record)]) + "\n"


def state(record: RecordedIncident) -> str:
    """Return the most urgent kind of alert that it had, and what fires of it."""
    worst, now = WORD[record.severity], WORD[record.incident.severity]
    if not record.incident.open:
        return f"{worst}, resolved"
    if record.incident.is_over:
        return f"{worst}, over"
    return f"{worst}, firing" if now == worst else f"{worst} over, {now} still firing"


def facts(record: RecordedIncident, now: float) -> Iterator[tuple[str, str]]:
    """Yield the facts about an incident as pairs of a name and a text."""
    incident = record.incident
    yield "began", utc_text(incident.since)
    over = incident.is_over
    ended = "over since" if incident.is_watched else "recovered"
    yield ended, utc_text(incident.ended_at) if over else "not yet"
    yield "lasted" if over else "firing for", in_words((incident.ended_at if over else now) - incident.since)
    if record.paged_at is not None and record.paged_at != incident.opened_at:
        yield "page since", utc_text(record.paged_at)
    yield "acknowledged", _who(record)
    yield "cause", clean(causes.largest(incident, incident.lead) or "not known")
    names = dict.fromkeys(member.name for member in incident.members.values())
    yield "alerts", clean(", ".join(names))
    known = incident.facts
    yield from ((name.lower(), clean(known[name])) for name in FACTS_OF_HISTORY if name in known)
    errors = incident.source_facts.reasons
    yield from (("Triton's error", clean(f"{name}: {text}")) for name, text in errors.items())


def as_json(record: RecordedIncident) -> dict[str, Any]:
    """Return the incident as JSON: as the bridge sends it to other systems, with its events and times."""
    mark = record.acknowledged
    return {
        **document(record.incident, Style()),
        "severity": record.severity,
        "opened_at": moment(record.incident.opened_at),
        "paged_at": moment(record.paged_at),
        "acknowledged": {"by": mark.by, "at": moment(mark.at)} if mark is not None else None,
        "seconds_to_acknowledge": _rounded(record.seconds_to_acknowledge),
        "seconds_to_recover": _rounded(record.seconds_to_recover),
        "timeline": [_event(event) for event in record.events],
    }


def title(record: RecordedIncident) -> str:
    """Return the faults in one line, the last one first, without the state of the incident."""
    lead = record.incident.lead
    earlier = [
        event.summaries[0]
        for event in record.events
        if event.kind == "over" and event.at < lead.starts_at and key_of(lead.labels) not in event.keys
    ]
    titles = (headline(record.incident, state=False), *earlier[::-1])
    return "; before: ".join(dict.fromkeys(plain(each, 200) for each in titles))


def happened(record: RecordedIncident) -> Iterator[tuple[float, str]]:
    """Yield the events of an incident, the oldest first: Unix time and text."""
    for event in record.events:
        what = as_text(what_happened(record.incident, as_known(record.incident, event)))
        yield event.at, what.removeprefix("also ") if event is record.events[0] else what


def _timeline(record: RecordedIncident) -> Iterator[str]:
    day = ""
    for at, what in happened(record):
        moment = datetime.fromtimestamp(at, UTC)
        if f"{moment:%Y-%m-%d}" != day:
            day = f"{moment:%Y-%m-%d}"
            yield day
        yield _wrapped(f"  {moment:%H:%M:%S}  ", what)


def _event(event: Event) -> dict[str, Any]:
    return {
        "at": moment(event.at),
        "kind": event.kind,
        "by": event.by,
        "alerts": list(event.alerts),
        "summaries": list(event.summaries),
        "text": event.severity or event.words,
    }


def lasted(record: RecordedIncident, now: float) -> str:
    """Return how long it lasted, or lasts."""
    incident, seconds = record.incident, record.seconds_to_recover
    if incident.is_watched:
        return f"over since {hour_text(incident.ended_at, now)}"
    if seconds is None:
        of = "" if incident.severity == record.severity else f"{WORD[incident.severity]} still "
        return f"{of}firing for {in_words(now - incident.since)}"
    return f"took {in_words(seconds)}"


def acknowledged(record: RecordedIncident) -> str:
    seconds = record.seconds_to_acknowledge
    return "nobody acknowledged" if seconds is None else f"acknowledged in {in_words(seconds)}"


def _who(record: RecordedIncident) -> str:
    mark, seconds = record.acknowledged, record.seconds_to_acknowledge
    if mark is None or seconds is None:
        return "by nobody"
    return f"by {as_text(person(mark.by))} in {in_words(seconds)}"


def _wrapped(head: str, body: str) -> str:
    """Return a text of several lines, each broken at the width of a terminal, in line with the first."""
    indent = " " * len(head)
    lines = [
        part
        for line in body.split("\n")
        for part in textwrap.wrap(line, WIDTH - len(head), break_on_hyphens=False)
    ]
    return head + f"\n{indent}".join(lines)


def _rounded(seconds: float | None) -> float | None:
    return round(seconds, 1) if seconds is not None else None
