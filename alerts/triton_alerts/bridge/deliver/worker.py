"""Deliver one channel's incidents in order, at the pace Slack allows, until everything is posted.

A worker makes at most one request per step, and a kill loses no message: that a post is sent is stored before it is,
and after a kill or a lost response the worker first searches Slack for its name. `Delivery` has the states.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from triton_alerts.bridge.deliver import messages
from triton_alerts.bridge.deliver.messages import Message, Style
from triton_alerts.bridge.deliver.next_task import (
    DIGEST_FROM,
    DIGEST_SECONDS,
    EDIT_SPACING_SECONDS,
    POST_SPACING_SECONDS,
    Pace,
    SendTask,
    next_task,
)
from triton_alerts.bridge.deliver.transport import MAX_WAIT_SECONDS, Attempts, DeliveryError, Transport
from triton_alerts.bridge.incidents.incident import Incident
from triton_alerts.bridge.incidents.outbox import CHECK_SECONDS, Delivery, Digest
from triton_alerts.bridge.incidents.store import Store
from triton_alerts.bridge.settings import is_channel_id

EVENTS_PER_REPLY = 12
UNWRITABLE = ("is_archived", "channel_not_found", "not_in_channel")
"""Codes of Slack for a channel in which nothing can be posted or edited, maybe for ever."""
SETUP_WAIT_SECONDS = 60.0
"""Seconds until the next try when a person has to fix something (token, channel) before anything can be sent."""
REFUSED_WAIT_SECONDS = 60.0
"""Seconds until the next try of a first message that Slack has refused in every form."""
MAX_EDITED = 1000
"""Messages whose last edit is known; when there are more, all count as not edited."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Escalation:
    """Unacknowledged pages are sent once more, to `channel` (the page's own if empty), with `mention`."""

    after_seconds: float = 0.0
    channel: str = ""
    mention: str = "<!here>"


@dataclass(frozen=True, slots=True)
class DeliveryOptions:
    """Options of delivery workers: style of messages, escalation, and how long to wait for evidence."""

    style: Style = field(default_factory=Style)
    escalation: Escalation = field(default_factory=Escalation)
    evidence_seconds: float = 0.0


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
    _later: dict[tuple[str, int], float] = field(default_factory=dict)
    """Post or edit of a delivery -> time of its next try, where Slack refused it."""
    _edited: dict[int, float] = field(default_factory=dict)
    """Delivery -> time at which its message was edited."""
    _written: dict[int, Message] = field(default_factory=dict)
    """Delivery -> the message that was sent with its last edit."""
    _shown: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """Digest -> the counts that it shows."""
    _refusals: dict[tuple[str, int], int] = field(default_factory=dict)
    """Post or edit of a delivery -> how many of its forms Slack has refused."""
    _channel_id: str = ""
    """Id of the channel, known from the first message posted to it where the channel is given by name."""
    _linked: tuple[tuple[str, str], str] = (("", ""), "")
    """The message that was linked last, and its address."""

    def step(self) -> float:
        """Make at most one request; returns the seconds until there may be more to do."""
        now = self.attempts.clock()
        # When the clock is set back by an hour, a wait of a second must not become a wait of an hour.
        set_back = max(0.0, self._stepped - now)
        self.post_at, self.edit_at, self._stepped = self.post_at - set_back, self.edit_at - set_back, now
        digests = self._digests(now)
        task = next_task(
            self.store.outbox.pending(self.channel),
            digests,
            now,
            Pace(self.post_at, self.edit_at, self._later, self._edited, self._shown),
            threads=self.transport.threads,
            evidence_seconds=self.options.evidence_seconds,
            has_evidence=self._has_evidence,
        )
        if not isinstance(task, SendTask):
            return min(task, MAX_WAIT_SECONDS)
        try:
            if task.kind == "check":
                self._check(task.delivery)
            elif task.kind == "edit":
                self._edit(task, digests, now)
            else:
                self._post(task, digests, now)
        except DeliveryError as refusal:
            self._record_failure(task, refusal, self.attempts.clock())
        else:
            self.attempts.failures = 0
            self._refusals.pop(_key(task), None)
            if task.kind != "check":
                self.attempts.count("delivered", task.kind)
        return 0.0

    def _digests(self, now: float) -> list[Digest]:
        """Return the channel's digests: begin one, or let the last one name more, where many incidents are new."""
        outbox = self.store.outbox
        if not self.transport.threads:  # nor edits
            return []
        digests = outbox.digests(self.channel)
        for digest in digests:
            # All of its incidents have ended, and it shows that, whatever Slack may still do late.
            if (
                digest.firing == digest.delivery.check_at == 0
                and self._shown.get(digest.delivery.id) == digest.counts
            ):
                outbox.delete(digest.delivery)
                del self._shown[digest.delivery.id]
        new = [delivery.id for delivery in outbox.pending(self.channel) if delivery.is_new]
        if len(new) >= DIGEST_FROM:
            last = digests[-1].delivery if digests else None
            if last is not None and 0 <= now - last.sent_at < DIGEST_SECONDS:
                outbox.update(last, version=new[-1])
            else:
                outbox.add_digest(self.channel, new[0], new[-1], now)
        return outbox.digests(self.channel)

    def _has_evidence(self, delivery: Delivery) -> bool:
        incident = self.store.incidents.get(delivery.incident)
        return incident is None or not incident.evidence_is_due

    # Compose

    def _composed(self, task: SendTask, digests: list[Digest], now: float) -> tuple[Message, bool] | None:
        """Return the message of a task, and whether a reply is shown in the channel, too.

        None: a defect in composing must not block this incident or the next ones.
        """
        try:
            return self._compose(task.delivery, digests, now, is_reply=task.kind == "reply")
        except Exception:
            log.exception("channel %s: a message (%s) could not be composed", self.channel, task.kind)
            return None

    def _compose(
        self, delivery: Delivery, digests: list[Digest], now: float, *, is_reply: bool
    ) -> tuple[Message, bool]:
        store, escalation = self.store, self.options.escalation
        if delivery.role == "digest":
            (digest,) = [each for each in digests if each.delivery.id == delivery.id]
            numbers = store.outbox.named_by(delivery)
            incidents = [incident for number in numbers if (incident := store.incidents.get(number))]
            return messages.digest(incidents, digest.total, digest.firing, digest.own), False
        incident = self._incident(delivery)
        if delivery.is_escalation:
            where = self._address(store.outbox.main(delivery.incident))
            after = escalation.after_seconds
            return messages.escalation(incident, escalation.mention, after, where, now), False
        if not is_reply:
            ticket = self._address(store.outbox.earlier(delivery))
            return messages.root(incident, self.options.style, now, ticket), False
        happened = store.incidents.events(
            delivery.incident, delivery.seq, delivery.sending or delivery.last_seq
        )
        events = [messages.as_known(incident, event) for event in happened]
        missed = max(0, len(events) - EVENTS_PER_REPLY)
        # A ticket that became a page must be seen in the channel, unless another channel has its own message.
        broadcast = any(event.kind == "raised" for event in events)
        broadcast = broadcast and not store.outbox.is_continued(delivery)
        mention = escalation.mention if broadcast and incident.severity == "critical" else ""
        others = sum(store.incidents.count_open().values()) - incident.open
        return messages.reply(incident, events[missed:], missed, mention=mention, others=others), broadcast

    def _address(self, delivery: Delivery | None) -> str:
        if delivery is None or not delivery.ts:
            return ""
        place = (delivery.posted_in, delivery.ts)
        if self._linked[0] != place:
            self._linked = place, self.transport.permalink(*place)
        return self._linked[1]

    def _incident(self, delivery: Delivery) -> Incident:
        incident = self.store.incidents.get(delivery.incident)
        assert incident is not None, "a delivery cannot outlive its incident"
        return incident

    def _form(self, task: SendTask, whole: Message) -> Message:
        """Return the message whole; its text alone if Slack refused that; then only where to read it."""
        refusals = self._refusals.get(_key(task), 0)
        if refusals < 2 or task.kind in ("edit", "digest"):
            return Message(whole.text) if refusals else whole
        return messages.refused(self._incident(task.delivery))

    # Send

    def _edit(self, task: SendTask, digests: list[Digest], now: float) -> None:
        """Edit a message; one that cannot be composed stays as it is, and the thread still shows the changes."""
        delivery = task.delivery
        composed = self._composed(task, digests, now)
        if composed is not None and (message := self._form(task, composed[0])) != self._written.get(
            delivery.id
        ):
            self.edit_at = now + EDIT_SPACING_SECONDS
            self._written.pop(delivery.id, None)  # Slack may act on a request that fails
            self.transport.edit(delivery.posted_in, delivery.ts, message)
            self._written[delivery.id] = message
        self._record_edit(delivery, digests, now)

    def _record_edit(self, delivery: Delivery, digests: list[Digest], now: float) -> None:
        if len(self._edited) > MAX_EDITED:
            self._edited.clear()
            self._written.clear()
        self._edited[delivery.id] = now
        if delivery.role == "digest":
            self._record_digest(delivery, digests)
        else:
            self.store.outbox.update(delivery, version=delivery.newest)

    def _record_digest(self, delivery: Delivery, digests: list[Digest]) -> None:
        (digest,) = [each for each in digests if each.delivery.id == delivery.id]
        self._shown[delivery.id] = digest.counts
        self.store.outbox.finish_ended(delivery)

    def _post(self, task: SendTask, digests: list[Digest], now: float) -> None:
        """Post a message, unless an earlier attempt has; that it is sent is stored before it is."""
        delivery, outbox = task.delivery, self.store.outbox
        sending = delivery.sending or delivery.last_seq or delivery.version
        thread = delivery.ts if task.kind == "reply" else ""
        channel = delivery.posted_in or self.channel
        earlier = None
        if delivery.sending:
            try:
                earlier = self.transport.find(channel, outbox.name(delivery), delivery.sent_at, thread)
            except DeliveryError as refusal:
                refusal.unconfirmed = True  # a failed search confirms nothing
                raise
            self.attempts.count("unconfirmed", "found" if earlier is not None else "resent")
        sent = earlier
        if sent is None:
            self.post_at = now + POST_SPACING_SECONDS
            message, broadcast = self._composed(task, digests, now) or (
                Message(
                    f"The bridge could not compose this message ({task.kind}). See the alert in Alertmanager, "
                    "and the error in the bridge's log."
                ),
                False,
            )
            if not delivery.sending:
                outbox.update(delivery, sending=sending, sent_at=now)
            name = outbox.name(delivery, sending)
            sent = self.transport.post(channel, self._form(task, message), name, thread, broadcast=broadcast)
        # Slack may act on the earlier attempt only now.
        check_at = now + CHECK_SECONDS if delivery.sending and sent.ts else delivery.check_at
        values: dict[str, str | int | float] = {"sending": 0, "check_at": check_at}
        if task.kind == "reply":
            values["seq"] = sending
            if not sent.in_thread:
                # Slack posts at top level, without an error, when the thread's parent was deleted.
                values |= {"ts": "", "posted_in": "", "version": 0}
        else:
            values |= {"ts": sent.ts, "posted_in": sent.channel}
            self._channel_id = sent.channel
            if task.kind != "digest":
                # A message of an earlier attempt shows the state at that time; the next edit updates it.
                values |= {"seq": sending, "version": 0 if earlier is not None else delivery.newest}
        with self.store.transaction():
            outbox.update(delivery, **values)
            if task.kind == "digest" and earlier is None:
                self._record_digest(delivery, digests)
        self._edited[delivery.id] = now
        self._written.pop(delivery.id, None)

    def _check(self, delivery: Delivery) -> None:
        """Delete copies of its posts, and edit the message again: Slack may have acted late on an older edit."""
        names = self.store.outbox.name(delivery).rpartition("/")[0] + "/"
        if delivery.ts:
            # Not since the last post: earlier ones may have copies, too.
            channel, since = delivery.posted_in, delivery.opened_at or delivery.sent_at
            self.transport.remove_copies(channel, names, since, "", original=delivery.ts)
            self.transport.remove_copies(channel, names, since, delivery.ts, original="")
        self._forget_check(delivery)

    def _forget_check(self, delivery: Delivery) -> None:
        self._shown.pop(delivery.id, None)
        self._written.pop(delivery.id, None)
        shown = {} if delivery.role == "digest" else {"version": 0}
        self.store.outbox.update(delivery, check_at=0.0, **shown)

    # Failures

    def _record_failure(self, task: SendTask, refusal: DeliveryError, now: float) -> None:
        self.attempts.count("failed", refusal.kind)
        log.warning("channel %s: %s refused: %s", self.channel, task.kind, refusal)
        delivery, outbox, is_edit = task.delivery, self.store.outbox, task.kind == "edit"
        if task.kind == "check":
            if refusal.unconfirmed or refusal.kind in ("rate_limited", "connection"):
                outbox.update(delivery, check_at=now + CHECK_SECONDS)
            else:
                self._forget_check(delivery)
            return
        with self.store.transaction():
            if refusal.unconfirmed and is_edit:
                outbox.update(delivery, check_at=now + CHECK_SECONDS)
            # An earlier attempt that may have arrived stays unconfirmed, whatever the result of this one.
            if not (refusal.unconfirmed or is_edit or delivery.sending):
                outbox.update(delivery, sending=0)
            if refusal.kind == "gone" or (refusal.detail in UNWRITABLE and self._is_elsewhere(delivery)):
                self._forget_gone(task, now)
            elif refusal.kind == "refused_message":
                self._record_refusal(task, now)
            elif refusal.kind == "setup" and task.kind in ("edit", "reply"):
                # It concerns no other message.
                self._later[_key(task)] = now + SETUP_WAIT_SECONDS
            else:
                wait = self.attempts.wait()
                if refusal.kind == "setup":
                    wait = SETUP_WAIT_SECONDS
                if refusal.retry_after is not None:
                    wait = refusal.retry_after + self.attempts.rng.uniform(0.05, 0.5)
                self.edit_at = now + wait
                if not is_edit:
                    self.post_at = now + wait

    def _is_elsewhere(self, delivery: Delivery) -> bool:
        """Return whether the message to edit or to answer is not in the channel of new messages, or may not be."""
        here = self.channel if is_channel_id(self.channel) else self._channel_id
        return delivery.posted_in not in ("", here)

    def _forget_gone(self, task: SendTask, now: float) -> None:
        """Forget a message that was deleted, or may not be changed any more."""
        delivery = task.delivery
        if delivery.role == "digest":
            self.store.outbox.delete(delivery)
        elif task.kind == "edit":
            # The thread still shows the changes.
            self.store.outbox.update(delivery, version=delivery.newest)
        else:
            self.store.outbox.update(delivery, sending=0, ts="", posted_in="", version=0)

    def _record_refusal(self, task: SendTask, now: float) -> None:
        """Try the next form of a message; give up an edit or reply that Slack refuses in every form."""
        delivery, key = task.delivery, _key(task)
        refusals = self._refusals.pop(key, 0) + 1
        if refusals < (2 if task.kind in ("edit", "digest") else 3):
            self._refusals[key] = refusals
        elif task.kind == "edit":
            self._record_edit(delivery, self.store.outbox.digests(self.channel), now)
        elif task.kind == "reply":
            self.store.outbox.update(delivery, sending=0, seq=delivery.sending or delivery.last_seq)
        else:
            self._later[key] = now + REFUSED_WAIT_SECONDS


def _key(task: SendTask) -> tuple[str, int]:
    return "edit" if task.kind == "edit" else "post", task.delivery.id
