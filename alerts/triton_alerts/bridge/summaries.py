"""Recorded incidents as text of a terminal and as JSON, and the summary of a week.

The JSON is what other systems get: docs/on-call.md describes its fields.
"""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median
from typing import Any

from triton_alerts.bridge import text
from triton_alerts.bridge.deliver.messages import (
    WORD,
    Style,
    headline,
    links,
    person,
    title_of,
    what_happened,
)
from triton_alerts.bridge.deliver.transport import as_text
from triton_alerts.bridge.evidence import causes
from triton_alerts.bridge.incidents.history import RecordedIncident
from triton_alerts.bridge.incidents.incident import FACTS_OF_HISTORY, Event, Incident
from triton_alerts.bridge.incidents.notification import Member
from triton_alerts.bridge.text import clean, plain
from triton_alerts.hours import Hours
from triton_exporter.common.duration import DAY, in_words
from triton_exporter.common.moments import local_text, rfc3339, utc_text
from triton_slo import names
from triton_slo.amounts import burn_rate
from triton_slo.problem_words import count
from triton_slo.prometheus import Prometheus
from triton_slo.report.documents import escape_markdown

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


WIDTH = 80
_LABEL = 16


def listed(record: RecordedIncident, now: float) -> str:
    """Return the lines of one incident in the list: name, start, severity, duration, acknowledgement, title."""
    incident = record.incident
    head = f"{incident.name}  {utc_text(incident.since)}  {WORD[record.severity]:<6}  "
    lasted = f"{_lasted(record, now)}, {acknowledged(record)}"
    return _wrapped(head, lasted) + "\n" + _wrapped(" " * 10, title(record))


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
    return f"{worst}, firing" if now == worst else f"{worst} ended, {now} still firing"


def facts(record: RecordedIncident, now: float) -> Iterator[tuple[str, str]]:
    """Yield the facts about an incident as pairs of a name and a text."""
    incident = record.incident
    yield "began", utc_text(incident.since)
    yield "recovered", "not yet" if incident.open else utc_text(incident.ended_at)
    yield (
        "firing for" if incident.open else "lasted",
        in_words((now if incident.open else incident.ended_at) - incident.since),
    )
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
    """Return the fault in one line, without the state of the incident."""
    return plain(headline(record.incident, state=False), 200)


def happened(record: RecordedIncident) -> Iterator[tuple[float, str]]:
    """Yield the events of an incident, the oldest first: Unix time and text."""
    for event in record.events:
        what = as_text(what_happened(record.incident, event))
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


def _lasted(record: RecordedIncident, now: float) -> str:
    seconds = record.seconds_to_recover
    if seconds is None:
        of = "" if record.incident.severity == record.severity else f"{WORD[record.incident.severity]} still "
        return f"{of}firing for {in_words(now - record.incident.since)}"
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


MAX_LINES = 10
WEEK_SECONDS = 7.0 * DAY
NO_PROMETHEUS = "Unknown: no --prometheus URL was given."
_SMALL_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Part:
    """A heading and the lines below it, as plain text."""

    heading: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary of a week."""

    title: str
    parts: tuple[Part, ...]

    def markdown(self) -> str:
        """Return the summary as Markdown."""
        lines = [f"# {_safe(self.title)}"]
        for part in self.parts:
            lines += ["", f"## {_safe(part.heading)}", "", *(f"- {_safe(line)}" for line in part.lines)]
        return "\n".join(lines) + "\n"


def summarize(
    recorded: Iterable[RecordedIncident], end: datetime, hours: Hours, budgets: Sequence[str]
) -> Summary:
    """Sum up the incidents that opened in the week before a time."""
    until = end.timestamp()
    start = until - WEEK_SECONDS
    week = [record for record in recorded if start <= record.incident.opened_at < until]
    pages = [record for record in week if record.paged_at is not None]
    outside = [page for page in pages if not hours.contain(page.paged_at or 0.0)]
    unacknowledged = [page for page in pages if page.acknowledged is None]
    begin, zone = datetime.fromtimestamp(start, end.tzinfo), str(hours.zone)
    parts = [
        Part("Summary", tuple(_in_short(week, pages, outside, unacknowledged, hours))),
        Part("By cause", _ranking(week, _cause)),
        Part("By model", _ranking(week, _model)),
        Part("Pages outside working hours", _cut([_page_line(page, end) for page in outside])),
        Part("Pages that nobody acknowledged, by alert", _noisiest(pages)),
        Part("Error budgets", _cut(budgets)),
    ]
    span = f"{begin:%a} {local_text(start, zone)} to {end:%a} {local_text(until, zone)}, {zone}"
    return Summary(f"Incidents of the week, {span}", tuple(part for part in parts if part.lines))


def budgets(prometheus: Prometheus, end: float) -> list[str]:
    """Return how much of each error budget is spent, and how much was a week before; the most spent first.

    Raises PrometheusError.
    """
    query = f"{names.PERIOD_BUDGET_REMAINING}{{{names.RECORDED_HERE}}}"
    now, before = (
        {
            tuple(sorted(sample.labels.items())): 1 - sample.value
            for sample in prometheus.instant(query, at)
            if math.isfinite(sample.value)
        }
        for at in (end, end - WEEK_SECONDS)
    )
    if not now:
        return ["Unknown: Prometheus has no recorded error budgets; are the rules loaded?"]
    most = sorted(now.items(), key=lambda entry: -entry[1])
    lines = [
        f"{_objective_key(dict(labels))}: {_share_text(spent)} spent"
        + (f" ({_share_text(before[labels])} a week before)" if labels in before else "")
        for labels, spent in most
        if spent >= _SMALL_SHARE
    ]
    rest = len(most) - len(lines)
    return lines + ([f"{count(rest, 'other budget')} less than 1 % spent"] if rest and lines else []) or [
        "Less than 1 % of each is spent."
    ]


def _in_short(
    week: Sequence[RecordedIncident],
    pages: Sequence[RecordedIncident],
    outside: Sequence[RecordedIncident],
    unacknowledged: Sequence[RecordedIncident],
    hours: Hours,
) -> Iterable[str]:
    if not week:
        yield "No incident."
        return
    still = sum(record.incident.open for record in week)
    yield (
        f"{count(len(week), 'incident')}: {count(len(pages), 'page')}, {count(len(week) - len(pages), 'ticket')}"
        + (f"; {still} still open" if still else "")
    )
    if pages:
        yield f"{len(outside)} of {count(len(pages), 'page')} outside working hours ({hours})"
        yield f"{len(unacknowledged)} of {count(len(pages), 'page')} not acknowledged"
    taken = [page.seconds_to_acknowledge for page in pages if page.seconds_to_acknowledge is not None]
    if taken:
        yield f"Median time to acknowledge a page: {in_words(median(taken))}"
    lasted = [record.seconds_to_recover for record in week if record.seconds_to_recover is not None]
    if lasted:
        yield f"Median time to recover: {in_words(median(lasted))}"


def _ranking(week: Sequence[RecordedIncident], key: Callable[[RecordedIncident], str]) -> tuple[str, ...]:
    """Return how many incidents, pages and how much time each key has, the most pages first."""
    groups: dict[str, list[RecordedIncident]] = {}
    for record in week:
        groups.setdefault(key(record), []).append(record)
    rows = []
    for name, some in groups.items():
        pages = sum(record.paged_at is not None for record in some)
        seconds = sum(record.seconds_to_recover or 0.0 for record in some)
        still = sum(record.incident.open for record in some)
        line = f"{name}: {count(len(some), 'incident')}, {count(pages, 'page')}"
        line += f", {in_words(seconds)} in total" if still < len(some) else ""
        line += f", {still} still open" if still else ""
        rows.append((-pages, -len(some), -seconds, line))
    return _cut([row[-1] for row in sorted(rows)])


def _cause(record: RecordedIncident) -> str:
    lead = record.incident.lead
    return causes.largest(record.incident, lead) or f"unknown cause ({lead.name})"


def _model(record: RecordedIncident) -> str:
    lead: Member = record.incident.lead
    return lead.labels.get("model") or "no single model"


def _page_line(record: RecordedIncident, end: datetime) -> str:
    at = datetime.fromtimestamp(record.paged_at or 0.0, end.tzinfo)
    return f"{at:%a %H:%M}, {acknowledged(record)}: {title(record)} ({record.incident.name})"


def _noisiest(pages: Sequence[RecordedIncident]) -> tuple[str, ...]:
    every = Counter(page.incident.lead.name for page in pages)
    ignored = Counter(page.incident.lead.name for page in pages if page.acknowledged is None)
    return _cut(
        [f"{name}: {number} of {count(every[name], 'page')}" for name, number in ignored.most_common()]
    )


def _objective_key(labels: dict[str, str]) -> str:
    slo = labels.pop(names.SLO, "?")
    of = " ".join(labels[name] for name in names.GROUPING if labels.get(name))
    return f"{slo}, {of}" if of else slo


def _share_text(share: float) -> str:
    return f"{100 * share:.0f} %" if share <= 1 else burn_rate(share)


def _cut(lines: Sequence[str]) -> tuple[str, ...]:
    more = len(lines) - MAX_LINES
    return (*lines[:MAX_LINES], f"and {more} more") if more > 0 else tuple(lines)


def _safe(text: str) -> str:
    """Return text from outside on one line, with its Markdown escaped."""
    return escape_markdown(" ".join(clean(text).split()))
