"""Answer of a command, for the terminal and for assistants alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class JsonAnswer:
    """The document that `--json` writes (None: there is nothing to show), messages beside it, and the exit code."""

    document: Any
    messages: tuple[str, ...] = ()
    code: int = 0
