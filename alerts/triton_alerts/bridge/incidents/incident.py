"""An incident: the alerts about one subject from the moment one of them fires until none does.

The subject is the same for today's and tomorrow's incident, so an incident is a subject and an episode. Folding a
notification into an incident is a pure function; all it needs arrives as arguments.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import BaseModel

from triton_alerts.bridge.incidents.matchers import Matcher, sets_of_alerts, subject_names
from triton_alerts.bridge.incidents.notification import Member, Notification
from triton_slo.indicators import Readiness
from triton_slo.names import COMPONENT, GROUPING, SEVERITIES, SLO, TIER, URGENCY

NAMED_PER_EVENT = 10
"""Members an event names; the others are counted."""

SUMMARIES_PER_EVENT = 3
"""Different summaries an event repeats."""

LAST_CHANGE, GPU = "Last change", "GPU"
"""Names of facts that are shown over the whole width of a message."""
OBJECTIVE, BURN_RATE, BUDGET_LEFT = "Objective", "Burn rate", "Budget left"
SPLIT, SERVERS = "Where it goes", "Servers"
FACTS = (OBJECTIVE, BURN_RATE, BUDGET_LEFT, SPLIT, SERVERS, LAST_CHANGE, GPU)
"""Names of all facts that the sources of evidence give; docs/on-call.md explains each."""
FIRST_STEP = "First step"
"""Name of the fact that an alert's first step is chosen by: what to do about the largest cause."""

CALM_SECONDS = 3600.0
"""A page that fires so long after the last one ended is a new page: the acknowledgement does not count."""

LOAD_FAILED = "TritonModelLoadFailed"
NOT_READY = (
    *("TritonModelDownEverywhere", "TritonModelNotReadyProlonged", "TritonModelReplicasLow"),
    *("TritonExpectedModelMissing", "TritonModelFlapping", Readiness.burn_alert),
)
"""Alerts that a failed load explains."""

Outcome = Literal["opened", "changed", "repeated", "stale", "held"]
EventKind = Literal[
    "fired",
    "resolved",
    "passed",
    "closed",
    "acknowledged",
    "silenced",
    "unsilenced",
    "escalated",
    "released",
    "raised",
    "note",
]


class Mark(BaseModel, frozen=True):
    """Who did something, and when."""

    by: str
    at: float


class SilencePart(BaseModel, frozen=True):
    """One more silence in Alertmanager, for alerts whose labels the first one does not match."""

    id: str
    matchers: tuple[Matcher, ...]


class Silence(BaseModel, frozen=True):
    """A silence made from the incident; `until_resolved` is renewed until the incident ends.

    In Alertmanager it is one silence, and one more for each of `parts`. One without matchers was made by an older
    bridge and matches the whole group. `alertmanager` is the URL of the one that has it.
    """

    id: str
    by: str
    until: float
    until_resolved: bool = False
    matchers: tuple[Matcher, ...] = ()
    alertmanager: str = ""
    parts: tuple[SilencePart, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        return (self.id, *(part.id for part in self.parts))

    def covers(self, member: Member) -> bool:
        sets = (self.matchers, *(part.matchers for part in self.parts))
        return any(all(matcher.matches(member.labels) for matcher in matchers) for matchers in sets)


class Findings(BaseModel, frozen=True):
    """What a source found out about an incident.

    `reasons` are Triton's own words by model and version, `facts` pairs of a label and a value. `largest_cause` is
    the first of the split in words (empty: none known), `servers_not_ready` how many servers do not serve the model
    (None: not known).
    """

    reasons: dict[str, str] = {}
    facts: tuple[tuple[str, str], ...] = ()
    largest_cause: str = ""
    servers_not_ready: int | None = None

    def and_newer(self, newer: Findings) -> Findings:
        """Return all that is known; of what both know, the newer."""
        known = self.servers_not_ready if newer.servers_not_ready is None else newer.servers_not_ready
        return Findings(
            reasons=self.reasons | newer.reasons,
            facts=tuple((dict(self.facts) | dict(newer.facts)).items()),
            largest_cause=newer.largest_cause or self.largest_cause,
            servers_not_ready=known,
        )


class Evidence(Findings, frozen=True):
    """What was known about the incident at a time (Unix seconds), from all sources."""

    at: float

    @classmethod
    def of(cls, findings: Findings, at: float) -> Evidence:
        """Return the findings as those of a time."""
        return cls(**(dict(findings) | {"at": at}))


class Incident(BaseModel, frozen=True):
    """Everything known about one incident; members are keyed by fingerprint.

    `receiver`, `group_labels` and `external_url` are those of the notification that opened it.
    """

    name: str
    key: str
    receiver: str
    group_labels: dict[str, str] = {}
    external_url: str = ""
    opened_at: float
    closed_at: float | None = None
    members: dict[str, Member] = {}
    recurrence: int = 0
    acknowledged: Mark | None = None
    silence: Silence | None = None
    escalated_at: float | None = None
    released_at: float | None = None
    """Since when nobody has it: it was handed back, or became more urgent than what was acknowledged."""
    peak: str = ""
    """The most urgent severity that has fired; incidents of older bridges do not know it."""
    raised_at: float | None = None
    """When it became more urgent, or the last page began."""
    eased_at: float | None = None
    """Since when nothing as urgent as `peak` fires."""
    evidence: Evidence | None = None
    earliest: float | None = None
    """When its first alert started, where that alert has fired again since."""
    passed: dict[str, float] = {}
    """Starts of alerts whose end was reported, but not that they fired: that report may be late."""

    @property
    def open(self) -> bool:
        return self.closed_at is None

    @property
    def firing(self) -> tuple[Member, ...]:
        return tuple(member for member in self.members.values() if member.firing)

    @property
    def severity(self) -> str:
        """The most urgent severity among what fires, or among all when nothing does."""
        return min((m.severity for m in self.firing or self.members.values()), key=SEVERITIES.index)

    @property
    def silenced(self) -> bool:
        """Whether a silence made from here covers everything that fires."""
        return self.silence is not None and all(map(self.silence.covers, self.firing))

    @property
    def matchers(self) -> list[tuple[Matcher, ...]]:
        """What each silence of this incident matches, its lead first."""
        lead = self.lead
        members = [lead, *(member for member in self.firing or self.members.values() if member is not lead)]
        return sets_of_alerts(sorted(self.group_labels), [member.labels for member in members])

    @property
    def evidence_is_due(self) -> bool:
        """Whether nothing was found out since the incident opened, became more urgent or ended."""
        decided_at = max(self.opened_at, self.raised_at or 0.0, self.closed_at or 0.0)
        return self.evidence is None or self.evidence.at < decided_at

    @property
    def lead(self) -> Member:
        """The alert that names the trouble best: a cause before the objective that it breaks."""
        members = self.firing or tuple(self.members.values())
        first = min(
            members,
            key=lambda member: (_of_objective(member), SEVERITIES.index(member.severity), member.starts_at),
        )
        if first.name not in NOT_READY:
            return first
        return next((member for member in members if member.name == LOAD_FAILED), first)

    @property
    def since(self) -> float:
        """When the first of its alerts started."""
        starts = [member.starts_at for member in self.members.values()]
        return min(starts if self.earliest is None else [self.earliest, *starts])

    @property
    def ended_at(self) -> float:
        """When the last of its alerts that have ended did."""
        ends = [member.ends_at for member in self.members.values() if member.ends_at is not None]
        return max([self.since, *ends])


class Event(BaseModel, frozen=True):
    """One change to report: `count` members, some of them named, with the names and summaries of their alerts.

    `text` is the severity of alerts that fired, were raised or ended while others fire.
    """

    at: float
    kind: EventKind
    count: int = 0
    subjects: tuple[str, ...] = ()
    alerts: tuple[str, ...] = ()
    summaries: tuple[str, ...] = ()
    by: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Fold:
    """What a notification did to an incident; `unreported` are changes without a line in the thread, and why.

    `held` is the part of it that contradicts what is known, and did nothing.
    """

    incident: Incident | None
    events: tuple[Event, ...]
    outcome: Outcome
    unreported: tuple[tuple[Member, str], ...] = ()
    held: Notification | None = None


def fold(
    current: Incident | None,
    notification: Notification,
    now: float,
    *,
    key: str = "",
    earlier: Sequence[Incident] = (),
    trust: bool = False,
    may_fire: Callable[[str, Member], bool] = lambda _name, _member: False,
    recurrence: int = 0,
) -> Fold:
    """Merge what a notification reports about a subject (`key`) into the subject's newest incident.

    `earlier` are older incidents of the subject, the oldest first. Held is an alert that was resolved and is
    reported as firing with the same start: either the notification is late or the alert is back. Held is also the
    end of an alert that an "all resolved" does not list, if the alert `may_fire`, silenced or inhibited. The caller
    merges what was held after a while with `trust=True`, which takes the notification at its word.
    """
    known: dict[str, Member] = {}
    passed: dict[str, float] = {}
    for incident in (*earlier, *([current] if current is not None else ())):
        known.update(incident.members)
        passed.update(incident.passed)
    held = {
        name: alert
        for name, alert in notification.alerts.items()
        if not trust and _contested(known.get(name), passed.get(name, -math.inf), alert)
    }
    rest = notification.about(
        {
            name: _again(known.get(name), passed.get(name), alert)
            for name, alert in notification.alerts.items()
            if name not in held
        }
    )
    silent: set[str] = set()
    if current is None or not current.open:
        result = _next(current, rest, now, known, key or notification.key, recurrence)
    else:
        unlisted = {name for name, member in current.members.items() if notification.omits(name, member)}
        silent = {name for name in unlisted if may_fire(name, current.members[name])}
        result = _merge(current, rest, now, unlisted - silent)
    if held or (silent and not trust):
        return replace(result, outcome="held", held=notification.about(held))
    return result


def _next(
    current: Incident | None,
    notification: Notification,
    now: float,
    known: Mapping[str, Member],
    key: str,
    recurrence: int,
) -> Fold:
    """Open a subject's next incident where a notification reports something new; `current` has ended."""
    news = {name: alert for name, alert in notification.alerts.items() if _is_news(known.get(name), alert)}
    firing = {name: alert for name, alert in news.items() if alert.firing}
    ended = {name: alert for name, alert in news.items() if not alert.firing}
    if not firing and current is not None:
        # An end that belongs to no firing that was reported, such as that of an alert that was inhibited.
        ended = {name: alert for name, alert in ended.items() if alert.starts_at > (current.closed_at or now)}
    if not (firing or ended):
        after = current.model_copy(update={"passed": _passed(current, news)}) if current is not None else None
        reasons = tuple((alert, _UNSEEN) for name, alert in news.items() if name not in known)
        return Fold(after, (), "repeated" if current is not None else "stale", reasons)
    base = Incident(
        name=_name(key, now, current),
        key=key,
        receiver=notification.receiver,
        group_labels=notification.group_labels,
        external_url=notification.external_url,
        opened_at=now,
        recurrence=recurrence,
        passed={name: alert.starts_at for name, alert in ended.items()} if firing else {},
    )
    opened = _merge(base, notification.about(firing or ended), now)
    reasons = tuple((alert, _UNSEEN) for alert in ended.values() if firing)
    return Fold(opened.incident, opened.events, "opened", opened.unreported + reasons)


def subject(labels: Mapping[str, str]) -> str:
    """Name what an alert is about: model and version, GPU, or instance."""
    names = subject_names(labels)
    if not names:
        return labels.get("alertname", "alert")
    return f"{labels['model']} v{labels['version']}" if "version" in names else labels[names[0]]


def _contested(member: Member | None, passed: float, alert: Member) -> bool:
    """Return whether an alert is reported as firing whose end is known."""
    if not alert.firing or (member is not None and member.firing):
        return False
    return alert.starts_at <= max(passed, member.starts_at if member is not None else passed)


def _is_news(member: Member | None, alert: Member) -> bool:
    if member is None or alert.starts_at > member.starts_at:
        return True
    return alert.firing and not member.firing


def _name(key: str, now: float, previous: Incident | None) -> str:
    salt = f"{key}|{now!r}|{previous.name if previous is not None else ''}"
    return hashlib.sha256(salt.encode("utf-8", "replace")).hexdigest()[:8]


_UNSEEN = "ended; it was not reported while it fired"
_SIBLING = "a more urgent alert of the same objective fires"


def _merge(current: Incident, notification: Notification, now: float, unlisted: Container[str] = ()) -> Fold:
    """Merge what a notification reports into an open incident; the `unlisted` of its alerts have ended."""
    members = dict(current.members)
    fired: list[Member] = []
    resolved: list[Member] = []
    unseen: dict[str, Member] = {}
    for fingerprint, alert in notification.alerts.items():
        before = members.get(fingerprint)
        if before is None and not alert.firing and current.members:
            # Of an earlier incident, or inhibited while it fired: not a part of this one.
            unseen[fingerprint] = alert
            continue
        after = _updated(before, alert)
        members[fingerprint] = after
        if after.firing and (before is None or not before.firing):
            fired.append(after)
        elif not after.firing and (before is None or before.firing):
            resolved.append(after)
    for fingerprint, member in members.items():
        if member.firing and fingerprint in unlisted:
            members[fingerprint] = member.model_copy(update={"ends_at": now})
            resolved.append(members[fingerprint])
    firing = [member for member in members.values() if member.firing]
    changes = {"members": members, "closed_at": None if firing else now, "passed": _passed(current, unseen)}
    after_all = current.model_copy(update=changes)
    quiet = [member for member in fired if _has_sibling(member, firing, more_urgent=True)]
    if firing:
        quiet += [member for member in resolved if _has_sibling(member, firing, more_urgent=False)]
    unreported = [(alert, _UNSEEN) for alert in unseen.values()]
    unreported += [(member, _SIBLING) for member in quiet]
    fired, resolved = ([member for member in some if member not in quiet] for some in (fired, resolved))
    if current.members and after_all.since > current.since:
        after_all = after_all.model_copy(update={"earliest": current.since})
    after_all, raised_by = record_severity(current, after_all, now)
    events = _events(after_all, fired, resolved, now, raised_by)
    changed = bool(events) or after_all != current
    return Fold(after_all, events, "changed" if changed else "repeated", tuple(unreported))


def _passed(incident: Incident, unseen: Mapping[str, Member]) -> dict[str, float]:
    return {**incident.passed, **{name: alert.starts_at for name, alert in unseen.items()}}


def _has_sibling(member: Member, firing: Sequence[Member], *, more_urgent: bool) -> bool:
    """Return whether another tier of the same objective fires."""
    return TIER in member.labels and any(
        other is not member
        and all(other.labels.get(name) == member.labels.get(name) for name in ("alertname", SLO, *GROUPING))
        and (not more_urgent or _urgency(other) < _urgency(member))
        for other in firing
    )


def _urgency(member: Member) -> tuple[int, str]:
    return SEVERITIES.index(member.severity), member.labels.get(URGENCY, "")


def _of_objective(member: Member) -> bool:
    return member.labels.get(COMPONENT) == "slo" or SLO in member.labels


def record_severity(before: Incident, after: Incident, now: float) -> tuple[Incident, str | None]:
    """Record the most urgent severity; where it rose, nobody has the incident and escalation starts again.

    The second value is None unless it rose, else who had acknowledged the less urgent incident.
    """
    known = before.peak or (before.severity if before.members else "")
    if not after.firing or not known:
        return after.model_copy(update={"peak": known or after.severity}), None
    severity = after.severity
    if SEVERITIES.index(severity) > SEVERITIES.index(known):
        return after.model_copy(update={"peak": known, "eased_at": before.eased_at or now}), None
    again = before.eased_at is not None and (
        before.acknowledged is None or now - before.eased_at >= CALM_SECONDS
    )
    after = after.model_copy(update={"peak": severity, "eased_at": None})
    if severity == known and not (again and severity == SEVERITIES[0]):
        return after, None
    had = before.acknowledged.by if before.acknowledged is not None else ""
    return after.model_copy(
        update={"acknowledged": None, "escalated_at": None, "released_at": now, "raised_at": now}
    ), had


def _updated(before: Member | None, alert: Member) -> Member:
    """Return the member's new state: the reported one, unless what is known is newer."""
    if before is None:
        return alert
    if (
        not alert.firing
        and alert.starts_at < before.starts_at
        and (alert.source != before.source or (alert.ends_at or 0.0) <= before.starts_at)
    ):
        # The end of an earlier firing, reported late. One Alertmanager moves a start back, though, when a second
        # Prometheus sends an earlier one.
        return before
    if not before.firing:
        known = not alert.firing and alert.starts_at <= before.starts_at
        return before if known else _again(before, None, alert)
    if not alert.firing:
        return alert
    if before.earlier_end is not None and alert.starts_at <= before.earlier_end < before.starts_at:
        # A late peer still reports the firing that ended: with its start, its end would end this one.
        return before
    # A repeat must not look like a change only because another peer sent it.
    return alert.model_copy(update={"source": before.source, "earlier_end": before.earlier_end})


def _again(before: Member | None, passed: float | None, alert: Member) -> Member:
    """Return an alert, and where it fires when it ended before: `passed` is a start whose end was reported."""
    ends = [end for end in (before.ends_at if before is not None else None, passed) if end is not None]
    return alert.model_copy(update={"earlier_end": max(ends)}) if alert.firing and ends else alert


def _events(
    after: Incident, fired: list[Member], resolved: list[Member], now: float, raised_by: str | None
) -> tuple[Event, ...]:
    """Return the lines of the thread: the last one names all that has ended with the incident."""
    events = []
    if raised_by is not None:
        raised = _event("raised", [member for member in fired if member.severity == after.peak], now)
        events.append(raised.model_copy(update={"by": raised_by, "text": after.peak}))
        fired = [member for member in fired if member.severity != after.peak]
    events += [_event("fired", some, now) for some in _by_severity(fired)]
    if after.open:
        events += [_event("resolved", some, now) for some in _by_severity(resolved)]
    elif resolved:
        events.append(_event("closed", resolved, now))
    return tuple(events)


def _by_severity(members: list[Member]) -> Iterator[list[Member]]:
    """Yield the pages, the tickets and the others, so that each has a line of its own."""
    for severity in SEVERITIES:
        if members_of := [member for member in members if member.severity == severity]:
            yield members_of


def _event(kind: EventKind, members: list[Member], now: float) -> Event:
    names = tuple(dict.fromkeys(subject(member.labels) for member in members))
    alerts = tuple(dict.fromkeys(member.labels.get("alertname", "alert") for member in members))
    summaries = tuple(
        dict.fromkeys(m.annotations["summary"] for m in members if m.annotations.get("summary"))
    )
    return Event(
        at=now,
        kind=kind,
        count=len(members),
        subjects=names[:NAMED_PER_EVENT],
        alerts=alerts[:SUMMARIES_PER_EVENT],
        summaries=summaries[:SUMMARIES_PER_EVENT],
        text=members[0].severity if members else "",
    )
