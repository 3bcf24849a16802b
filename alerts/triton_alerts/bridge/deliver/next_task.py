"""Choose a channel's next message: a pure function of the changes that are not posted yet."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from triton_alerts.bridge.deliver.messages import DIGEST_LINES
from triton_alerts.bridge.incidents.outbox.deliveries import Delivery, SendKind
from triton_alerts.bridge.incidents.outbox.digests import Digest

POST_SPACING_SECONDS = 1.05
"""Slack: about one message per second and channel. https://docs.slack.dev/apis/web-api/rate-limits"""
EDIT_SPACING_SECONDS = 1.25
"""Slack: chat.update is tier 3, 50 a minute."""
EDIT_PAUSE_SECONDS = 10.0
"""Least time between edits of one message, unless it was acknowledged or resolved."""
MAX_RETRY_SECONDS = 60.0
"""Longest retry wait; a longer stored wait was written before the clock was set back, and is ignored."""
DIGEST_FROM = 10
"""Number of waiting first messages from which a digest is posted before them."""
MAX_OWN_MESSAGES = 20
"""Incidents of a digest that may have their own message at a time; others get one when these end."""
DIGEST_SECONDS = 3600.0
"""Time after a digest's first message during which further incidents are added to its thread."""
DIGEST_EDIT_SECONDS = 5.0
"""Least time between edits of one digest."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing is to be sent for this number of seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class SendTask:
    """One message to post or to edit.

    `name` identifies a post across attempts, and `resumed` means that an earlier one may have arrived. `thread`
    is the message that it goes below, or that of a digest to edit.
    """

    kind: SendKind
    name: str
    deliveries: tuple[Delivery, ...]
    thread: str = ""
    resumed: bool = False
    waiting: int = 0
    firing: int = 0
    """Number of the waiting incidents that still fire."""

    @property
    def first(self) -> Delivery:
        return self.deliveries[0]

    def last_event(self, delivery: Delivery) -> int:
        """Return the last event of the message: one sent again reports what it reported the first time."""
        return delivery.inflight_seq if self.resumed else delivery.last_seq


def next_task(
    pending: Sequence[Delivery],
    now: float,
    *,
    post_at: float,
    edit_at: float,
    threads: bool,
    digests: Sequence[Digest] = (),
    evidence_seconds: float = 0.0,
    has_evidence: Callable[[Delivery], bool] = lambda _: True,
    edits_later: Mapping[int, float] | None = None,
) -> SendTask | Wait:
    """Return the next message of a channel, or the wait until there may be one.

    The order is: unconfirmed messages, because they block their incidents; a digest of many incidents, or the
    message of a new page; escalations; other first messages and resolved incidents; other changes. Edits have
    a separate rate limit and are sent in between. A digest is one message that counts firing incidents, with
    a thread that lists each incident; only some of its incidents have their own message at the same time.
    `digests` are those that are still edited, the latest first. `edits_later` are the next tries of edits, by
    delivery. What Slack has refused comes after all others.
    """
    digest = next(iter(digests), None)
    waits = [3600.0]
    later = {
        delivery.id: delivery.next_try - now
        for delivery in pending
        if 0 < delivery.next_try - now <= MAX_RETRY_SECONDS
    }
    ready = [delivery for delivery in pending if delivery.id not in later]
    waits += later.values()
    if now >= post_at:
        post, post_waits = _next_post(ready, digest, now, evidence_seconds, has_evidence)
        if post is not None:
            return post
        waits += post_waits
    elif any(
        delivery.inflight
        or (_wants_post(delivery) and (_may_post_own(digest) or not delivery.is_only_digested))
        for delivery in ready
    ):
        waits.append(post_at - now)
    digest_edit, digest_waits = _next_digest_edit(digests, ready, now, edit_at)
    if digest_edit is not None:
        return digest_edit
    waits += digest_waits
    held = {
        number: at - now for number, at in (edits_later or {}).items() if 0 < at - now <= MAX_RETRY_SECONDS
    }
    editable = [delivery for delivery in pending if delivery.id not in held]
    waits += held.values()
    edit, edit_waits = _next_edit(editable, now, edit_at) if threads else (None, [])
    if edit is not None:
        return edit
    waits += edit_waits
    return Wait(max(0.0, min(waits)))


def _may_post_own(digest: Digest | None) -> bool:
    return digest is None or digest.own < MAX_OWN_MESSAGES


def _next_post(
    ready: Sequence[Delivery],
    digest: Digest | None,
    now: float,
    evidence_seconds: float,
    has_evidence: Callable[[Delivery], bool],
) -> tuple[SendTask | None, list[float]]:
    """Return the next new message, or else the seconds until the evidence of one has been awaited."""
    chosen = _resumed(ready) or _digest_post(ready, digest, now)
    if chosen is not None:
        return chosen, []
    free, waits = [], []
    for delivery in filter(_wants_post, ready):
        fires_unchanged = delivery.closed_at is None and delivery.raised_at is None
        if fires_unchanged and delivery.is_only_digested and not _may_post_own(digest):
            continue
        if _awaits_evidence(delivery, now, evidence_seconds, has_evidence):
            waits.append(_decided_at(delivery) + evidence_seconds - now)
        else:
            free.append(delivery)
    return (_post_task(min(free, key=_post_rank), free) if free else None), waits


def _next_digest_edit(
    digests: Sequence[Digest], ready: Sequence[Delivery], now: float, edit_at: float
) -> tuple[SendTask | None, list[float]]:
    """Return the edit of a digest whose counts have changed, or else the seconds until one is due."""
    unnamed = [delivery for delivery in ready if _not_shown(delivery)]
    waits = []
    for digest in digests:
        more = unnamed if digest is digests[0] else []
        total = digest.named + len(more)
        firing = digest.firing + sum(delivery.closed_at is None for delivery in more)
        if (total, firing) == digest.shown:
            continue
        due_at = max(edit_at, digest.edited_at + DIGEST_EDIT_SECONDS)
        if now >= due_at:
            return SendTask("digest_edit", "", (), digest.ts, waiting=total, firing=firing), []
        waits.append(due_at - now)
    return None, waits


def _next_edit(ready: Sequence[Delivery], now: float, edit_at: float) -> tuple[SendTask | None, list[float]]:
    """Return the most urgent edit that is due, or else the seconds until edits are."""
    wanted = [delivery for delivery in ready if _wants_edit(delivery)]
    due = [delivery for delivery in wanted if _edit_due(delivery, now) <= now]
    if due and now >= edit_at:
        return SendTask("edit", "", (min(due, key=_edit_rank),)), []
    waits = [_edit_due(delivery, now) - now for delivery in wanted if _edit_due(delivery, now) > now]
    return None, [*waits, edit_at - now] if due else waits


def _resumed(ready: Sequence[Delivery]) -> SendTask | None:
    unconfirmed = [delivery for delivery in ready if delivery.inflight]
    if not unconfirmed:
        return None
    first = unconfirmed[0]
    assert first.inflight_kind, "the kind of a message is stored with its name"
    together = tuple(delivery for delivery in unconfirmed if delivery.inflight == first.inflight)
    thread = {"reply": first.root_ts, "digest": first.digest}.get(first.inflight_kind, "")
    return SendTask(
        first.inflight_kind, first.inflight, together, thread, resumed=True, waiting=len(together)
    )


def _digest_post(ready: Sequence[Delivery], digest: Digest | None, now: float) -> SendTask | None:
    # The end of an incident that only a digest shows is posted in its thread, after all other changes.
    unposted = [delivery for delivery in ready if _unposted(delivery) and not delivery.is_only_digested]
    if len(unposted) < DIGEST_FROM:
        return None
    # The newest first: the oldest ones have waited already, and all are named within seconds.
    unposted.sort(key=lambda delivery: (delivery.severity, not _not_shown(delivery), -delivery.id))
    firing = sum(delivery.closed_at is None for delivery in unposted)
    thread = digest.ts if digest is not None and 0 <= now - digest.at < DIGEST_SECONDS else ""
    return SendTask(
        "digest", _new_name(), tuple(unposted[:DIGEST_LINES]), thread, waiting=len(unposted), firing=firing
    )


def _post_task(delivery: Delivery, waiting: Sequence[Delivery]) -> SendTask:
    if delivery.is_only_digested and delivery.closed_at is not None:
        ended = [each for each in waiting if each.digest == delivery.digest and each.closed_at is not None]
        chosen = tuple(each for each in ended if each.is_only_digested)[:DIGEST_LINES]
        return SendTask("digest", _new_name(), chosen, delivery.digest, waiting=len(chosen))
    if delivery.is_escalation:
        return SendTask("escalation", _new_name(), (delivery,))
    return SendTask("reply" if delivery.root_ts else "root", _new_name(), (delivery,), delivery.root_ts)


def _unposted(delivery: Delivery) -> bool:
    """Return whether nothing of an incident is posted yet, or it ended after a digest reported it as firing."""
    if delivery.is_escalation or delivery.root_ts or delivery.posted_seq:
        return False
    return delivery.digest_seq == 0 or (
        delivery.closed_at is not None and delivery.digest_seq < delivery.last_seq
    )


def _not_shown(delivery: Delivery) -> bool:
    """Return whether the channel shows nothing of an incident yet, not even a line in a digest."""
    return _unposted(delivery) and delivery.digest_seq == 0


def _wants_post(delivery: Delivery) -> bool:
    return not delivery.root_ts if delivery.is_escalation else delivery.posted_seq < delivery.last_seq


def _wants_edit(delivery: Delivery) -> bool:
    return bool(delivery.root_ts) and delivery.shown_version < delivery.version and not delivery.inflight


def _edit_due(delivery: Delivery, now: float) -> float:
    if delivery.closed_at is not None or delivery.edited_at > now:
        return 0.0
    return delivery.edited_at + EDIT_PAUSE_SECONDS


def _awaits_evidence(
    delivery: Delivery, now: float, evidence_seconds: float, has_evidence: Callable[[Delivery], bool]
) -> bool:
    decided_at = _decided_at(delivery)
    return decided_at <= now < decided_at + evidence_seconds and not has_evidence(delivery)


def _decided_at(delivery: Delivery) -> float:
    """Return when the incident opened, became more urgent or ended: a message about that waits for evidence."""
    if delivery.is_escalation or (
        delivery.root_ts and delivery.closed_at is None and delivery.raised_at is None
    ):
        return 0.0
    return max(delivery.opened_at, delivery.raised_at or 0.0, delivery.closed_at or 0.0)


def _post_rank(delivery: Delivery) -> tuple[bool, int, int, bool, float]:
    """Return the sort key of a post: new pages, escalations, starts and ends, other changes; severity, then age.

    What Slack has refused is tried where nothing else waits.
    """
    if delivery.severity == 0 and _not_shown(delivery):
        rank = 0
    elif delivery.severity == 0 and delivery.raised_at is not None:
        rank = 1
    elif delivery.is_escalation:
        rank = 2
    elif delivery.is_only_digested and delivery.closed_at is not None:
        rank = 5
    else:
        rank = 3 if _is_decisive(delivery) else 4
    return (delivery.attempts > 0, rank, delivery.severity, delivery.closed_at is None, delivery.opened_at)


def _edit_rank(delivery: Delivery) -> tuple[bool, int, bool, float]:
    """Return the sort key of an edit: messages about start or end before other changes; then severity, then age."""
    return (not _is_decisive(delivery), delivery.severity, delivery.closed_at is None, delivery.opened_at)


def _is_decisive(delivery: Delivery) -> bool:
    return not delivery.root_ts or delivery.closed_at is not None


def _new_name() -> str:
    return uuid.uuid4().hex
