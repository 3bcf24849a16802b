"""Which message a channel gets next: a pure choice among the changes that are not posted yet."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from triton_alerts.bridge.deliver.message import DIGEST_LINES
from triton_alerts.bridge.incidents.outbox import Delivery

POST_SPACING_SECONDS = 1.05
"""Slack: about one message per second and channel. https://docs.slack.dev/apis/web-api/rate-limits"""
EDIT_SPACING_SECONDS = 1.25
"""Slack: chat.update is tier 3, 50 a minute."""
EDIT_PAUSE_SECONDS = 10.0
"""Edits of one message are at least this far apart, unless it was acknowledged or resolved."""
LONGEST_RETRY_SECONDS = 60.0
"""No stored wait is longer; one that seems so was written before the clock was put back."""
DIGEST_FROM = 10
"""So many first messages waiting are summed up in a digest before each gets its own."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to send for so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Op:
    """One message to send. `resumed` means that an earlier attempt may have arrived."""

    kind: str
    name: str
    deliveries: tuple[Delivery, ...]
    thread: str = ""
    resumed: bool = False
    waiting: int = 0

    @property
    def first(self) -> Delivery:
        return self.deliveries[0]


def plan(
    pending: Sequence[Delivery],
    now: float,
    *,
    post_at: float,
    edit_at: float,
    threads: bool,
    evidence_seconds: float = 0.0,
    has_evidence: Callable[[Delivery], bool] = lambda _: True,
) -> Op | Wait:
    """Choose the next message.

    Messages in doubt first, since they hold up their incidents; then what nobody has seen: a digest of many
    incidents, or the message of a new page. Escalations, other first messages and resolves, and other changes
    follow; edits have a rate of their own and fill the gaps.
    """
    waits = [3600.0]
    later = {one.id: one.next_try - now for one in pending if 0 < one.next_try - now <= LONGEST_RETRY_SECONDS}
    ready = [one for one in pending if one.id not in later]
    waits += later.values()
    if now >= post_at:
        chosen = _resume(ready) or _digest(ready)
        if chosen is not None:
            return chosen
        free = []
        for one in filter(_wants_post, ready):
            if _awaits_evidence(one, now, evidence_seconds, has_evidence):
                waits.append(one.opened_at + evidence_seconds - now)
            else:
                free.append(one)
        if free:
            return _post(min(free, key=_turn))
    elif any(one.inflight or _wants_post(one) for one in ready):
        waits.append(post_at - now)
    edits = [one for one in ready if threads and _wants_edit(one)]
    due = [one for one in edits if _edit_due(one, now) <= now]
    waits += [_edit_due(one, now) - now for one in edits if _edit_due(one, now) > now]
    if due and now >= edit_at:
        return Op("edit", "", (min(due, key=_urgency),))
    if due:
        waits.append(edit_at - now)
    return Wait(max(0.0, min(waits)))


def _resume(ready: Sequence[Delivery]) -> Op | None:
    doubtful = [one for one in ready if one.inflight]
    if not doubtful:
        return None
    first = doubtful[0]
    together = tuple(one for one in doubtful if one.inflight == first.inflight)
    thread = first.root_ts if first.inflight_kind == "reply" else ""
    return Op(first.inflight_kind, first.inflight, together, thread, resumed=True, waiting=len(together))


def _digest(ready: Sequence[Delivery]) -> Op | None:
    unposted = [one for one in ready if _unposted(one)]
    if len(unposted) < DIGEST_FROM:
        return None
    # The newest first: in a storm the oldest of them has waited already, and all are named within seconds.
    chosen = tuple(sorted(unposted, key=lambda one: (one.severity, not _unseen(one), -one.id)))
    return Op("digest", _name(), chosen[:DIGEST_LINES], waiting=len(unposted))


def _post(one: Delivery) -> Op:
    if one.role == "escalation":
        return Op("escalation", _name(), (one,))
    return Op("reply", _name(), (one,), one.root_ts) if one.root_ts else Op("root", _name(), (one,))


def _unposted(one: Delivery) -> bool:
    """Nothing of it is posted yet, or it ended after a digest reported it as firing."""
    if one.role != "main" or one.root_ts or one.posted_seq:
        return False
    return one.digest_seq == 0 or (one.closed_at is not None and one.digest_seq < one.last_seq)


def _unseen(one: Delivery) -> bool:
    """Return whether the channel shows nothing of it yet, not even a line in a digest."""
    return _unposted(one) and one.digest_seq == 0


def _wants_post(one: Delivery) -> bool:
    return not one.root_ts if one.role == "escalation" else one.posted_seq < one.last_seq


def _wants_edit(one: Delivery) -> bool:
    if one.role == "escalation" and one.closed_at is None:
        return False  # it is edited once, when the incident ends
    return bool(one.root_ts) and one.shown_version < one.version and not one.inflight


def _edit_due(one: Delivery, now: float) -> float:
    if one.closed_at is not None or one.edited_at > now:
        return 0.0
    return one.edited_at + EDIT_PAUSE_SECONDS


def _awaits_evidence(
    one: Delivery, now: float, patience: float, has_evidence: Callable[[Delivery], bool]
) -> bool:
    waits = one.opened_at <= now < one.opened_at + patience
    return not one.root_ts and waits and not has_evidence(one)


def _turn(one: Delivery) -> tuple[int, int, bool, float]:
    """Sort key of posts: new pages, escalations, then starts and ends, other changes; severity, then age."""
    if one.severity == 0 and _unseen(one):
        turn = 0
    elif one.severity == 0 and one.raised:
        turn = 1
    elif one.role == "escalation":
        turn = 2
    else:
        turn = 3 if _is_decisive(one) else 4
    return (turn, one.severity, one.closed_at is None, one.opened_at)


def _urgency(one: Delivery) -> tuple[bool, int, bool, float]:
    """Sort key of edits: messages about the start or end come before other changes; then severity, then age."""
    return (not _is_decisive(one), one.severity, one.closed_at is None, one.opened_at)


def _is_decisive(one: Delivery) -> bool:
    return not one.root_ts or one.closed_at is not None


def _name() -> str:
    return uuid.uuid4().hex
