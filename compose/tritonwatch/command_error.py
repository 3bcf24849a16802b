"""Errors that end a command early: a message and an exit code, printed in one place (`cli`)."""

from __future__ import annotations


class CommandError(Exception):
    """A verb cannot go on: messages for stderr, and the exit code."""

    def __init__(self, *messages: object, code: int = 1) -> None:
        super().__init__("\n".join(map(str, messages)))
        self.messages = tuple(map(str, messages))
        self.code = code


class UsageError(CommandError):
    """The arguments, or files that they name, cannot be used: exit code 2."""

    def __init__(self, *messages: object) -> None:
        super().__init__(*messages, code=2)
