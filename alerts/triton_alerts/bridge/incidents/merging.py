"""Merge what a notification reports into the incident of its subject: a pure function of its arguments.

At the end: the highest severity of an incident, when it becomes more urgent, and when its fault ends and comes back.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from triton_alerts.bridge.incidents.incident import (
    Event,
    EventKind,
    Incident,
    Outcome,
    beside,
    identity,
    is_not_served,
    subject_text,
    title_of,
)
from triton_alerts.bridge.incidents.notification import Member, Notification
from triton_exporter.common.moments import hour_text
from triton_slo.names import SEVERITIES, TIER, URGENCY, severity_rank

NAMED_PER_EVENT = 10
"""Members an event names; the others are counted."""

SUMMARIES_PER_EVENT = 3
"""Different summaries an event repeats."""

_UNSEEN = "ended; it was not reported while it fired"
_SIBLING = "another alert of the same objective fires, or one that is more urgent did meanwhile"


@dataclass(frozen=True, slots=True)
class MergeResult:
    """Effect of a notification on an incident; `unreported` are changes without a line in the thread, and why.

    `held` is the part of the notification that contradicts what is known, and that was not merged.
    """

    incident: Incident | None
    events: tuple[Event, ...]
    outcome: Outcome
    unreported: tuple[tuple[Member, str], ...] = ()
    held: Notification | None = None


def merge_notification(
    current: Incident | None,
    notification: Notification,
    now: float,
    *,
    key: str = "",
    earlier: Sequence[Incident] = (),
    trust: bool = False,
    may_still_fire: Callable[[str, Member], bool] = lambda _fingerprint, _member: False,
    recurrence: int = 0,
) -> MergeResult:
    """Merge what a notification reports about a subject (`key`) into the subject's newest incident.

    `earlier` are older incidents of the subject, the oldest first. An alert that was resolved, and is reported as
    firing with the same start, is `held`: either the notification is late, or the alert fires again. The end of an
    alert that a notification omits is `held`, too, if the alert `may_still_fire`, silenced or inhibited. After a
    while the caller merges the `held` part with `trust=True`, which leaves nothing out.
    """
    known: dict[str, Member] = {}
    starts_of_unseen: dict[str, float] = {}
    for incident in (*earlier, *([current] if current is not None else ())):
        known.update(incident.members)
        starts_of_unseen.update(incident.starts_of_unseen)
    held = {
        fingerprint: alert
        for fingerprint, alert in notification.alerts.items()
        if not trust
        and _contested(known.get(fingerprint), starts_of_unseen.get(fingerprint, -math.inf), alert)
    }
    believed = notification.about(
        {
            fingerprint: _with_earlier_end(known.get(fingerprint), starts_of_unseen.get(fingerprint), alert)
            for fingerprint, alert in notification.alerts.items()
            if fingerprint not in held
        }
    )
    not_ended: set[str] = set()
    if current is None or not current.open:
        result = _open_next(current, believed, now, known, key or notification.key, recurrence)
    else:
        members = current.members
        unlisted = {each for each, member in members.items() if notification.omits(each, member)}
        not_ended = {each for each in unlisted if may_still_fire(each, members[each])}
        result = _merge_into(current, believed, now, unlisted - not_ended)
    if held or (not_ended and not trust):
        return replace(result, outcome="held", held=notification.about(held))
    return result


def _open_next(
    current: Incident | None,
    notification: Notification,
    now: float,
    known: Mapping[str, Member],
    key: str,
    recurrence: int,
) -> MergeResult:
    """Open a subject's next incident where a notification reports something new; `current` has ended."""
    alerts = notification.alerts.items()
    news = {fingerprint: alert for fingerprint, alert in alerts if _is_news(known.get(fingerprint), alert)}
    firing = {fingerprint: alert for fingerprint, alert in news.items() if alert.firing}
    ended = {fingerprint: alert for fingerprint, alert in news.items() if not alert.firing}
    if not firing and current is not None:
        # The end of an alert that no notification reported as firing, for example because it was inhibited.
        closed_at = current.closed_at or now
        ended = {fingerprint: alert for fingerprint, alert in ended.items() if alert.starts_at > closed_at}
    if not (firing or ended):
        after = _with_unseen(current, news) if current is not None else None
        reasons = tuple((alert, _UNSEEN) for fingerprint, alert in news.items() if fingerprint not in known)
        return MergeResult(after, (), "repeated" if current is not None else "stale", reasons)
    base = Incident(
        name=_incident_name(key, now, current),
        key=key,
        receiver=notification.receiver,
        group_labels=notification.group_labels,
        external_url=notification.external_url,
        opened_at=now,
        recurrence=recurrence,
        starts_of_unseen={fingerprint: alert.starts_at for fingerprint, alert in ended.items()}
        if firing
        else {},
    )
    opened = _merge_into(base, notification.about(firing or ended), now)
    reasons = tuple((alert, _UNSEEN) for alert in ended.values() if firing)
    return MergeResult(opened.incident, opened.events, "opened", opened.unreported + reasons)


def _contested(member: Member | None, unseen_start: float, alert: Member) -> bool:
    """Return whether an alert is reported as firing although its end is known."""
    if not alert.firing or (member is not None and member.firing):
        return False
    return alert.starts_at <= max(unseen_start, member.starts_at if member is not None else unseen_start)


def _is_news(member: Member | None, alert: Member) -> bool:
    if member is None or alert.starts_at > member.starts_at:
        return True
    return alert.firing and not member.firing


def _incident_name(key: str, now: float, previous: Incident | None) -> str:
    salt = f"{key}|{now!r}|{previous.name if previous is not None else ''}"
    return hashlib.sha256(salt.encode("utf-8", "replace")).hexdigest()[:8]


def _merge_into(
    current: Incident, notification: Notification, now: float, unlisted: Container[str] = ()
) -> MergeResult:
    """Merge what a notification reports into an open incident; the `unlisted` of its alerts have ended."""
    members = dict(current.members)
    fired: list[Member] = []
    resolved: list[Member] = []
    unseen: dict[str, Member] = {}
    for fingerprint, alert in notification.alerts.items():
        before = members.get(fingerprint)
        if before is None and not alert.firing and current.members:
            # An alert of an earlier incident, or one that was inhibited while it fired: not part of this incident.
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
    changes = {"members": members, "closed_at": None if firing else now}
    merged = _with_unseen(current, unseen).model_copy(update=changes)
    known: Iterable[Member] = firing if becomes_more_urgent(current, merged, now) else members.values()
    siblings = [
        member
        for member in fired
        if _is_old_news(member, known)
        or any(
            _is_tier_beside(member, each) and each.firing and each.severity == member.severity
            for each in current.members.values()
        )
    ]
    siblings += [
        member
        for member in resolved
        if any(
            _is_tier_beside(member, each) and severity_rank(each.severity) <= severity_rank(member.severity)
            for each in firing
        )
    ]
    unreported = [(alert, _UNSEEN) for alert in unseen.values()]
    unreported += [(member, _SIBLING) for member in siblings]
    fired, resolved = ([member for member in some if member not in siblings] for some in (fired, resolved))
    if current.members and merged.fired_at > current.fired_at:
        merged = merged.model_copy(update={"earliest": current.fired_at})
    merged = record_severity(current, merged, now)
    events = thread_events(current, merged, fired, resolved, now)
    changed = bool(events) or merged != current
    return MergeResult(merged, events, "changed" if changed else "repeated", tuple(unreported))


def _with_unseen(incident: Incident, unseen: Mapping[str, Member]) -> Incident:
    starts = {fingerprint: alert.starts_at for fingerprint, alert in unseen.items()}
    return incident.model_copy(update={"starts_of_unseen": {**incident.starts_of_unseen, **starts}})


def _is_old_news(member: Member, others: Iterable[Member]) -> bool:
    """Return whether a more urgent tier of the objective fires, or ended after this one began.

    Alertmanager reports a slower tier when the faster one, which inhibited it, ends: the end of a fault, and no new one.
    """
    return any(
        _is_tier_beside(member, other)
        and _urgency_rank(other) < _urgency_rank(member)
        and (other.firing or (other.ends_at or 0.0) >= member.starts_at)
        for other in others
    )


def _is_tier_beside(member: Member, other: Member) -> bool:
    """Return whether these are two tiers of one objective."""
    same = identity(other.labels) == identity(member.labels)
    return TIER in member.labels and other is not member and same


def _urgency_rank(member: Member) -> tuple[int, str]:
    return severity_rank(member.severity), member.labels.get(URGENCY, "")


def _updated(before: Member | None, alert: Member) -> Member:
    """Return the member's new state: the reported one, unless the stored one is newer."""
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
        return before if known else _with_earlier_end(before, None, alert)
    if not alert.firing:
        return alert
    if before.earlier_end is not None and alert.starts_at <= before.earlier_end < before.starts_at:
        # A late peer still reports the firing that ended: with its start, its end would end this one.
        return before
    # A repetition by another peer is not a change of the alert.
    return alert.model_copy(update={"source": before.source, "earlier_end": before.earlier_end})


def _with_earlier_end(before: Member | None, unseen_start: float | None, alert: Member) -> Member:
    """Return the alert; if it fires, with the latest of its known ends and unseen starts as its earlier end."""
    ends = [end for end in (before.ends_at if before is not None else None, unseen_start) if end is not None]
    return alert.model_copy(update={"earlier_end": max(ends)}) if alert.firing and ends else alert


def thread_events(
    before: Incident, after: Incident, fired: list[Member], resolved: list[Member], now: float
) -> tuple[Event, ...]:
    """Return the lines of the thread; if the incident has ended, the last one names all alerts that ended."""
    events = []
    if becomes_more_urgent(before, after, now):
        raised = _event("raised", [member for member in fired if member.severity == after.peak], now)
        previous_acknowledger = before.acknowledged.by if before.acknowledged is not None else ""
        events.append(raised.model_copy(update={"by": previous_acknowledger, "severity": after.peak}))
        fired = [member for member in fired if member.severity != after.peak]
    for some in _by_severity(fired):
        words = "already over" if before.members and all(map(after.is_over, some)) else ""
        events.append(_event("fired", some, now).model_copy(update={"words": words}))
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
    names = tuple(dict.fromkeys(subject_text(member.labels) for member in members))
    alerts = tuple(dict.fromkeys(member.labels.get("alertname", "alert") for member in members))
    said = (beside(member) or member.annotations.get("summary", "") for member in members)
    summaries = tuple(dict.fromkeys(filter(None, said)))
    return Event(
        at=now,
        kind=kind,
        count=len(members),
        subjects=names[:NAMED_PER_EVENT],
        alerts=alerts[:SUMMARIES_PER_EVENT],
        summaries=summaries[:SUMMARIES_PER_EVENT],
        severity=members[0].severity if members else "",
    )


CALM_SECONDS = 3600.0
"""Time after the last page ended from which a page is a new one: the acknowledgement does not count."""
RECALL_SECONDS = 900.0
"""Least time between two calls about faults that come and go while their alerts fire on."""


def becomes_more_urgent(before: Incident, after: Incident, now: float) -> bool:
    """Return whether a higher severity fires than ever before in the incident, or a page again or about worse.

    A page that fires again counts if nobody has acknowledged the incident, or CALM_SECONDS after the last one. One
    that says that nothing serves, which no alert has said before, counts if nobody has acknowledged the incident.
    """
    peak, severity = _peak(before), after.severity
    if not peak or not after.firing:
        return False
    if severity != peak:
        return severity_rank(severity) < severity_rank(peak)
    back = _back_at(before, after, now)
    fires_again = back is not None and (
        before.acknowledged is None or back - (before.eased_at or 0.0) >= CALM_SECONDS
    )
    says_worse = (
        before.acknowledged is None
        and any(map(is_not_served, after.firing))
        and not any(map(is_not_served, before.members.values()))
    )
    return (fires_again or says_worse) and severity == SEVERITIES[0]


def _back_at(before: Incident, after: Incident, now: float) -> float | None:
    """Return when the worst began again that had ended: an alert fires, or a fault came back whose alert fires on.

    A fault that comes and goes, or is silenced, is back once somebody may be called about it.
    """
    if before.eased_at is None:
        return None
    worst, known = (
        {identity(member.labels) for member in incident.firing if member.severity == after.severity}
        for incident in (after, before)
    )
    if worst - known:
        return now
    facts = after.source_facts
    if after.evidence is before.evidence or facts.over:
        return None
    waits = after.silenced or now - (before.recalled_at or -math.inf) < RECALL_SECONDS
    return facts.again if not waits and (facts.again or 0.0) >= before.eased_at else None


def over_or_back(before: Incident, after: Incident, now: float) -> tuple[Incident, tuple[Event, ...]]:
    """Return an open incident whose evidence is newer, with a line where its fault is over, or came back.

    The alert fires on meanwhile, because it looks back. Each is said once.
    """
    facts, lead = after.source_facts, after.lead_key
    if not after.open:
        return after, ()
    if after.pages_are_over and after.severity == SEVERITIES[0]:
        after = after.model_copy(update={"eased_at": after.eased_at or now})
    if facts.over and lead not in after.told_over:
        words = f"🟡 Over: {title_of(after)}; {facts.over}. The alert fires on for a while: it looks back"
        # Where all urgent was over, what leads now was told with it.
        told = bool(after.told_over) and before.eased_at is not None
        events = () if told else (Event(at=now, kind="note", words=words),)
        return after.model_copy(update={"told_over": (*after.told_over, lead)}), events
    back, urgent = facts.again != before.source_facts.again, becomes_more_urgent(before, after, now)
    if not facts.again or not (back or urgent):
        return after, ()
    words = (
        f"{title_of(after)} · since {hour_text(after.since, now)}, again since {hour_text(facts.again, now)}"
    )
    after = record_severity(before, after, now)
    told_over = tuple(name for name in after.told_over if name != lead)
    after = after.model_copy(update={"told_over": told_over})
    if not urgent:
        told = (before.raised_at or 0.0) >= facts.again  # its page fired again meanwhile
        return after, () if told else (Event(at=now, kind="note", words=f"It fails again: {words}"),)
    again = _event("raised", [after.lead], now)
    by = before.acknowledged.by if before.acknowledged is not None else ""
    return after, (again.model_copy(update={"by": by, "words": words}),)


def record_severity(before: Incident, after: Incident, now: float) -> Incident:
    """Return the incident with its highest severity, and since when nothing as urgent fires."""
    peak, severity = _peak(before), after.severity
    if not peak or not after.firing:
        return after.model_copy(update={"peak": peak or severity})
    if severity_rank(severity) > severity_rank(peak):
        return after.model_copy(update={"peak": peak, "eased_at": before.eased_at or now})
    ended = before.eased_at if _back_at(before, after, now) is None else None
    after = after.model_copy(update={"peak": severity, "eased_at": ended})
    if not becomes_more_urgent(before, after, now):
        return after
    # The acknowledgement was of a less urgent incident, so escalation starts again.
    started_again = {"acknowledged": None, "escalated_at": None, "released_at": now, "raised_at": now}
    recalled_at = now if before.eased_at is not None else before.recalled_at
    return after.model_copy(update={**started_again, "eased_at": None, "recalled_at": recalled_at})


def _peak(incident: Incident) -> str:
    """Return the highest severity of an incident so far; empty for one without alerts."""
    return incident.peak or (incident.severity if incident.members else "")
