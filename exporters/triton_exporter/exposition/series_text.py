"""The text of one series and of one sample line, in the text format."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

METRIC_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
# A label __name__ would give the series another name than the one that is checked.
_PAIR = r'[ \t]*((?!__name__[ \t]*=)[a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"([^"\\\n]*(?:\\.[^"\\\n]*)*)"[ \t]*'
_PAIRS = re.compile(_PAIR)
_STRINGS = re.compile(r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"')
_SERIES = re.compile(rf"({METRIC_NAME})[ \t]*(?:\{{((?:{_PAIR}(?:,|(?=\}})))*)[ \t]*\}}[ \t]*)?")
# Prometheus reads no time before 1970, and none that does not fit in 64 bits.
_VALUE_AND_TIME = re.compile(r"([^ \t]+)(?:[ \t]+[0-9]{1,18})?[ \t]*")
_NUMBER = re.compile(
    r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|[+-]?inf(?:inity)?|nan", re.IGNORECASE
)
_ESCAPED = re.compile(r"\\([\\n\"])")
_BACKSLASH = re.compile(r"\\(.?)")
LABEL_ESCAPES, HELP_ESCAPES = '\\n"', "\\n"
"""Characters that may follow a backslash in a label value and in a HELP."""


class Series:
    """One series as exposed; the same object comes back while the target goes on exposing it.

    It keeps its text only: most series are passed on without anybody asking for their labels.
    """

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    @property
    def name(self) -> str:
        """The sample's name, such as `x_bucket` of a histogram `x`."""
        return self.text.partition("{")[0].strip(" \t")

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels by name, parsed again at each call."""
        return {name: unescape(value) for name, value in _PAIRS.findall(self.text.partition("{")[2])}

    @property
    def identity(self) -> tuple[str, frozenset[tuple[str, str]]]:
        """Name and labels, which are equal however the labels of a series are ordered and written."""
        return self.name, frozenset(self.labels.items())


def parse_series(text: str) -> Series | None:
    """Read `name{label="value",...}`, or None when it is not that."""
    match = _SERIES.fullmatch(text)
    # A label twice makes Prometheus refuse the whole body.
    return Series(text) if match and _names_once(match[2] or "") else None


def without_strings(text: str) -> str:
    """Return what is left of a series without the values of its labels."""
    return _STRINGS.sub('""', text)


def _names_once(labels: str) -> bool:
    names = [name for name, _ in _PAIRS.findall(labels)]
    # The reserved label has the name that the series has already.
    return len({*names, "__name__"}) == len(names) + 1


def read_line(line: str) -> tuple[Series, str] | str:
    """Read `series value [timestamp]`, or return its fault."""
    head = _SERIES.match(line)
    # Without a brace, only white space parts the name from the value.
    if head is None or line[head.end() - 1] not in "} \t" or line.startswith("{", head.end()):
        return "syntax"
    rest = _VALUE_AND_TIME.fullmatch(line, head.end())
    series = parse_series(head[0])
    if rest is None or series is None:
        return "syntax"
    return (series, rest[1]) if is_number(rest[1]) else "value"


def is_number(text: str) -> bool:
    """Return whether every reader of the format takes it for a value."""
    # A number too large for a double is an error to Prometheus, not infinity.
    return _NUMBER.fullmatch(text) is not None and (not math.isinf(float(text)) or "i" in text.lower())


def unescape(text: str) -> str:
    """Undo the escapes of a label value or a HELP; a backslash that begins no escape stays."""
    if "\\" not in text:
        return text
    return _ESCAPED.sub(lambda match: "\n" if match[1] == "n" else match[1], text)


def with_whole_escapes(text: str, escapes: str) -> str:
    """Double every backslash that begins none of the escapes, as Prometheus itself takes it.

    Its scraper lets `\\N` pass; the reader of promtool, the Pushgateway and others refuses the whole body.
    """
    if "\\" not in text:
        return text
    return _BACKSLASH.sub(
        lambda match: match[0] if match[1] and match[1] in escapes else f"\\{match[0]}", text
    )
