"""Interface of a transport (Slack's API, an incoming webhook, a terminal), its error, and waits after errors.

The terminal is here: Slack blocks as text, what on-call would get.
"""

from __future__ import annotations

import random
import re
import textwrap
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import unescape
from typing import Any, Protocol, TextIO

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


WIDTH = 100
MAX_TITLES = 10_000

_DATE = re.compile(r"<!date\^(\d+)\^[^|>]*\|[^>]*>")
_LINK = re.compile(r"<(https?://[^|>]+)\|([^>]*)>")
_USER = re.compile(r"<@([A-Z0-9]+)>")
_SPECIAL = re.compile(r"<!(?:subteam\^)?([^|>^]+)(?:\|[^>]*)?>")


class Terminal(Transport):
    """A transport that prints. Edits are not printed: the thread's replies report the same in order."""

    threads = True

    def __init__(self, stream: TextIO, clock: Callable[[], float]) -> None:
        self._stream = stream
        self._clock = clock
        self._lock = threading.Lock()
        self._titles: dict[str, str] = {}

    def post(
        self, channel: str, message: Message, name: str, thread: str = "", *, broadcast: bool = False
    ) -> Sent:
        head = f"{datetime.fromtimestamp(self._clock(), UTC):%H:%M:%S} {channel}"
        with self._lock:
            if thread:
                head = f"{head}, in the thread of: {self._titles.get(thread, thread)}"
            elif len(self._titles) < MAX_TITLES:
                self._titles[name] = as_text(message.text).partition(" · ")[0]
            self._stream.write(render(message, head, boxed=not thread))
            self._stream.flush()
        return Sent(channel, thread or name)


def render(message: Message, head: str, *, boxed: bool = True) -> str:
    """Return a message as lines of text; a message in the channel is boxed, one in a thread is indented."""
    lines = [line for block in message.blocks for line in _block(block, WIDTH - 4)]
    lines = lines or list(_wrap(as_text(message.text), WIDTH - 4))
    if not boxed:
        return f"\n↳ {head}\n" + "".join(f"  {line}\n" for line in lines)
    body = "".join(f"│ {line}\n" for line in lines)
    return f"\n┌─ {head} {'─' * max(0, WIDTH - len(head) - 4)}\n{body}└{'─' * (WIDTH - 1)}\n"


def _block(block: dict[str, Any], width: int) -> Iterator[str]:
    kind = block["type"]
    if kind == "header":
        yield from _wrap(block["text"]["text"], width)
    elif kind == "section":
        if "text" in block:
            yield from _wrap(as_text(block["text"]["text"]), width)
        for field in block.get("fields", ()):
            name, _, value = as_text(field["text"]).partition("\n")
            yield from _wrap(f"{name + ':':<14}{value.replace(chr(10), chr(10) + ' ' * 14)}", width)
    elif kind == "context":
        yield from _wrap(" ".join(as_text(element["text"]) for element in block["elements"]), width)
    elif kind == "actions":
        for element in block["elements"]:
            if "url" in element:
                yield f"{element['text']['text'] + ':':<13} {element['url']}"


def as_text(body: str) -> str:
    """Return Slack markup as text."""
    body = _DATE.sub(lambda match: f"{datetime.fromtimestamp(int(match[1]), UTC):%H:%M:%S} UTC", body)
    body = _LINK.sub(r"\2 (\1)", body)
    body = _SPECIAL.sub(r"@\1", _USER.sub(r"@\1", body))
    body = re.sub(r"(?m)(?<!\w)\*([^*\n]+)\*", r"\1", body).replace("```\n", "").replace("\n```", "")
    return unescape(body.replace("`", ""))


def _wrap(body: str, width: int) -> Iterator[str]:
    for line in body.split("\n"):
        indent = " " * (12 if line.startswith(" " * 12) else 0)
        yield from textwrap.wrap(
            line, width, subsequent_indent=indent, break_on_hyphens=False, drop_whitespace=True
        ) or [""]
