"""Deliver one channel's incidents in order, at the pace Slack allows, until everything is posted.

A worker makes at most one request per step, and a kill loses no message: its name is stored before it is sent, and
after a kill or a lost response the worker first searches Slack for that name.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace

from triton_alerts.bridge.deliver import messages
from triton_alerts.bridge.deliver.attempts import MAX_WAIT_SECONDS, UNCONFIRMED_SECONDS, Attempts, backoff
from triton_alerts.bridge.deliver.composer import Composer, DeliveryOptions
from triton_alerts.bridge.deliver.messages import Message, bare
from triton_alerts.bridge.deliver.next_task import (
    EDIT_SPACING_SECONDS,
    POST_SPACING_SECONDS,
    SendTask,
    Wait,
    next_task,
)
from triton_alerts.bridge.deliver.transport import DeliveryError, Sent, Transport
from triton_alerts.bridge.incidents.outbox.deliveries import Delivery, SendKind
from triton_alerts.bridge.incidents.outbox.digests import Digest
from triton_alerts.bridge.incidents.outbox.unconfirmed import UnconfirmedMessage
from triton_alerts.bridge.incidents.store import Store
from triton_alerts.bridge.settings import is_channel_id

EDITS: tuple[SendKind, ...] = ("edit", "digest_edit")
FORMS = 3
"""Forms in which a message is tried: whole, its text alone, only where to read it. An edit has the first two."""
EDIT_FORMS = 2
MAX_UNCONFIRMED_SECONDS = 900.0
UNWRITABLE = ("is_archived", "channel_not_found", "not_in_channel")
"""Codes of Slack for a channel in which nothing can be posted or edited, maybe for ever."""
SETUP_WAIT_SECONDS = 60.0
"""Seconds until the next try when a person has to fix something (token, channel) before anything can be sent."""

log = logging.getLogger(__name__)


@dataclass
class DeliveryWorker:
    """Delivers the messages of one channel."""

    channel: str
    store: Store
    transport: Transport
    options: DeliveryOptions
    attempts: Attempts
    post_at: float = 0.0
    edit_at: float = 0.0
    _stepped: float = 0.0
    _edits_later: dict[int, float] = field(default_factory=dict)
    """Delivery -> time of the next try to edit it, where Slack refused that."""
    _refusals: dict[tuple[SendKind, int], int] = field(default_factory=dict)
    """Kind and delivery of a message -> how many of its forms Slack has refused."""
    _channel_id: str = ""
    """Id of the channel, known from the first message posted to it where the channel is given by name."""

    def __post_init__(self) -> None:
        self._composer = Composer(self.store, self.transport, self.options)

    def step(self) -> float:
        """Make at most one request; returns the seconds until there may be more to do."""
        now = self.attempts.clock()
        # When the clock is set back by an hour, a wait of a second must not become a wait of an hour.
        set_back = max(0.0, self._stepped - now)
        self.post_at, self.edit_at, self._stepped = self.post_at - set_back, self.edit_at - set_back, now
        task = next_task(
            self.store.outbox.pending(self.channel),
            now,
            post_at=self.post_at,
            edit_at=self.edit_at,
            threads=self.transport.threads,
            digests=self.store.digests.of(self.channel),
            evidence_seconds=self.options.evidence_seconds,
            has_evidence=self._has_evidence,
            edits_later=self._edits_later,
        )
        unconfirmed = self.store.unconfirmed.first(self.channel)
        overdue = now - unconfirmed.due if unconfirmed is not None else -MAX_WAIT_SECONDS
        if (
            unconfirmed is not None
            and overdue >= 0
            and (isinstance(task, Wait) or overdue > UNCONFIRMED_SECONDS)
        ):
            self._check_unconfirmed(unconfirmed, now)
            return 0.0
        if isinstance(task, Wait):
            return min(task.seconds, -overdue if overdue < 0 else 0.0, MAX_WAIT_SECONDS)
        try:
            self._send(task, now)
        except DeliveryError as refusal:
            self._record_failure(task, refusal, self.attempts.clock())
        else:
            self.attempts.failures = 0
            self._refusals.pop(_key(task), None)
            if task.kind not in EDITS:
                self.attempts.count("delivered", task.kind)
        return 0.0

    def _check_unconfirmed(self, unconfirmed: UnconfirmedMessage, now: float) -> None:
        """Search again for copies of a message that was sent twice: Slack may have posted one late."""
        try:
            if unconfirmed.name:
                self.transport.remove_copies(
                    unconfirmed.root_channel,
                    unconfirmed.name,
                    unconfirmed.since,
                    unconfirmed.thread,
                    original=unconfirmed.ts,
                )
        except DeliveryError as refusal:
            self.attempts.count("failed", refusal.kind)
            if refusal.kind not in ("gone", "setup") and now - unconfirmed.since < MAX_UNCONFIRMED_SECONDS:
                self.store.unconfirmed.add(replace(unconfirmed, due=now + UNCONFIRMED_SECONDS))
                return
            log.warning(
                "channel %s: whether a message was posted twice is unknown: %s", self.channel, refusal
            )
        self.store.unconfirmed.delete_checked(unconfirmed)

    def _record_unconfirmed(self, task: SendTask, now: float, sent: Sent | None = None) -> None:
        """Check a request without a response later: a message by its name, or an edit."""
        first = task.deliveries[0] if task.deliveries else None
        self.store.unconfirmed.add(
            UnconfirmedMessage(
                self.channel,
                task.name,
                first.id if first is not None else 0,
                sent.channel if sent is not None else "",
                task.thread if sent is not None and sent.in_thread else "",
                sent.ts if sent is not None else "",
                first.inflight_at if first is not None and first.inflight_at else now,
                now + UNCONFIRMED_SECONDS,
            )
        )

    def _has_evidence(self, delivery: Delivery) -> bool:
        incident = self.store.incidents.get(delivery.incident)
        return incident is None or not incident.evidence_is_due

    def _send(self, task: SendTask, now: float) -> None:
        if task.kind == "edit":
            self._edit(task, now)
        elif task.kind == "digest_edit":
            self._edit_digest(task, now)
        elif task.resumed and (sent := self._find(task)) is not None:
            self._record_arrival(task, sent, now, is_earlier_attempt=True)
        else:
            self._post(task, now)

    def _edit(self, task: SendTask, now: float) -> None:
        first = task.first
        self.edit_at = now + EDIT_SPACING_SECONDS
        body = self._composer.edited(task, now)
        if body is None:  # the thread still shows the changes
            self.store.outbox.update(first, shown_version=first.version)
            return
        self.transport.edit(first.root_channel, first.root_ts, self._form(task, body))
        self.store.outbox.update(first, shown_version=first.version, edited_at=now)
        self.attempts.count("delivered", "edit")

    def _edit_digest(self, task: SendTask, now: float) -> None:
        self.edit_at = now + EDIT_SPACING_SECONDS
        digest = self._digest(task.thread)
        assert digest is not None, "only a digest that was posted is edited"
        content = self._composer.edited_digest(self.channel, task, now)
        if content is not None:
            self.transport.edit(digest.channel, task.thread, content)
            self.attempts.count("delivered", "edit")
        self.store.digests.edited(self.channel, task.thread, task.waiting, task.firing, now)

    def _digest(self, ts: str) -> Digest | None:
        return next((digest for digest in self.store.digests.of(self.channel) if digest.ts == ts), None)

    def _find(self, task: SendTask) -> Sent | None:
        first = task.first
        try:
            sent = self.transport.find(self._channel(task), task.name, first.inflight_at, task.thread)
        except DeliveryError as refusal:
            refusal.unconfirmed = True  # a failed search confirms nothing
            raise
        self.attempts.count("unconfirmed", "found" if sent is not None else "resent")
        return sent

    def _post(self, task: SendTask, now: float) -> None:
        self.post_at = now + POST_SPACING_SECONDS
        composed, broadcast = self._composer.posted(task, now)
        if not task.resumed:
            digest = {"digest": task.thread} if task.kind == "digest" else {}
            self.store.outbox.begin(task.deliveries, task.name, task.kind, now, **digest)
        channel = self._channel(task)
        content = self._form(task, composed)
        sent = self.transport.post(channel, content, task.name, task.thread, broadcast=broadcast)
        self._record_arrival(task, sent, now, is_earlier_attempt=False)

    def _form(self, task: SendTask, whole: Message) -> Message:
        """Return the message whole; its text alone if Slack refused that; then only where to read it."""
        refusals = self._refusals.get(_key(task), 0)
        if refusals < FORMS - 1 or task.kind in EDITS:
            return bare(whole) if refusals else whole
        incident = self.store.incidents.get(task.first.incident)
        assert incident is not None, "a delivery cannot outlive its incident"
        return messages.refused(incident)

    def _record_arrival(self, task: SendTask, sent: Sent, now: float, *, is_earlier_attempt: bool) -> None:
        """Record a message that was posted now, or that an earlier attempt had posted."""
        with self.store.transaction():
            if task.resumed and sent.ts:
                self._record_unconfirmed(task, now, sent)
            self._record(task, sent, now, is_earlier_attempt=is_earlier_attempt)

    def _record(self, task: SendTask, sent: Sent, now: float, *, is_earlier_attempt: bool) -> None:
        delivery = task.first
        if not task.thread and sent.ts:
            self._channel_id = sent.channel
        if task.kind == "digest":
            self._record_digest(task, sent, now)
        elif task.kind == "reply":
            # Slack posts at top level, without an error, when the thread's parent was deleted.
            without_root: dict[str, str | int | float] = (
                {} if sent.in_thread else {"root_ts": "", "root_channel": "", "shown_version": 0}
            )
            self.store.outbox.finish(delivery, posted_seq=task.last_event(delivery), **without_root)
        else:
            self.store.outbox.finish(
                delivery,
                root_ts=sent.ts,
                root_channel=sent.channel,
                posted_seq=task.last_event(delivery),
                edited_at=now,
                # A message of an earlier attempt shows the state at that time; the next edit updates it.
                shown_version=0 if is_earlier_attempt else delivery.version,
            )

    def _record_digest(self, task: SendTask, sent: Sent, now: float) -> None:
        if sent.in_thread and sent.ts and not task.thread:
            # Edits of a digest name only firing incidents, so its thread names each incident, these too.
            self.store.digests.record(self.channel, sent.channel, sent.ts, now)
            for delivery in task.deliveries:
                self.store.outbox.finish(delivery)
            return
        for delivery in task.deliveries:
            self.store.outbox.finish(
                delivery,
                digest=task.thread if sent.in_thread else "",
                **_covered_by_digest(delivery, task.last_event(delivery)),
            )
        if not sent.in_thread:
            self.store.digests.forget(self.channel, task.thread)

    def _record_failure(self, task: SendTask, refusal: DeliveryError, now: float) -> None:
        self.attempts.count("failed", refusal.kind)
        log.warning("channel %s: %s refused: %s", self.channel, task.kind, refusal)
        with self.store.transaction():
            # An earlier attempt that may have arrived stays unconfirmed, whatever the result of this one.
            if not refusal.unconfirmed and not task.resumed and task.kind not in EDITS:
                self.store.outbox.forget_attempt(task.deliveries)
            if refusal.unconfirmed and task.kind in EDITS:
                self._record_unconfirmed(task, now)
            if refusal.kind == "gone" or (refusal.detail in UNWRITABLE and self._is_elsewhere(task)):
                self._forget_gone(task)
            elif refusal.kind == "refused_message":
                refusals = self._refusals.pop(_key(task), 0) + 1
                if refusals < (EDIT_FORMS if task.kind in EDITS else FORMS):
                    self._refusals[_key(task)] = refusals
                else:
                    self._give_up(task, now)
            else:
                self._back_off(task, refusal, now)

    def _is_elsewhere(self, task: SendTask) -> bool:
        """Return whether the message to edit or to answer is not in the channel of new messages, or may not be."""
        where = task.deliveries[0].root_channel if task.deliveries else ""
        here = self.channel if is_channel_id(self.channel) else self._channel_id
        return where not in ("", here)

    def _forget_gone(self, task: SendTask) -> None:
        if task.kind == "digest_edit" or (task.kind == "digest" and task.thread):
            self.store.digests.forget(self.channel, task.thread)
            self.store.outbox.forget_attempt(task.deliveries)
        elif task.kind == "edit":
            # Too old to edit, or deleted by a person: the thread still shows the changes.
            self.store.outbox.update(task.first, shown_version=task.first.version)
        else:
            self.store.outbox.forget_attempt(task.deliveries)
            self.store.outbox.update(task.first, root_ts="", root_channel="", shown_version=0)

    def _give_up(self, task: SendTask, now: float) -> None:
        """Give up what Slack refuses in every form; a first message is tried again, after all others."""
        if task.kind == "digest_edit":
            self.store.digests.edited(self.channel, task.thread, task.waiting, task.firing, now)
        elif task.kind == "edit":
            self.store.outbox.update(task.first, shown_version=task.first.version)
        elif task.kind == "reply":
            self.store.outbox.finish(task.first, posted_seq=task.last_event(task.first))
        else:
            for delivery in task.deliveries:
                self._try_later(delivery, now)

    def _try_later(self, delivery: Delivery, now: float) -> None:
        attempts = delivery.attempts + 1
        later = now + backoff(attempts, self.attempts.rng)
        self.store.outbox.update(delivery, attempts=attempts, next_try=later)

    def _back_off(self, task: SendTask, refusal: DeliveryError, now: float) -> None:
        """Delay what the failure concerns: an edit delays no post, and a reply no other message."""
        if refusal.kind == "setup" and task.kind == "edit":
            self._edits_later[task.first.id] = now + SETUP_WAIT_SECONDS
            return
        if refusal.kind == "setup" and task.kind == "reply":
            self._try_later(task.first, now)
            return
        wait = self.attempts.wait()
        if refusal.kind == "setup":
            wait = SETUP_WAIT_SECONDS
        if refusal.retry_after is not None:
            wait = refusal.retry_after + self.attempts.rng.uniform(0.05, 0.5)
        self.edit_at = now + wait
        if task.kind not in EDITS:
            self.post_at = now + wait

    def _channel(self, task: SendTask) -> str:
        """Return the channel of a message; the channel of a thread is stored with its first message."""
        if task.kind == "digest":
            digest = self._digest(task.thread)
            return digest.channel if digest is not None else self.channel
        return task.first.root_channel or self.channel


def _key(task: SendTask) -> tuple[SendKind, int]:
    return task.kind, task.deliveries[0].id if task.deliveries else 0


def _covered_by_digest(delivery: Delivery, seq: int) -> dict[str, str | int | float]:
    """Return the columns after a digest: it reports a closed incident in full, an open one gets its own message."""
    full = delivery.closed_at is not None and seq == delivery.last_seq
    return {"digest_seq": seq, "posted_seq": seq} if full else {"digest_seq": seq}
