"""Slack blocks as text: what on-call would get, in a terminal."""

from __future__ import annotations

import re
import textwrap
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from html import unescape
from typing import Any, TextIO

from triton_alerts.bridge.deliver.messages import Message
from triton_alerts.bridge.deliver.transport import Sent, Transport

WIDTH = 100
MAX_TITLES = 10_000

_DATE = re.compile(r"<!date\^(\d+)\^[^|>]*\|[^>]*>")
_LINK = re.compile(r"<(https?://[^|>]+)\|([^>]*)>")
_USER = re.compile(r"<@([A-Z0-9]+)>")
_SPECIAL = re.compile(r"<!(?:subteam\^)?([^|>^]+)(?:\|[^>]*)?>")


class Terminal(Transport):
    """A transport that prints. Edits are not printed: the thread's replies report the same in order."""

    threads = True

    def __init__(self, stream: TextIO, clock: Callable[[], float], width: int = WIDTH) -> None:
        self._stream = stream
        self._clock = clock
        self._width = width
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
            self._stream.write(render(message, head, self._width, boxed=not thread))
            self._stream.flush()
        return Sent(channel, thread or name)


def render(message: Message, head: str, width: int = WIDTH, *, boxed: bool = True) -> str:
    """Return a message as lines of text; a message in the channel is boxed, one in a thread is indented."""
    lines = [line for block in message.blocks for line in _block(block, width - 4)]
    lines = lines or list(_wrap(as_text(message.text), width - 4))
    if not boxed:
        return f"\n↳ {head}\n" + "".join(f"  {line}\n" for line in lines)
    body = "".join(f"│ {line}\n" for line in lines)
    return f"\n┌─ {head} {'─' * max(0, width - len(head) - 4)}\n{body}└{'─' * (width - 1)}\n"


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
