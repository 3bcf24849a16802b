"""Choose a channel's next request: a pure function of its deliveries that are not done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from triton_alerts.bridge.incidents.outbox import CHECK_SECONDS, Delivery, Digest

POST_SPACING_SECONDS = 1.05
"""Slack: about one message per second and channel. https://docs.slack.dev/apis/web-api/rate-limits"""
EDIT_SPACING_SECONDS = 1.25
"""Slack: chat.update is tier 3, 50 a minute."""
MAX_RETRY_SECONDS = 60.0
"""Longest wait after a refusal; a longer one was decided before the clock was set back, and is ignored."""
DIGEST_FROM = 10
"""Number of incidents, of which the channel shows nothing, from which a digest names them."""
MAX_OWN_MESSAGES = 20
"""Incidents of a digest that may have their own message at a time; others get one when these end."""
DIGEST_SECONDS = 3600.0
"""Time after a digest was begun during which it names further incidents."""
DIGEST_EDIT_SECONDS = 5.0
"""Least time between edits of one digest."""

PATIENCE_AT_END = 4
"""How many times as long the end of an alert waits for evidence: it is not urgent, and must not be said too early."""

SendKind = Literal["root", "reply", "escalation", "digest", "edit", "check"]


@dataclass(frozen=True, slots=True)
class SendTask:
    """One request about a delivery: a post, an edit, or a search for copies of its last post."""

    kind: SendKind
    delivery: Delivery


@dataclass(frozen=True, slots=True)
class Pace:
    """When the channel accepts the next post and the next edit, and when each delivery does.

    `later` is the next try of a delivery's posts or edits that were refused, `edited` when its message was edited last,
    `shown` the counts that a digest shows. All of it is lost with the process.
    """

    post_at: float
    edit_at: float
    later: Mapping[tuple[str, int], float]
    edited: Mapping[int, float]
    shown: Mapping[int, tuple[int, int, int]]


def next_task(
    pending: Sequence[Delivery],
    digests: Sequence[Digest],
    now: float,
    pace: Pace,
    *,
    threads: bool,
    evidence_seconds: float = 0.0,
    has_evidence: Callable[[Delivery], bool] = lambda _: True,
) -> SendTask | float:
    """Return the next request of a channel, or the seconds until there may be one.

    The order of posts is: those that may have arrived, because they block their incidents; a digest; new pages;
    escalations; other first messages and ends; other changes. Edits have a separate rate limit and are sent in
    between. Where nothing else is due, a request without an answer is checked.
    """
    waits = [3600.0]
    checks = [each for each in (*pending, *(digest.delivery for digest in digests)) if each.check_at]
    check = min((each for each in checks if not each.sending), key=lambda each: each.check_at, default=None)
    overdue = now - check.check_at if check is not None else -3600.0
    if check is not None and overdue > CHECK_SECONDS:
        return SendTask("check", check)

    def may_be_tried(kind: Literal["post", "edit"], delivery: Delivery) -> bool:
        wait = pace.later.get((kind, delivery.id), 0.0) - now
        if 0 < wait <= MAX_RETRY_SECONDS:
            waits.append(wait)
            return False
        return True

    def waits_for_evidence(delivery: Delivery) -> bool:
        decided_at, patience = _decided_at(delivery), evidence_seconds
        is_news = not delivery.ts or delivery.raised_at is not None
        if delivery.closed_at is not None or (delivery.changed_at is not None and not is_news):
            patience *= PATIENCE_AT_END
        wait = decided_at + patience - now if decided_at <= now else 0.0
        if wait <= 0 or has_evidence(delivery):
            return False
        waits.append(wait)
        return True

    posts = [each.delivery for each in digests if each.delivery.sending or not each.delivery.ts]
    for delivery in pending:
        if delivery.sending or (
            delivery.wants_post
            and (not threads or _has_turn(delivery, digests))
            and not waits_for_evidence(delivery)
        ):
            posts.append(delivery)
    posts = [each for each in posts if may_be_tried("post", each)]
    if posts and now >= pace.post_at:
        first = min(posts, key=_post_rank)
        return SendTask(_kind_of_post(first), first)
    edits = [each for each in pending if each.ts and each.version < each.newest and not each.sending]
    edits = [each for each in edits if not waits_for_evidence(each)]
    for digest in digests:
        if digest.delivery.ts and pace.shown.get(digest.delivery.id) != digest.counts:
            wait = pace.edited.get(digest.delivery.id, 0.0) + DIGEST_EDIT_SECONDS - now
            if 0 < wait <= DIGEST_EDIT_SECONDS:
                waits.append(wait)
            else:
                edits.append(digest.delivery)
    edits = [each for each in edits if threads and may_be_tried("edit", each)]
    if edits and now >= pace.edit_at:
        return SendTask("edit", min(edits, key=lambda each: _edit_rank(each, pace)))
    # Later than that: decided before the clock was set back.
    if check is not None and (overdue >= 0 or overdue < -CHECK_SECONDS):
        return SendTask("check", check)
    waits += [pace.post_at - now] if posts else []
    waits += [pace.edit_at - now] if edits else []
    return max(0.0, min([*waits, -overdue]))


def _has_turn(delivery: Delivery, digests: Sequence[Digest]) -> bool:
    """Return whether an incident may be posted: one that a digest names waits for its own message."""
    if delivery.ts or delivery.digest is None or delivery.is_escalation or delivery.raised_at is not None:
        return True
    if not delivery.digest or delivery.closed_at is not None:
        return False  # the digest shows it first, and shows its end
    named_by = [each for each in digests if each.delivery.seq <= delivery.id <= each.delivery.version]
    return all(each.own < MAX_OWN_MESSAGES for each in named_by)


def _kind_of_post(delivery: Delivery) -> SendKind:
    if delivery.role == "digest":
        return "digest"
    if delivery.is_escalation:
        return "escalation"
    return "reply" if delivery.ts else "root"


def _decided_at(delivery: Delivery) -> float:
    """Return when the incident opened or became more urgent, or an alert ended: a message about that waits for evidence."""
    if delivery.is_escalation:
        return 0.0
    opened_at = 0.0 if delivery.ts else delivery.opened_at
    return max(
        opened_at, *(at or 0.0 for at in (delivery.raised_at, delivery.changed_at, delivery.closed_at))
    )


def _post_rank(delivery: Delivery) -> tuple[int, int, bool, float]:
    """Return the sort key of a post; among equals, severity, then age."""
    if delivery.sending:
        rank = 0
    elif delivery.role == "digest":
        rank = 1
    elif delivery.severity == 0 and delivery.is_new:
        rank = 2
    elif delivery.severity == 0 and delivery.raised_at is not None:
        rank = 3
    elif delivery.is_escalation:
        rank = 4
    else:
        rank = 5 if _is_decisive(delivery) else 6
    return rank, delivery.severity, delivery.closed_at is None, delivery.opened_at


def _edit_rank(delivery: Delivery, pace: Pace) -> tuple[bool, bool, float, int]:
    """Return the sort key of an edit: a digest, the end of an incident, what was not edited for the longest time."""
    edited = pace.edited.get(delivery.id, 0.0)
    return delivery.role != "digest", not _is_decisive(delivery), edited, delivery.severity


def _is_decisive(delivery: Delivery) -> bool:
    return not delivery.ts or delivery.closed_at is not None
