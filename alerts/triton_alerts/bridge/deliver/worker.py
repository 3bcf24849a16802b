"""Deliver one channel's incidents in order, at the pace Slack allows, until everything is posted.

A worker makes at most one request per step and keeps nothing that a kill could lose: before a message is
sent its name is stored, and after a kill or a lost answer Slack is searched for that name first.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace

from triton_alerts.bridge.deliver import message
from triton_alerts.bridge.deliver.blocks import Message, bare
from triton_alerts.bridge.deliver.incident_links import Style
from triton_alerts.bridge.deliver.plan import EDIT_SPACING_SECONDS, POST_SPACING_SECONDS, Op, Wait, plan
from triton_alerts.bridge.deliver.transport import (
    LONGEST_WAIT_SECONDS,
    UNCONFIRMED_SECONDS,
    Attempts,
    DeliveryError,
    Sent,
    Transport,
    backoff,
)
from triton_alerts.bridge.incidents.incident import Incident
from triton_alerts.bridge.incidents.outbox import Delivery, Digest, UnconfirmedMessage
from triton_alerts.bridge.incidents.store import Store

EVENTS_PER_REPLY = 12
EDITS = ("edit", "digest_edit")
LONGEST_UNCONFIRMED_SECONDS = 900.0
SETUP_WAIT_SECONDS = 60.0
"""Seconds until the next try when a person has to fix something (token, channel) before anything can be sent."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Escalation:
    """Un-acknowledged pages are sent once more, to `channel` (the page's own if empty), with `mention`."""

    after_seconds: float = 0.0
    channel: str = ""
    mention: str = "<!here>"


@dataclass(frozen=True, slots=True)
class DeliveryOptions:
    """Options of delivery workers: the style of messages, and what evidence is worth waiting for."""

    style: Style = field(default_factory=Style)
    escalation: Escalation = field(default_factory=Escalation)
    evidence_seconds: float = 0.0


@dataclass
class DeliveryWorker:
    """The sender of one channel."""

    channel: str
    store: Store
    transport: Transport
    options: DeliveryOptions
    attempts: Attempts
    post_at: float = 0.0
    edit_at: float = 0.0
    _stepped: float = 0.0
    _addresses: dict[tuple[str, str], str] = field(default_factory=dict)
    """The address of the message that was asked for last."""

    def step(self) -> float:
        """Make at most one request; returns the seconds until there may be more to do."""
        now = self.attempts.clock()
        # A clock that was put back must not make what waits for a second wait for an hour.
        back = max(0.0, self._stepped - now)
        self.post_at, self.edit_at, self._stepped = self.post_at - back, self.edit_at - back, now
        todo = plan(
            self.store.outbox.pending(self.channel),
            now,
            post_at=self.post_at,
            edit_at=self.edit_at,
            threads=self.transport.threads,
            digests=self.store.outbox.digests(self.channel),
            evidence_seconds=self.options.evidence_seconds,
            has_evidence=self._has_evidence,
        )
        unconfirmed = self.store.outbox.first_unconfirmed(self.channel)
        overdue = now - unconfirmed.due if unconfirmed is not None else -LONGEST_WAIT_SECONDS
        if (
            unconfirmed is not None
            and overdue >= 0
            and (isinstance(todo, Wait) or overdue > UNCONFIRMED_SECONDS)
        ):
            self._check(unconfirmed, now)
            return 0.0
        if isinstance(todo, Wait):
            return min(todo.seconds, -overdue if overdue < 0 else 0.0, LONGEST_WAIT_SECONDS)
        try:
            self._do(todo, now)
        except DeliveryError as refusal:
            self._refused(todo, refusal, self.attempts.clock())
        else:
            self.attempts.failures = 0
            if todo.kind not in EDITS:
                self.attempts.count("delivered", todo.kind)
        return 0.0

    def _check(self, unconfirmed: UnconfirmedMessage, now: float) -> None:
        """Search again for a message that was sent twice: Slack may have acted, or shown it, late."""
        try:
            if unconfirmed.name:
                where = (
                    unconfirmed.root_channel,
                    unconfirmed.name,
                    unconfirmed.since,
                    unconfirmed.thread,
                    unconfirmed.ts,
                )
                self.transport.remove_copies(*where)
        except DeliveryError as refusal:
            self.attempts.count("failed", refusal.kind)
            if (
                refusal.kind not in ("gone", "setup")
                and now - unconfirmed.since < LONGEST_UNCONFIRMED_SECONDS
            ):
                self.store.outbox.add_unconfirmed(replace(unconfirmed, due=now + UNCONFIRMED_SECONDS))
                return
            log.warning(
                "channel %s: whether a message was posted twice is unknown: %s", self.channel, refusal
            )
        self.store.outbox.settle_unconfirmed(unconfirmed)

    def _record_unconfirmed(self, op: Op, now: float, sent: Sent | None = None) -> None:
        """Check later what was sent without an answer: a message by its name, or an edit."""
        first = op.deliveries[0] if op.deliveries else None
        self.store.outbox.add_unconfirmed(
            UnconfirmedMessage(
                self.channel,
                op.name,
                first.id if first is not None else 0,
                sent.channel if sent is not None else "",
                op.thread if sent is not None and sent.in_thread else "",
                sent.ts if sent is not None else "",
                first.inflight_at if first is not None and first.inflight_at else now,
                now + UNCONFIRMED_SECONDS,
            )
        )

    def _has_evidence(self, delivery: Delivery) -> bool:
        incident = self.store.incidents.get(delivery.incident)
        return incident is None or not incident.evidence_is_due

    def _do(self, op: Op, now: float) -> None:
        if op.kind == "edit":
            self._edit(op, now)
        elif op.kind == "digest_edit":
            self._edit_digest(op, now)
        elif op.resumed and (sent := self._find(op)) is not None:
            self._arrived(op, sent, now, known=True)
        else:
            self._post(op, now)

    def _edit(self, op: Op, now: float) -> None:
        first = op.first
        self.edit_at = now + EDIT_SPACING_SECONDS
        incident = self._incident(first)
        body = (
            self._escalation(op, incident, now) if first.is_escalation else self._root(first, incident, now)
        )
        self.transport.edit(first.root_channel, first.root_ts, self._fit(body, first))
        self.store.outbox.update(first, shown_version=first.version, edited_at=now, attempts=0, next_try=0.0)
        self.attempts.count("delivered", "edit")

    def _edit_digest(self, op: Op, now: float) -> None:
        self.edit_at = now + EDIT_SPACING_SECONDS
        digest = self._digest(op.thread)
        assert digest is not None, "only a digest that was posted is edited"
        numbers = self.store.outbox.only_in_digest(self.channel, op.thread, message.DIGEST_LINES)
        incidents = [incident for number in numbers if (incident := self.store.incidents.get(number))]
        self.transport.edit(
            digest.channel, op.thread, message.digest(incidents, op.waiting, op.firing, now, threads=True)
        )
        self.store.outbox.edited_digest(self.channel, op.thread, op.waiting, op.firing, now)
        self.attempts.count("delivered", "edit")

    def _digest(self, ts: str) -> Digest | None:
        return next((digest for digest in self.store.outbox.digests(self.channel) if digest.ts == ts), None)

    def _find(self, op: Op) -> Sent | None:
        first = op.first
        try:
            sent = self.transport.find(self._channel(op), op.name, first.inflight_at, op.thread)
        except DeliveryError as refusal:
            refusal.unconfirmed = True  # a failed search settles nothing
            raise
        self.attempts.count("unconfirmed", "found" if sent is not None else "resent")
        return sent

    def _post(self, op: Op, now: float) -> None:
        self.post_at = now + POST_SPACING_SECONDS
        body, loud = self._safely_composed(op, now)
        if not op.resumed:
            digest = {"digest": op.thread} if op.kind == "digest" else {}
            self.store.outbox.begin(op.deliveries, op.name, op.kind, now, **digest)
        channel = self._channel(op)
        sent = self.transport.post(channel, self._fit(body, op.first), op.name, op.thread, loud=loud)
        self._arrived(op, sent, now, known=False)

    def _safely_composed(self, op: Op, now: float) -> tuple[Message, bool]:
        try:
            return self._compose(op, now)
        except Exception:
            # A defect in the wording must not cost the page.
            log.exception("incident %s could not be composed", op.first.incident)
            return Message(f"{op.kind}: see Alertmanager; the bridge could not compose this message"), False

    def _compose(self, op: Op, now: float) -> tuple[Message, bool]:
        incident = self._incident(op.first)
        if op.kind == "root":
            return self._root(op.first, incident, now), False
        if op.kind == "digest":
            incidents = [self._incident(delivery) for delivery in op.deliveries]
            if op.thread:
                return message.digest_part(incidents, now), False
            return message.digest(
                incidents, op.waiting, op.firing, now, threads=self.transport.threads
            ), False
        if op.kind == "escalation":
            return self._escalation(op, incident, now), True
        events = self.store.incidents.events(op.first.incident, op.first.posted_seq, _seq(op, op.first))
        missed = max(0, len(events) - EVENTS_PER_REPLY)
        # What became a page inside its thread must be seen in the channel; another channel has its own message.
        loud = any(event.kind == "raised" for event in events) and not self.store.outbox.is_continued(
            op.first
        )
        mention = self.options.escalation.mention if loud and incident.severity == "critical" else ""
        others = sum(self.store.incidents.count_open().values()) - incident.open
        return message.reply(incident, events[missed:], missed, mention=mention, others=others), loud

    def _root(self, delivery: Delivery, incident: Incident, now: float) -> Message:
        return message.root(
            incident, self.options.style, now, self._address(self.store.outbox.earlier(delivery))
        )

    def _escalation(self, op: Op, incident: Incident, now: float) -> Message:
        where = self._address(self.store.outbox.main(op.first.incident))
        how = self.options.escalation
        return message.escalation(incident, how.mention, how.after_seconds, where, now)

    def _address(self, delivery: Delivery | None) -> str:
        if delivery is None or not delivery.root_ts:
            return ""
        place = (delivery.root_channel, delivery.root_ts)
        if place not in self._addresses:
            self._addresses.clear()
            self._addresses[place] = self.transport.permalink(*place)
        return self._addresses[place]

    def _arrived(self, op: Op, sent: Sent, now: float, *, known: bool) -> None:
        """Record what was posted: now, or by the earlier attempt that was found."""
        with self.store.transaction():
            if op.resumed and sent.ts:
                self._record_unconfirmed(op, now, sent)
            self._record(op, sent, now, known=known)

    def _record(self, op: Op, sent: Sent, now: float, *, known: bool) -> None:
        delivery = op.first
        if op.kind == "digest":
            if sent.in_thread and sent.ts and not op.thread:
                # Its edits name what fires only, so that its thread names each incident, these too.
                self.store.outbox.set_digest(self.channel, sent.channel, sent.ts, now)
                for each in op.deliveries:
                    self.store.outbox.finish(each)
                return
            for each in op.deliveries:
                first = op.thread if sent.in_thread else ""
                self.store.outbox.finish(each, digest=first, **_covered_by_digest(each, _seq(op, each)))
            if not sent.in_thread:
                self.store.outbox.forget_digest(self.channel, op.thread)
        elif op.kind == "reply":
            # Slack posts at top level, without an error, when the thread's parent was deleted.
            gone: dict[str, str | int | float] = (
                {} if sent.in_thread else {"root_ts": "", "root_channel": "", "shown_version": 0}
            )
            self.store.outbox.finish(delivery, posted_seq=_seq(op, delivery), **gone)
        else:
            self.store.outbox.finish(
                delivery,
                root_ts=sent.ts,
                root_channel=sent.channel,
                posted_seq=_seq(op, delivery),
                edited_at=now,
                # A message found after a kill shows the state of then; the next edit brings it up to date.
                shown_version=0 if known else delivery.version,
            )

    def _refused(self, op: Op, refusal: DeliveryError, now: float) -> None:
        self.attempts.count("failed", refusal.kind)
        log.warning("channel %s: %s refused: %s", self.channel, op.kind, refusal)
        with self.store.transaction():
            # An earlier attempt that may have arrived stays unconfirmed whatever became of this one.
            if not refusal.unconfirmed and not op.resumed and op.kind not in EDITS:
                self.store.outbox.begin(op.deliveries, "", "", 0.0)
            if refusal.unconfirmed and op.kind in EDITS:
                self._record_unconfirmed(op, now)
            if refusal.kind == "gone":
                self._gone(op)
            elif refusal.kind == "refused_message":
                self._retry_as_text(op, now)
            else:
                self._back_off(op, refusal, now)

    def _gone(self, op: Op) -> None:
        if op.kind == "digest_edit" or (op.kind == "digest" and op.thread):
            self.store.outbox.forget_digest(self.channel, op.thread)
            self.store.outbox.begin(op.deliveries, "", "", 0.0)
        elif op.kind == "edit":  # too old to edit, or deleted by a person: the thread still shows the changes
            self.store.outbox.update(op.first, shown_version=op.first.version)
        else:
            self.store.outbox.begin(op.deliveries, "", "", 0.0)
            self.store.outbox.update(op.first, root_ts="", root_channel="", shown_version=0)

    def _retry_as_text(self, op: Op, now: float) -> None:
        if op.kind == "digest_edit":  # there is nothing to it without blocks
            self.store.outbox.edited_digest(self.channel, op.thread, op.waiting, op.firing, now)
        for delivery in op.deliveries:
            attempts = delivery.attempts + 1
            later = now + backoff(attempts, self.attempts.rng) if delivery.plainness else now
            self.store.outbox.update(delivery, plainness=1, attempts=attempts, next_try=later)

    def _back_off(self, op: Op, refusal: DeliveryError, now: float) -> None:
        wait = self.attempts.wait()
        if refusal.kind == "setup":
            wait = SETUP_WAIT_SECONDS
        if refusal.retry_after is not None:
            wait = refusal.retry_after + self.attempts.rng.uniform(0.05, 0.5)
        if op.kind in EDITS:
            self.edit_at = now + wait
        if op.kind not in EDITS or refusal.kind != "rate_limited":
            self.post_at = self.edit_at = now + wait

    def _channel(self, op: Op) -> str:
        """Return the channel of a message; a thread's is known by its id."""
        if op.kind == "digest":
            digest = self._digest(op.thread)
            return digest.channel if digest is not None else self.channel
        return op.first.root_channel or self.channel

    def _fit(self, body: Message, delivery: Delivery) -> Message:
        return bare(body) if delivery.plainness else body

    def _incident(self, delivery: Delivery) -> Incident:
        incident = self.store.incidents.get(delivery.incident)
        assert incident is not None, "a delivery cannot outlive its incident"
        return incident


def _seq(op: Op, delivery: Delivery) -> int:
    """Return the last event of a message: one that is sent again reports what it reported the first time."""
    return delivery.inflight_seq if op.resumed else delivery.last_seq


def _covered_by_digest(delivery: Delivery, seq: int) -> dict[str, str | int | float]:
    """A digest reports a closed incident in full; an open one still gets its own message."""
    full = delivery.closed_at is not None and seq == delivery.last_seq
    return {"digest_seq": seq, "posted_seq": seq} if full else {"digest_seq": seq}
