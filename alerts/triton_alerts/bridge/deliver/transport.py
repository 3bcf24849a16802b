"""Interface of a transport (Slack's API, an incoming webhook, a terminal), its error, and waits after errors."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from triton_alerts.bridge.deliver.messages import Message
from triton_slo.bridge_series import ErrorKind

MAX_WAIT_SECONDS = 60.0


def retry_after_seconds(retry_after: str) -> float:
    """Return the seconds of a Retry-After header, or 30 if it is not a number of one to four digits."""
    return float(retry_after) if re.fullmatch(r"[0-9]{1,4}", retry_after) else 30.0


@dataclass
class Attempts:
    """The clock of one worker, its failures in a row, and the counters of its requests.

    `count` receives (what, kind) for the bridge's own metrics.
    """

    clock: Callable[[], float]
    rng: random.Random = field(default_factory=random.Random)
    count: Callable[[str, str], None] = lambda _what, _kind: None
    failures: int = 0

    def wait(self) -> float:
        """Count a failure; returns how long to wait after it: exponential, jittered above half, at most a minute."""
        self.failures += 1
        longest = min(MAX_WAIT_SECONDS, 2.0 ** min(self.failures - 1, 10))
        return self.rng.uniform(longest / 2, longest)


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
    """Where messages are sent. Every method may raise DeliveryError, and raises no other error because of a peer.

    A transport that cannot edit, search or link inherits methods that do nothing.

    `threads` is whether messages can be answered and edited; without it each change is a new message.
    `name` identifies a message across attempts.
    """

    threads: bool

    def post(
        self, channel: str, message: Message, name: str, thread: str = "", *, broadcast: bool = False
    ) -> Sent:
        """Post a message, into a thread if one is given; `broadcast` shows a reply in the channel too."""

    def edit(self, channel: str, ts: str, message: Message) -> None:
        """Replace a message."""
        return

    def find(self, channel: str, name: str, since: float, thread: str = "") -> Sent | None:
        """Search for a message that may have been posted; None if it was not, or if no search is possible."""
        return None

    def remove_copies(self, channel: str, names: str, since: float, thread: str, original: str) -> None:
        """Delete copies of messages whose names begin with `names`: of each, the original stays, or the first one."""
        return

    def permalink(self, channel: str, ts: str) -> str:
        """Return the address of a message, or nothing."""
        return ""
