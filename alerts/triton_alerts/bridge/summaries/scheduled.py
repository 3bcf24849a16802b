"""Post a message at each due time, exactly once: its name is stored before it is sent."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pydantic import BaseModel

from triton_alerts.bridge.deliver.attempts import MAX_WAIT_SECONDS, UNCONFIRMED_SECONDS, Attempts
from triton_alerts.bridge.deliver.messages.blocks import Message, bare, section
from triton_alerts.bridge.deliver.transport import DeliveryError, Sent, Transport
from triton_alerts.bridge.incidents.outbox.unconfirmed import UnconfirmedMessage
from triton_alerts.bridge.incidents.store import Store
from triton_alerts.bridge.text import code
from triton_exporter.common.moments import local_text
from triton_slo.prometheus.client import PrometheusError

LATE_SECONDS = 600.0
"""Delay from which a message has a note that it is late."""
_MAX_NAMED = 3

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Occasion:
    """Times at which a message is posted, such as the weekly summary.

    `due` returns the last of these times at or before a time. `write` returns the message of such a time; it raises
    PrometheusError. `command` returns the command that prints the same message. `timezone` is that of its readers.
    """

    name: str
    timezone: str
    due: Callable[[float], float]
    write: Callable[[float], Message]
    command: Callable[[float], str]


class Posted(BaseModel, frozen=True):
    """The last time whose message was posted, and the name of the next message once it may have arrived."""

    until: float
    name: str = ""
    since: float = 0.0
    due: float = 0.0
    """The due time of this message; 0 if an older bridge stored it."""
    plain: bool = False
    """Slack refused the blocks of this message."""


@dataclass
class ScheduledMessage:
    """Posts the messages of an occasion to one channel; if the bridge was stopped, the last one is posted late."""

    destination: str
    """The Slack channel."""
    occasion: Occasion
    store: Store
    transport: Transport
    attempts: Attempts
    _wait_until: float = 0.0

    @property
    def channel(self) -> str:
        """Name of the worker's thread; `destination` is the Slack channel."""
        return self.occasion.name

    def step(self) -> float:
        """Make at most one request; returns the seconds until there may be more to do."""
        now = self.attempts.clock()
        due = self.occasion.due(now)
        known = self._known()
        if known is None:
            # The first start: the bridge did not run in the period of the last message, or not to its end.
            self._store(Posted(until=due))
            return MAX_WAIT_SECONDS
        if due <= known.until:
            return MAX_WAIT_SECONDS
        if 0 < self._wait_until - now <= MAX_WAIT_SECONDS:
            return self._wait_until - now
        try:
            self._send(known, due, now)
        except DeliveryError as refusal:
            self._record_failure(refusal, now)
        except PrometheusError as error:
            log.warning("the %s cannot be written yet: %s", self.occasion.name, error)
            self._wait(now)
        else:
            self.attempts.failures = 0
        return 0.0

    def _send(self, known: Posted, due: float, now: float) -> None:
        resumed = bool(known.name)
        if resumed and known.due:
            due = known.due  # the message that was begun first; a later one follows in the next step
        if resumed and (posted := self.transport.find(self.destination, known.name, known.since)) is not None:
            self._record_arrival(known, posted, due, now)
            return
        message = _with_note(self.occasion.write(due), self._note(known, due, now))
        message = bare(message) if known.plain else message
        if not resumed:
            known = known.model_copy(update={"name": uuid.uuid4().hex, "since": now, "due": due})
            self._store(known)
        sent = self.transport.post(self.destination, message, known.name)
        self.attempts.count("delivered", "summary")
        self._record_arrival(known, sent, due, now if resumed else None)

    def _note(self, known: Posted, due: float, now: float) -> str:
        """Return, as Slack's markup, that the message is late, and which others were never posted."""
        notes = []
        if now - due >= LATE_SECONDS:
            notes.append(
                f"Late: due on {local_text(due, self.occasion.timezone)} {self.occasion.timezone}. The bridge was "
                "not running then, or Prometheus or Slack did not answer."
            )
        if missed := [code(self.occasion.command(at)) for at in self._missed(known.until, due)]:
            more = len(missed) - _MAX_NAMED
            named = ", ".join(missed[:_MAX_NAMED]) + (f", and {more} more" if more > 0 else "")
            notes.append(f"Earlier messages that were not posted; to print them, run: {named}")
        return "\n".join(notes)

    def _missed(self, until: float, due: float) -> Iterator[float]:
        """Yield the times between two, the latest first."""
        while (due := self.occasion.due(due - 1)) > until:
            yield due

    def _record_arrival(self, known: Posted, sent: Sent, due: float, unconfirmed_at: float | None) -> None:
        """Record that the message was posted; if it was sent twice, search for the copy later."""
        with self.store.transaction():
            self._store(Posted(until=due))
            if unconfirmed_at is not None and sent.ts:
                check_at = unconfirmed_at + UNCONFIRMED_SECONDS
                self.store.unconfirmed.add(
                    UnconfirmedMessage(
                        self.destination, known.name, 0, sent.channel, "", sent.ts, known.since, check_at
                    )
                )

    def _record_failure(self, refusal: DeliveryError, now: float) -> None:
        self.attempts.count("failed", refusal.kind)
        log.warning("channel %s: the %s was refused: %s", self.destination, self.occasion.name, refusal)
        known = self._known()
        self._wait(now, refusal.retry_after or (MAX_WAIT_SECONDS if refusal.kind == "setup" else None))
        if known is not None and refusal.kind == "refused_message":
            self._store(known.model_copy(update={"plain": True}))

    def _wait(self, now: float, seconds: float | None = None) -> None:
        wait = self.attempts.wait()
        self._wait_until = now + min(seconds or wait, MAX_WAIT_SECONDS)

    def _known(self) -> Posted | None:
        stored = self.store.values.get(self.occasion.name)
        return Posted.model_validate_json(stored) if stored else None

    def _store(self, posted: Posted) -> None:
        self.store.values.set(self.occasion.name, posted.model_dump_json())


def _with_note(message: Message, note: str) -> Message:
    if not note:
        return message
    title, *rest = message.blocks
    return Message(f"{message.text}\n{note}", (title, section(note), *rest))
