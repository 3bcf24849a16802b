"""Options of a command line, declared as its help shows them, and the addresses that they contain."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any, TypeVar
from urllib.parse import urlsplit

T = TypeVar("T")


def adder(add_argument: Callable[..., object], **always: Any) -> Callable[..., None]:
    """Return a function that adds options to a parser or a group, given its `add_argument`.

    `add("--json", "write JSON")` is a switch, `add("--at TIME", "...", moment)` has a value, which `moment` reads,
    and `add("--header 'NAME: VALUE'...", "...")` can be repeated. `always` applies to every option added.
    """

    def add(form: str, text: str, read: Callable[[str], object] | None = None, **how: Any) -> None:
        name, _, metavar = form.partition(" ")
        if metavar.endswith("..."):
            how = {"action": "append", "default": []} | how
        elif name.startswith("-") and not metavar and "choices" not in how:
            how = {"action": "store_true"} | how
        if metavar:
            how["metavar"] = metavar.removesuffix("...")
        if read is not None:
            how["type"] = read
        add_argument(name, help=text, **how | always)

    return add


def with_scheme(text: str) -> str:
    """Return an address with `http://` before it where it has no scheme."""
    return f"http://{text}" if text and "://" not in text and not text.startswith("/") else text


def is_web_address(text: str) -> bool:
    """Return whether it is an http or https URL with a host."""
    try:
        parts = urlsplit(text)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return valid and not any(character.isspace() for character in text)


def host_and_port(text: str) -> tuple[str, int]:
    """Split HOST:PORT; an IPv6 host may be in brackets, and no host is 127.0.0.1. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:9401")
    return host.strip("[]") or "127.0.0.1", int(port)


def is_loopback(host: str) -> bool:
    """Return whether no other machine reaches an address of this host."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def parsed(read: Callable[[str], T]) -> Callable[[str], T]:
    """Make a type of arguments from a function that raises ValueError with the mistake in the text."""

    def parse(text: str) -> T:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse
