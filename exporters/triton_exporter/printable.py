"""Text of others, such as a model's name, in a form that a terminal prints and does not obey."""

from __future__ import annotations


def printable(text: str) -> str:
    """Write control, format and bidirectional characters, line ends included, as escapes such as `\\x1b`."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
