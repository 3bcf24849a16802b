"""Text of others in a form that may be printed: a terminal does not obey it, and it contains no secret."""

from __future__ import annotations

import re
from collections.abc import Sequence

_SECRET = re.compile(
    r"xox[a-z]-[\w-]+|xapp-[\w-]+|(?:https?://)?hooks\.slack(?:-gov)?\.com/[^\s'\"]+|(?i:bearer) [\w.~+/=-]+"
    r"|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"
)


def printable(text: str) -> str:
    """Write control, format and bidirectional characters, line ends included, as escapes such as `\\x1b`."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def listed(names: Sequence[str], most: int) -> str:
    """Return the names as a list that names at most so many: `a, b and 3 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def without_secrets(text: str) -> str:
    """Replace Slack's tokens and webhook addresses, bearer tokens and passwords in addresses by `[secret]`."""
    return _SECRET.sub("[secret]", text)
