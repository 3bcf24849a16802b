"""Options of a command line, declared as its help shows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def adder(add_argument: Callable[..., object], **always: Any) -> Callable[..., None]:
    """A function that adds options to a parser or a group, given its `add_argument`.

    `add("--json", "write JSON")` is a switch, `add("--at TIME", "...", moment)` has a value, which `moment` reads,
    and `add("--header 'NAME: VALUE'...", "...")` can be repeated. `always` holds for every option added.
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
