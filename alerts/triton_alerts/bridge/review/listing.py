"""Recorded incidents as text of a terminal, and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from triton_alerts.bridge.deliver import incident_json
from triton_alerts.bridge.deliver.message import WORD, Style, headline, person, what_happened
from triton_alerts.bridge.deliver.terminal import as_text
from triton_alerts.bridge.evidence import causes
from triton_alerts.bridge.incidents.history import RecordedIncident
from triton_alerts.bridge.incidents.incident import BUDGET_LEFT, LAST_CHANGE, OBJECTIVE, Event
from triton_alerts.bridge.text import clean, duration, plain

WIDTH = 80
_LABEL = 16
_FACTS = (OBJECTIVE, BUDGET_LEFT, LAST_CHANGE)
"""Evidence that is worth reading after the end."""


def listed(one: RecordedIncident, now: float) -> str:
    """Return two lines: name, start, urgency, how long it took and who acknowledged it; then what was wrong."""
    incident = one.incident
    parts = [incident.name, _when(incident.since), f"{WORD[one.severity]:<6}", _lasted(one, now)]
    head = "  ".join(parts)
    return f"{head}, {acknowledged(one)}\n" + _wrapped(" " * 10, title(one))


def shown(one: RecordedIncident, now: float) -> str:
    """Return one incident with its cause, who had it and everything that happened."""
    incident = one.incident
    lines = [
        _wrapped("", title(one)),
        f"incident {incident.name}, {WORD[one.severity]}, {'firing' if incident.open else 'resolved'}",
        "",
        *(_wrapped(f"{name:<{_LABEL}}", value) for name, value in facts(one, now)),
    ]
    zone = "times in UTC"
    return "\n".join([*lines, "", f"What happened ({zone})", *_timeline(one)]) + "\n"


def facts(one: RecordedIncident, now: float) -> Iterator[tuple[str, str]]:
    """Yield what is known of an incident as pairs of a name and a text; times are in UTC."""
    incident = one.incident
    yield "began", _when(incident.since, "seconds")
    yield "recovered", "not yet" if incident.open else _when(incident.ended_at, "seconds")
    yield (
        "firing for" if incident.open else "lasted",
        duration((now if incident.open else incident.ended_at) - incident.since),
    )
    if one.paged_at is not None and one.paged_at != incident.opened_at:
        yield "a page since", _when(one.paged_at, "seconds")
    yield "acknowledged", _who(one)
    yield "cause", clean(causes.largest(incident, incident.lead) or "not known")
    names = dict.fromkeys(member.name for member in incident.members.values())
    yield "alerts", clean(", ".join(names))
    evidence = incident.evidence
    if evidence is not None:
        known = dict(evidence.facts)
        yield from ((name.lower(), clean(known[name])) for name in _FACTS if name in known)
        yield from (("Triton's error", clean(f"{name}: {text}")) for name, text in evidence.reasons.items())


def as_json(one: RecordedIncident) -> dict[str, Any]:
    """Return the incident as JSON: what the bridge sends to other systems, its timeline and times."""
    mark = one.acknowledged
    return {
        **incident_json.document(one.incident, Style()),
        "severity": one.severity,
        "opened_at": incident_json.time(one.incident.opened_at),
        "paged_at": incident_json.time(one.paged_at),
        "acknowledged": {"by": mark.by, "at": incident_json.time(mark.at)} if mark is not None else None,
        "seconds_to_acknowledge": _rounded(one.seconds_to_acknowledge),
        "seconds_to_recover": _rounded(one.seconds_to_recover),
        "timeline": [_event(event) for event in one.events],
    }


def title(one: RecordedIncident) -> str:
    """Return what was wrong, in one line, without the state."""
    return plain(headline(one.incident, state=False), 200)


def happened(one: RecordedIncident) -> Iterator[tuple[float, str]]:
    """Yield everything that happened to an incident, the oldest first: Unix time and text."""
    for event in one.events:
        what = as_text(what_happened(one.incident, event))
        yield event.at, what.removeprefix("also ") if event is one.events[0] else what


def _timeline(one: RecordedIncident) -> Iterator[str]:
    day = ""
    for at, what in happened(one):
        moment = datetime.fromtimestamp(at, UTC)
        if f"{moment:%Y-%m-%d}" != day:
            day = f"{moment:%Y-%m-%d}"
            yield day
        yield _wrapped(f"  {moment:%H:%M:%S}  ", what)


def _event(event: Event) -> dict[str, Any]:
    return {
        "at": incident_json.time(event.at),
        "kind": event.kind,
        "by": event.by,
        "alerts": list(event.alerts),
        "summaries": list(event.summaries),
        "text": event.text,
    }


def _lasted(one: RecordedIncident, now: float) -> str:
    seconds = one.seconds_to_recover
    if seconds is None:
        return f"firing for {duration(now - one.incident.since)}"
    return f"took {duration(seconds)}"


def acknowledged(one: RecordedIncident) -> str:
    seconds = one.seconds_to_acknowledge
    return "nobody acknowledged" if seconds is None else f"acknowledged in {duration(seconds)}"


def _who(one: RecordedIncident) -> str:
    mark, seconds = one.acknowledged, one.seconds_to_acknowledge
    if mark is None or seconds is None:
        return "by nobody"
    return f"by {as_text(person(mark.by))} in {duration(seconds)}"


def _wrapped(head: str, body: str) -> str:
    """Return a text of several lines, each broken at the width of a terminal, in line with the first."""
    indent = " " * len(head)
    lines = [
        part
        for line in body.split("\n")
        for part in textwrap.wrap(line, WIDTH - len(head), break_on_hyphens=False)
    ]
    return head + f"\n{indent}".join(lines)


def _when(at: float, unit: str = "minutes") -> str:
    return datetime.fromtimestamp(at, UTC).replace(tzinfo=None).isoformat(" ", unit)


def _rounded(seconds: float | None) -> float | None:
    return round(seconds, 1) if seconds is not None else None
