"""Merge what a notification reports into the incident of its subject: a pure function of its arguments.

At the end: what is known of the fault of each alert that fires (`judge`), and when somebody is called about it.

| the fault was | Prometheus says | it is | said of a page |
|---|---|---|---|
| not known | it fails, or nothing | failing since then, at the latest since its alert | that the alert fires |
| not known | it is over | over | that the alert fires, already over |
| failing | it is over | over since then | over, once nothing as urgent fails |
| over | it fails | failing again since then | it fails again, with a call |
| known | the same, or nothing | as it was | nothing |
| known | its alert fires anew | not known | as before |
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from triton_alerts.bridge.incidents.incident import (
    OTHER_SECONDS,
    Event,
    EventKind,
    Evidence,
    Fault,
    Incident,
    Outcome,
    beside,
    is_not_served,
    is_same,
    is_tier_beside,
    key_of,
    subject_text,
    summary_of,
    title_of,
)
from triton_alerts.bridge.incidents.notification import Member, Notification
from triton_exporter.common.moments import hour_text
from triton_slo.names import SEVERITIES, URGENCY, severity_rank

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
    current_name = current.name if current is not None else ""
    base = Incident(
        name=hashlib.sha256(f"{key}|{now!r}|{current_name}".encode("utf-8", "replace")).hexdigest()[:8],
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
    merged = _anew(current, _with_unseen(current, unseen).model_copy(update=changes))
    urgent = becomes_more_urgent(current, merged, now)
    known: Iterable[Member] = firing if urgent else members.values()
    siblings = [
        member
        for member in fired
        if _is_old_news(member, known)
        or any(
            is_tier_beside(member, each) and each.firing and each.severity == member.severity
            for each in current.members.values()
        )
    ]
    siblings += [
        member
        for member in resolved
        if any(
            is_tier_beside(member, each) and severity_rank(each.severity) <= severity_rank(member.severity)
            for each in firing
        )
    ]
    unreported = [(alert, _UNSEEN) for alert in unseen.values()]
    unreported += [(member, _SIBLING) for member in siblings]
    fired, resolved = ([member for member in some if member not in siblings] for some in (fired, resolved))
    if current.members and merged.fired_at > current.fired_at:
        merged = merged.model_copy(update={"earliest": current.fired_at})
    merged, events = reported(current, merged, fired, resolved, now, urgent=urgent)
    changed = bool(events) or merged != current
    return MergeResult(merged, events, "changed" if changed else "repeated", tuple(unreported))


def _with_unseen(incident: Incident, unseen: Mapping[str, Member]) -> Incident:
    starts = {fingerprint: alert.starts_at for fingerprint, alert in unseen.items()}
    return incident.model_copy(update={"starts_of_unseen": {**incident.starts_of_unseen, **starts}})


def _anew(before: Incident, after: Incident) -> Incident:
    """Forget what is known of the fault of an alert that fires, and did not, or only less urgently."""
    if after.evidence is None:
        return after
    least_urgent_first = sorted(before.firing, key=lambda member: -severity_rank(member.severity))
    known = {key_of(member.labels): severity_rank(member.severity) for member in least_urgent_first}
    anew = {
        key
        for member in after.firing
        if severity_rank(member.severity) < known.get(key := key_of(member.labels), math.inf)
    }
    faults = {key: fault for key, fault in after.evidence.faults.items() if key not in anew}
    return after.model_copy(update={"evidence": after.evidence.model_copy(update={"faults": faults})})


def _is_old_news(member: Member, others: Iterable[Member]) -> bool:
    """Return whether a more urgent tier of the objective fires, or ended after this one began.

    Alertmanager reports a slower tier when the faster one, which inhibited it, ends: the end of a fault, and no new one.
    """
    return any(
        is_tier_beside(member, other)
        and _urgency_rank(other) < _urgency_rank(member)
        and (other.firing or (other.ends_at or 0.0) >= member.starts_at)
        for other in others
    )


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


def reported(
    before: Incident,
    after: Incident,
    fired: list[Member],
    resolved: list[Member],
    now: float,
    *,
    urgent: bool,
) -> tuple[Incident, tuple[Event, ...]]:
    """Return the incident with its highest severity, and the lines of the thread; the last one of an incident that has
    ended names all alerts that ended. Where it is more `urgent`, somebody is called."""
    peak, events = _peak(before) or after.severity, []
    if urgent:
        raised = _event("raised", [member for member in fired if member.severity == after.severity], now)
        again = after.severity == peak
        by = before.acknowledged.by if before.acknowledged is not None else ""
        changes = {"by": by, "severity": after.severity, "again": again}
        events.append(raised.model_copy(update=changes))
        fired = [member for member in fired if member.severity != after.severity]
        after, peak = _called(after, now, again=again), after.severity
    events += [_event("fired", some, now) for some in _by_severity(fired)]
    if after.open:
        events += [_event("resolved", some, now) for some in _by_severity(resolved)]
    elif resolved:
        events.append(_event("closed", resolved, now))
    return after.model_copy(update={"peak": peak}), tuple(events)


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
    keys = tuple(dict.fromkeys(key_of(member.labels) for member in members))
    return Event(
        at=now,
        kind=kind,
        count=len(members),
        subjects=names[:NAMED_PER_EVENT],
        alerts=alerts[:SUMMARIES_PER_EVENT],
        summaries=summaries[:SUMMARIES_PER_EVENT],
        severity=members[0].severity if members else "",
        keys=keys if len(keys) <= NAMED_PER_EVENT else (),
    )


CALM_SECONDS = 3600.0
"""Time after the last page ended from which a page is a new one: the acknowledgement does not count."""
RECALL_SECONDS = 900.0
"""Least time between two calls about faults that come and go while their alerts fire on."""


def becomes_more_urgent(before: Incident, after: Incident, now: float) -> bool:
    """Return whether alerts began that are more urgent than ever before in the incident, or a page again or about worse.

    A page where none failed counts if nobody has acknowledged the incident, CALM_SECONDS after the last one, or for
    another alert after OTHER_SECONDS. One that says that nothing serves, which no alert that fires has said, counts
    if nobody has acknowledged the incident.
    """
    peak, severity = _peak(before), after.severity
    if not peak or not after.failing:
        return False
    if severity != peak:
        return severity_rank(severity) < severity_rank(peak)
    free, over_at = before.acknowledged is None, before.pages_over_at
    known = {key_of(member.labels) for member in before.members.values()}
    is_other = any(key_of(member.labels) not in known for member in after.failing)
    patience = 0.0 if free else OTHER_SECONDS if is_other else CALM_SECONDS
    begins = over_at is not None and now - over_at >= patience
    says_worse = (
        free and any(map(is_not_served, after.failing)) and not any(map(is_not_served, before.firing))
    )
    return (begins or says_worse) and severity == SEVERITIES[0]


def _called(incident: Incident, now: float, *, again: bool) -> Incident:
    # The acknowledgement was of what was before, so escalation starts again.
    changes = {"acknowledged": None, "escalated_at": None, "released_at": now}
    return incident.model_copy(update=changes | ({"recalled_at": now} if again else {}))


def _peak(incident: Incident) -> str:
    """Return the highest severity of an incident so far; empty for one without alerts."""
    return incident.peak or (incident.severity if incident.members else "")


def judge(asked: Iterable[str], evidence: Evidence, before: Incident) -> tuple[Incident, tuple[Event, ...]]:
    """Return an incident with newer evidence, and what is said where faults are over or come back: each once.

    `asked` are the alerts (`key_of`) that it is about: others began since.
    """
    known = before.evidence or Evidence(at=evidence.at)
    in_order = sorted(before.members.values(), key=lambda member: member.starts_at)
    fired = {key_of(member.labels): member.starts_at for member in in_order}
    faults = {key: _moved(key, known, evidence, fired.get(key, 0.0)) for key in asked}
    judged = evidence.model_copy(update={"faults": known.faults | faults})
    after = before.model_copy(update={"evidence": judged})
    if not after.open:
        return after, ()
    now, events = evidence.at, []
    back = [member for member in after.failing if before.fault(member).over]
    if calling := _to_call(before, after, now):
        by = before.acknowledged.by if before.acknowledged is not None else ""
        called = {"by": by, "words": _again_words(after, calling, now)}
        events.append(_event("raised", calling, now).model_copy(update=called))
        after = _called(after, now, again=True)
    elif back:
        events.append(Event(at=now, kind="note", words=f"It fails again: {_again_words(after, back, now)}"))
    # What joined since was never said to fail.
    failed = [
        each for each in before.failing if before.evidence is None or key_of(each.labels) in known.faults
    ]
    worst = min((severity_rank(member.severity) for member in failed), default=-1)
    ended = [each for each in failed if severity_rank(each.severity) == worst and after.fault(each).over]
    if ended and (after.is_over or severity_rank(after.severity) > worst):
        # With the lead that it had.
        shown = before.model_copy(update={"evidence": evidence.model_copy(update={"faults": known.faults})})
        first = next((each for each in ended if is_same(each, shown.lead)), ended[0])
        title, rest = _named(shown, first), f". Not over: {_named(after, after.lead)}"
        words = f"{title}; {after.fault(first).over}. The alert fires on for a while: it looks back"
        words = f"🟡 Over: {words}" if after.is_over else f"Over: {words}{rest}"
        shown_as = {"words": words, "summaries": (title,), "severity": ""}
        events.append(_event("over", ended, now).model_copy(update=shown_as))
    return after, tuple(events)


def _moved(key: str, known: Evidence, evidence: Evidence, fired_at: float) -> Fault:
    """Return what a fault is after what Prometheus says: the table at the top."""
    was, said = known.faults.get(key, Fault()), evidence.faults.get(key)
    if said is None or (said.over and was.over):
        return was
    if said.over:
        return Fault(over=said.over, since=said.since or evidence.at)
    began = said.since or math.inf
    if was.over:
        # Where Prometheus does not say since when it is back, it was not when it was asked before.
        since = began if (was.since or 0.0) < began < math.inf else known.at
        return Fault(since=since, again=True)
    return Fault(since=began) if was.since is None and began <= fired_at else was


def _to_call(before: Incident, after: Incident, now: float) -> list[Member]:
    """Return the pages that fail again, where somebody is to be called about them now.

    A fault that comes and goes, or is silenced, calls once somebody may be called about it.
    """
    quiet = now - (before.pages_over_at or now)
    may_call = before.acknowledged is None or quiet >= CALM_SECONDS
    if after.silenced or not may_call or now - (before.recalled_at or -math.inf) < RECALL_SECONDS:
        return []
    return [
        member
        for member in after.failing
        if member.severity == SEVERITIES[0]
        and (fault := after.fault(member)).again
        and (fault.since or 0.0) > (before.released_at or 0.0)
    ]


def _again_words(incident: Incident, back: list[Member], now: float) -> str:
    """Name what fails again, and since when."""
    named = "; ".join(dict.fromkeys(_named(incident, member) for member in back))
    again = min(incident.fault(member).since or now for member in back)
    return f"{named} · since {hour_text(again, now)}"


def _named(incident: Incident, member: Member) -> str:
    """Name an alert by the title where that is about it."""
    if is_same(member, incident.lead) and incident.evidence_is_about_lead:
        return title_of(incident)
    return beside(member) or summary_of(member)
