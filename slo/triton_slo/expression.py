"""PromQL that users write: only what is whole by itself stays whole inside a rule."""

from __future__ import annotations

import promql_parser

_MOST = 8000


def parse(text: str, field: str, wrap: str = "{}") -> None:
    """Make sure that a text is PromQL, also where it will stand (`wrap`). Raises ValueError."""
    if len(text) > _MOST:  # the parser recurses: nested deeply enough, it ends the whole process
        raise ValueError(f"{field} is longer than {_MOST} characters; record a part of it by a rule")
    # Inside a rule the text stands between brackets; only what is whole by itself stays whole there.
    try:
        promql_parser.parse(text)
        promql_parser.parse(wrap.format(text))
    except ValueError as error:
        raise ValueError(f"{field} is not PromQL: {error}") from None
