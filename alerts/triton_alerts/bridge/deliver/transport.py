"""Interface of a transport for the delivery worker: Slack's API, an incoming webhook, a terminal."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from triton_alerts.bridge.deliver.messages.blocks import Message
from triton_exporter.catalogue.external.bridge import ErrorKind


@dataclass(frozen=True, slots=True)
class Sent:
    """Where a message ended up. `in_thread` is False when the thread it was meant for is gone."""

    channel: str
    ts: str
    in_thread: bool = True


class DeliveryError(Exception):
    """The message was not accepted, or it is unknown whether it was.

    `detail` is the peer's own code, `retry_after` the seconds it asked to wait, `unconfirmed` whether it may have
    been posted all the same.
    """

    def __init__(
        self, kind: ErrorKind, detail: str, retry_after: float | None = None, *, unconfirmed: bool = False
    ) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail
        self.retry_after = retry_after
        self.unconfirmed = unconfirmed


LONGEST_WAIT_SECONDS = 60.0
UNCONFIRMED_SECONDS = 60.0
"""Slack has acted up to 40 s after a request that it did not answer in time."""


def backoff(failures: int, rng: random.Random) -> float:
    """Return how long to wait after so many failures: exponential, jittered above half, at most a minute."""
    longest = min(LONGEST_WAIT_SECONDS, 2.0 ** min(failures - 1, 10))
    return rng.uniform(longest / 2, longest)


def wait_asked(retry_after: str) -> float:
    """Return the seconds that a Retry-After names, or 30 where it is not one to four digits."""
    return float(retry_after) if re.fullmatch(r"[0-9]{1,4}", retry_after) else 30.0


@dataclass
class Attempts:
    """The time of one sender, how often it failed in a row, and its numbers.

    `count` receives (what, kind) for the bridge's own metrics.
    """

    clock: Callable[[], float]
    rng: random.Random = field(default_factory=random.Random)
    count: Callable[[str, str], None] = lambda _what, _kind: None
    failures: int = 0

    def wait(self) -> float:
        """Count a failure; returns how long to wait after it."""
        self.failures += 1
        return backoff(self.failures, self.rng)


def read_secret(secret: Callable[[], str]) -> str:
    """Return the secret as it is now. Raises DeliveryError, which a person has to fix; nothing was sent."""
    try:
        value = secret()
    except (OSError, UnicodeDecodeError) as error:
        raise DeliveryError("setup", f"the secret's file cannot be read ({type(error).__name__})") from None
    if not value:
        raise DeliveryError("setup", "the secret's file is empty")
    return value


class Transport(Protocol):
    """Every method may raise DeliveryError, and nothing else for what a peer does.

    `threads` says whether messages can be answered and edited; without it each change is a new message.
    `name` identifies a message across attempts.
    """

    threads: bool

    def post(
        self, channel: str, message: Message, name: str, thread: str = "", *, loud: bool = False
    ) -> Sent:
        """Post a message, into a thread if one is given; `loud` shows a reply in the channel too."""

    def edit(self, channel: str, ts: str, message: Message) -> None:
        """Replace a message."""

    def find(self, channel: str, name: str, since: float, thread: str = "") -> Sent | None:
        """Look for a message that may have been posted; None when it was not, or it cannot be searched for."""

    def remove_copies(self, channel: str, name: str, since: float, thread: str, original: str) -> None:
        """Delete the messages of this name other than the original one."""

    def permalink(self, channel: str, ts: str) -> str:
        """Return the address of a message, or nothing."""
