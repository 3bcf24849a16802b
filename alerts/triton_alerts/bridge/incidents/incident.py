"""An incident: one group of alerts from the moment one of them fires until none does.

Alertmanager's group key is the same for today's and tomorrow's incident, so an incident is a group key and
an episode. Folding a notification into an incident is a pure function; all it needs arrives as arguments.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import BaseModel

from triton_alerts.bridge.incidents.matchers import Matcher, of_alerts, subject_names
from triton_alerts.bridge.incidents.notification import Member, Notification
from triton_slo.names import SEVERITIES

NAMED_PER_EVENT = 10
"""Members an event names; the others are counted."""

SUMMARIES_PER_EVENT = 3
"""Different summaries an event repeats."""

LAST_CHANGE, GPU = "Last change", "GPU"
"""Names of facts that are shown over the whole width of a message."""
BURN_RATE, BUDGET_LEFT, SPLIT, SERVERS = "Burn rate", "Budget left", "Where it goes", "Servers"
FACTS = (BURN_RATE, BUDGET_LEFT, SPLIT, SERVERS, LAST_CHANGE, GPU)
"""Names of all facts that the sources of evidence give; docs/on-call.md explains each."""
FIRST_STEP = "First step"
"""Name of the fact that an alert's first step is chosen by: what to do about the largest cause."""

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


class Silence(BaseModel, frozen=True):
    """An Alertmanager silence made from the incident; `until_resolved` is renewed until the incident ends.

    One without matchers was made by an older bridge and matches the whole group. `alertmanager` is the URL of
    the one that has it.
    """

    id: str
    by: str
    until: float
    until_resolved: bool = False
    matchers: tuple[Matcher, ...] = ()
    alertmanager: str = ""

    def covers(self, member: Member) -> bool:
        return all(matcher.matches(member.labels) for matcher in self.matchers)


class Evidence(BaseModel, frozen=True):
    """What was found out about the incident at a time, as lines to show.

    `reasons` are Triton's own words by model and version, `facts` pairs of a label and a value.
    """

    at: float
    reasons: dict[str, str] = {}
    facts: tuple[tuple[str, str], ...] = ()


class Incident(BaseModel, frozen=True):
    """Everything known about one incident; members are keyed by fingerprint."""

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
    evidence: Evidence | None = None

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
    def matchers(self) -> tuple[Matcher, ...]:
        """What a silence of this incident matches."""
        members = self.firing or tuple(self.members.values())
        return of_alerts(self.group_labels, [member.labels for member in members])

    @property
    def since(self) -> float:
        """When the first of its alerts started."""
        return min(member.starts_at for member in self.members.values())


class Event(BaseModel, frozen=True):
    """One change to report: `count` members, some of them named, with the names and summaries of their alerts."""

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
    """What a notification did to an incident."""

    incident: Incident | None
    events: tuple[Event, ...]
    outcome: Outcome


def fold(
    current: Incident | None,
    notification: Notification,
    now: float,
    *,
    trust: bool = False,
    recurrence: int = 0,
) -> Fold:
    """Merge a notification into the group's newest incident.

    `held` means: an alert that was resolved is reported as firing, with the same start, by another Alertmanager
    than the one that resolved it. Either that peer is late or the alert is back; the caller asks again after
    a while with `trust=True`, which takes the notification at its word.
    """
    known = current.members if current is not None else {}
    contested = not trust and any(
        _contested(known.get(name), alert) for name, alert in notification.alerts.items()
    )
    if current is not None and current.open:
        merged = _merge(current, notification, now, trust)
        return replace(merged, outcome="held") if contested else merged
    news = {
        name: alert for name, alert in notification.alerts.items() if _is_news(known.get(name), alert, trust)
    }
    if not news:
        return Fold(None, (), "held" if contested else "repeated" if current is not None else "stale")
    opened = _open(notification.model_copy(update={"alerts": news}), now, recurrence, previous=current)
    return Fold(opened.incident, opened.events, "held" if contested else "opened")


def subject(labels: Mapping[str, str]) -> str:
    """Name what an alert is about: model and version, GPU, or instance."""
    names = subject_names(labels)
    if not names:
        return labels.get("alertname", "alert")
    return f"{labels['model']} v{labels['version']}" if "version" in names else labels[names[0]]


def _contested(member: Member | None, alert: Member) -> bool:
    """Return whether an Alertmanager reports as firing what another one reported as ended."""
    return (
        member is not None
        and not member.firing
        and alert.firing
        and alert.starts_at <= member.starts_at
        and alert.source != member.source
    )


def _is_news(member: Member | None, alert: Member, trust: bool) -> bool:
    if member is None or alert.starts_at > member.starts_at:
        return True
    return alert.firing and not member.firing and (trust or not _contested(member, alert))


def _open(notification: Notification, now: float, recurrence: int, previous: Incident | None) -> Fold:
    base = Incident(
        name=_name(notification.key, now, previous),
        key=notification.key,
        receiver=notification.receiver,
        group_labels=notification.group_labels,
        external_url=notification.external_url,
        opened_at=now,
        recurrence=recurrence,
    )
    return _merge(base, notification, now, trust=True)


def _name(key: str, now: float, previous: Incident | None) -> str:
    salt = f"{key}|{now!r}|{previous.name if previous is not None else ''}"
    return hashlib.sha256(salt.encode("utf-8", "replace")).hexdigest()[:8]


def _merge(current: Incident, notification: Notification, now: float, trust: bool) -> Fold:
    members = dict(current.members)
    fired: list[Member] = []
    resolved: list[Member] = []
    passed: list[Member] = []
    for fingerprint, alert in notification.alerts.items():
        before = members.get(fingerprint)
        after = _updated(before, alert, trust)
        members[fingerprint] = after
        if after.firing and (before is None or not before.firing):
            fired.append(after)
        elif not after.firing and before is None and current.members:
            passed.append(after)  # Alertmanager reports its end alone: it was inhibited, or too short
        elif not after.firing and (before is None or before.firing):
            resolved.append(after)
    if notification.all_resolved and not notification.truncated:
        # Nothing else of this group is notified about by this Alertmanager: the alerts that it sent before and does
        # not list have ended too. A twin may never have had the alerts of another one, and an alert that is
        # silenced from here is not listed while it fires: whether it ended is asked.
        for fingerprint, member in members.items():
            hidden = current.silence is not None and current.silence.covers(member)
            unlisted = member.source == notification.source and fingerprint not in notification.alerts
            if member.firing and unlisted and not hidden:
                members[fingerprint] = member.model_copy(update={"ends_at": now})
                resolved.append(members[fingerprint])
    closed_at = None if any(member.firing for member in members.values()) else now
    after_all = current.model_copy(update={"members": members, "closed_at": closed_at})
    events = _events(fired, resolved, passed, now, closed=closed_at is not None)
    after_all, raised = _raise(current, after_all, now)
    events += raised
    changed = bool(events) or after_all != current
    return Fold(after_all, events, "changed" if changed else "repeated")


def _raise(before: Incident, after: Incident, now: float) -> tuple[Incident, tuple[Event, ...]]:
    """Record the most urgent severity; where it rose, nobody has the incident and escalation starts again."""
    known = before.peak or (before.severity if before.members else "")
    peak = min(
        filter(None, (known, *(member.severity for member in after.firing))), key=SEVERITIES.index, default=""
    )
    after = after.model_copy(update={"peak": peak})
    if not known or peak == known:
        return after, ()
    had = before.acknowledged.by if before.acknowledged is not None else ""
    after = after.model_copy(update={"acknowledged": None, "escalated_at": None, "released_at": now})
    return after, (Event(at=now, kind="raised", by=had, text=peak),)


def _updated(before: Member | None, alert: Member, trust: bool) -> Member:
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
        return before if known or (not trust and _contested(before, alert)) else alert
    # A repeat must not look like a change only because another peer sent it.
    return alert.model_copy(update={"source": before.source}) if alert.firing else alert


def _events(
    fired: list[Member], resolved: list[Member], passed: list[Member], now: float, *, closed: bool
) -> tuple[Event, ...]:
    events = []
    if fired:
        events.append(_event("fired", fired, now))
    if resolved:
        events.append(_event("resolved", resolved, now))
    if passed:
        events.append(_event("passed", passed, now))
    if closed and (fired or resolved):
        events.append(Event(at=now, kind="closed"))
    return tuple(events)


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
    )
