"""Compose the message of a task from the stored incident; options of the messages."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from triton_alerts.bridge.deliver import messages
from triton_alerts.bridge.deliver.messages import Message, Style
from triton_alerts.bridge.deliver.next_task import SendTask
from triton_alerts.bridge.deliver.transport import Transport
from triton_alerts.bridge.incidents.incident import Incident
from triton_alerts.bridge.incidents.outbox.deliveries import Delivery
from triton_alerts.bridge.incidents.store import Store

EVENTS_PER_REPLY = 12

log = logging.getLogger(__name__)
Composed = TypeVar("Composed")


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
class Composer:
    """Composes messages; the transport returns the addresses of earlier messages, to link to them."""

    store: Store
    transport: Transport
    options: DeliveryOptions
    _addresses: dict[tuple[str, str], str] = field(default_factory=dict)
    """The address of the message that was linked last."""

    def posted(self, task: SendTask, now: float) -> tuple[Message, bool]:
        """Return the message to post, and whether a reply is shown in the channel, too."""
        result = _unless_defective(lambda: self._compose(task, now), f"incident {task.first.incident}")
        if result is None:
            return Message(
                f"The bridge could not compose this message ({task.kind}). See the alert in Alertmanager, "
                "and the error in the bridge's log."
            ), False
        composed, broadcast = result
        return composed, broadcast

    def edited(self, task: SendTask, now: float) -> Message | None:
        """Return the new content of an incident's own message, or of its escalation; None if that fails."""
        first, incident = task.first, self._incident(task.first)
        return _unless_defective(
            lambda: (
                self._escalation(task, incident, now)
                if first.is_escalation
                else self._root(first, incident, now)
            ),
            f"incident {first.incident}",
        )

    def edited_digest(self, channel: str, task: SendTask, now: float) -> Message | None:
        """Return the new content of a channel's digest; None if that fails."""
        numbers = self.store.digests.alone_in(channel, task.thread, messages.DIGEST_LINES)
        incidents = [incident for number in numbers if (incident := self.store.incidents.get(number))]
        return _unless_defective(
            lambda: messages.digest(incidents, task.waiting, task.firing, now, threads=True),
            f"the digest of {channel}",
        )

    def _compose(self, task: SendTask, now: float) -> tuple[Message, bool]:
        incident = self._incident(task.first)
        if task.kind == "root":
            return self._root(task.first, incident, now), False
        if task.kind == "digest":
            incidents = [self._incident(delivery) for delivery in task.deliveries]
            if task.thread:
                return messages.digest_part(incidents, now), False
            return messages.digest(
                incidents, task.waiting, task.firing, now, threads=self.transport.threads
            ), False
        if task.kind == "escalation":
            return self._escalation(task, incident, now), True
        first = task.first
        events = self.store.incidents.events(first.incident, first.posted_seq, task.last_event(first))
        missed = max(0, len(events) - EVENTS_PER_REPLY)
        # A ticket that became a page must be seen in the channel, unless another channel has its own message.
        broadcast = any(event.kind == "raised" for event in events) and not self.store.outbox.is_continued(
            first
        )
        mention = self.options.escalation.mention if broadcast and incident.severity == "critical" else ""
        others = sum(self.store.incidents.count_open().values()) - incident.open
        return messages.reply(incident, events[missed:], missed, mention=mention, others=others), broadcast

    def _root(self, delivery: Delivery, incident: Incident, now: float) -> Message:
        return messages.root(
            incident, self.options.style, now, self._address(self.store.outbox.earlier(delivery))
        )

    def _escalation(self, task: SendTask, incident: Incident, now: float) -> Message:
        where = self._address(self.store.outbox.main(task.first.incident))
        options = self.options.escalation
        return messages.escalation(incident, options.mention, options.after_seconds, where, now)

    def _address(self, delivery: Delivery | None) -> str:
        if delivery is None or not delivery.root_ts:
            return ""
        place = (delivery.root_channel, delivery.root_ts)
        if place not in self._addresses:
            self._addresses.clear()
            self._addresses[place] = self.transport.permalink(*place)
        return self._addresses[place]

    def _incident(self, delivery: Delivery) -> Incident:
        incident = self.store.incidents.get(delivery.incident)
        assert incident is not None, "a delivery cannot outlive its incident"
        return incident


def _unless_defective(compose: Callable[[], Composed], what: str) -> Composed | None:
    """Return the composed message, or None: a defect in composing must not block this page or the next ones."""
    try:
        return compose()
    except Exception:
        log.exception("%s could not be composed", what)
        return None
