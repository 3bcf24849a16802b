"""Post the summary of a week once, whatever fails in between: its name is stored before it is sent."""

from __future__ import annotations

import logging
import random
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from pydantic import BaseModel

from triton_alerts.bridge.deliver.message import bare
from triton_alerts.bridge.deliver.transport import (
    LONGEST_WAIT_SECONDS,
    UNCONFIRMED_SECONDS,
    DeliveryError,
    Sent,
    Transport,
    backoff,
)
from triton_alerts.bridge.incidents.history import list_incidents
from triton_alerts.bridge.incidents.outbox import UnconfirmedMessage
from triton_alerts.bridge.incidents.store import Store
from triton_alerts.bridge.review.summary import summarize
from triton_alerts.hours import Hours

FACT = "weekly summary"

log = logging.getLogger(__name__)


class Posted(BaseModel, frozen=True):
    """The end of the last week that was posted, and the name of the next one's message once it may have arrived."""

    until: float
    name: str = ""
    since: float = 0.0
    plain: bool = False
    """Slack refused the blocks of this message."""


@dataclass
class WeeklySummary:
    """Posts to one channel when the first of the working days begins; a bridge that was away then posts late.

    `budgets` returns lines about the error budgets at a time.
    """

    where: str
    hours: Hours
    store: Store
    transport: Transport
    budgets: Callable[[float], Sequence[str]]
    clock: Callable[[], float]
    rng: random.Random
    count: Callable[[str, str], None] = lambda _what, _kind: None
    failures: int = 0
    _wait_until: float = 0.0

    @property
    def channel(self) -> str:
        return FACT

    def step(self) -> float:
        """Make at most one request; returns the seconds until there may be more to do."""
        now = self.clock()
        end = self.hours.last_start(now)
        known = self._known()
        if known is None:
            # The first start: the week before was not watched by this bridge, or not to the end.
            self._store(Posted(until=end.timestamp()))
            return LONGEST_WAIT_SECONDS
        if end.timestamp() <= known.until:
            return LONGEST_WAIT_SECONDS
        if 0 < self._wait_until - now <= LONGEST_WAIT_SECONDS:
            return self._wait_until - now
        try:
            self._send(known, end, now)
        except DeliveryError as refusal:
            self._refused(refusal, now)
        else:
            self.failures = 0
        return 0.0

    def _send(self, known: Posted, end: datetime, now: float) -> None:
        resumed = bool(known.name)
        if resumed and (posted := self.transport.find(self.where, known.name, known.since)) is not None:
            self._arrived(known, posted, end, now)
            return
        week = summarize(
            list_incidents(self.store.database.path.parent), end, self.hours, self.budgets(end.timestamp())
        )
        message = bare(week.message()) if known.plain else week.message()
        if not resumed:
            known = known.model_copy(update={"name": uuid.uuid4().hex, "since": now})
            self._store(known)
        sent = self.transport.post(self.where, message, known.name)
        self.count("delivered", "summary")
        self._arrived(known, sent, end, now if resumed else None)

    def _arrived(self, known: Posted, sent: Sent, end: datetime, unconfirmed_at: float | None) -> None:
        """Record that it was posted; one that was sent twice is searched for again later."""
        with self.store.transaction():
            self._store(Posted(until=end.timestamp()))
            if unconfirmed_at is not None and sent.ts:
                due = unconfirmed_at + UNCONFIRMED_SECONDS
                self.store.outbox.add_unconfirmed(
                    UnconfirmedMessage(self.where, known.name, 0, sent.channel, "", sent.ts, known.since, due)
                )

    def _refused(self, refusal: DeliveryError, now: float) -> None:
        self.count("failed", refusal.kind)
        log.warning("channel %s: the weekly summary was refused: %s", self.where, refusal)
        known = self._known()
        self.failures += 1
        wait = backoff(self.failures, self.rng) if refusal.kind != "setup" else LONGEST_WAIT_SECONDS
        self._wait_until = now + min(refusal.retry_after or wait, LONGEST_WAIT_SECONDS)
        if known is not None and refusal.kind == "refused_message":
            self._store(known.model_copy(update={"plain": True}))

    def _known(self) -> Posted | None:
        stored = self.store.values.get(FACT)
        return Posted.model_validate_json(stored) if stored else None

    def _store(self, posted: Posted) -> None:
        self.store.values.set(FACT, posted.model_dump_json())
