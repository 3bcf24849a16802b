"""PromQL text from values: quoting, matchers, the few shapes that rules are made of."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from triton_exporter.common.duration import parse_seconds
from triton_slo.fields import Choice

_EQUALITY = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*("(?:[^"\\]|\\.)*")\s*(?:,|$)')


def quote(value: str) -> str:
    """Write a string as PromQL (and Go) reads it. Raises ValueError on text that is not Unicode."""
    out = []
    for character in value:
        code = ord(character)
        if 0xD800 <= code <= 0xDFFF:
            raise ValueError(f"{value!r} contains half a character (a lone surrogate)")
        if character in '"\\':
            out.append("\\" + character)
        elif character == "\n":
            out.append("\\n")
        elif code < 0x20 or code == 0x7F:
            out.append(f"\\x{code:02x}")
        elif character.isprintable():
            out.append(character)
        else:
            out.append(f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}")
    return '"' + "".join(out) + '"'


_META = re.compile(r"([\\.+*?()|\[\]{}^$])")


def regex_of(names: Iterable[str]) -> str:
    """Return a regular expression (RE2) that matches exactly these names."""
    return "|".join(_META.sub(r"\\\1", name) for name in names)


def number(value: float) -> str:
    """Write a number short and exactly."""
    return repr(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


@dataclass(frozen=True, slots=True)
class Matchers:
    """The matchers between the braces of a selector."""

    parts: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "{" + ", ".join(self.parts) + "}" if self.parts else ""

    def also(self, *parts: str) -> Matchers:
        """Return the same and more."""
        return Matchers((*self.parts, *(part for part in parts if part)))

    def choosing(self, label: str, choice: Choice) -> Matchers:
        """Return matchers of only the series whose label is chosen."""
        return self.also(*_matcher(label, choice, ("=", "=~")))

    def outside(self, label: str, choice: Choice) -> Matchers:
        """Return matchers of only the series whose label is not chosen."""
        return self.also(*_matcher(label, choice, ("!=", "!~")))

    def within(self, labels: Iterable[str]) -> Matchers:
        """Return only the matchers of these labels, in the same order."""
        return self._where(set(labels).__contains__)

    def without(self, labels: Iterable[str]) -> Matchers:
        """Return the matchers of all other labels, in the same order."""
        left_out = set(labels)
        return self._where(lambda label: label not in left_out)

    def _where(self, wanted: Callable[[str], bool]) -> Matchers:
        parts = zip(self.parts, self.split, strict=True)
        return Matchers(tuple(part for part, (label, _, _) in parts if wanted(label)))

    @property
    def split(self) -> tuple[tuple[str, str, str], ...]:
        """Label, operator and quoted value of each matcher."""
        matches = (_EQUALITY.fullmatch(part) for part in self.parts)
        return tuple((match[1], match[2], match[3]) for match in matches if match is not None)

    def equal(self, label: str, value: str) -> Matchers:
        """Return matchers of only the series that have this value."""
        return self.also(f"{label}={quote(value)}")


def _matcher(label: str, choice: Choice, operators: tuple[str, str]) -> tuple[str, ...]:
    operator, several = operators
    if choice.names is not None and len(choice.names) == 1:
        return (f"{label}{operator}{quote(choice.names[0])}",)
    if choice.names is not None:
        return (f"{label}{several}{quote(regex_of(choice.names))}",)
    if choice.regex is not None:
        return (f"{label}{several}{quote(choice.regex)}",)
    return ()


def parse_selector(text: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """Split `cluster="eu1", env=~"a|b"` into matchers, and labels that equality fixes.

    Raises ValueError on anything that is not a list of matchers.
    """
    matchers, fixed, position = [], {}, 0
    while position < len(text.rstrip()):
        match = _EQUALITY.match(text, position)
        if match is None:
            raise ValueError(f'{text!r} is not a list of matchers such as cluster="eu1", env=~"a|b"')
        label, operator, value = match.groups()
        matchers.append(f"{label}{operator}{value}")
        if operator == "=" and "\\" not in value and value != '""':
            fixed[label] = value[1:-1]
        position = match.end()
    return tuple(matchers), fixed


def le_matcher(seconds: float) -> str:
    """Return the matcher of a bucket's upper edge; Prometheus 3 writes whole numbers as `1.0`, others as `1`."""
    text = number(seconds)
    return f'le=~"{text}(\\\\.0)?"' if "." not in text else f'le="{text}"'


def by(labels: Iterable[str]) -> str:
    """Return the clause `by (model, version)`."""
    return f"by ({', '.join(labels)})"


def on(labels: Iterable[str]) -> str:
    """Return the clause `on (model, version)`."""
    return f"on ({', '.join(labels)})"


def paren(text: str) -> str:
    """Return the text in brackets, where it is more than one word."""
    return f"(\n{indent(text)}\n)" if "\n" in text or " " in text else text


def indent(text: str, spaces: int = 2) -> str:
    """Move every line to the right."""
    return "\n".join(" " * spaces + line for line in text.splitlines())


_RATES = re.compile(
    r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`|#[^\n]*|(?<![\w:])rate\s*\(|\[[^\]]*\]|[()]"""
)


def for_metricsql(expr: str) -> str:
    """Return an expression whose rates VictoriaMetrics works out as Prometheus does: over the whole window.

    MetricsQL divides by the time between the first and the last sample, so that a series which existed for five
    minutes of an hour had twelve times its rate. https://docs.victoriametrics.com/metricsql/#rate
    """
    pieces: list[str] = []
    opened: list[int | None] = []
    window, copied = "", 0
    for token in _RATES.finditer(expr):
        text = token[0]
        if text.endswith("(") and text[0] in "r(":
            pieces += [expr[copied : token.start()], text]
            copied = token.end()
            opened.append(len(pieces) - 1 if text != "(" else None)
        elif text.startswith("["):
            window = text[1:-1].partition(":")[0].strip()
        elif text == ")" and opened and (began := opened.pop()) is not None and (seconds := _seconds(window)):
            pieces[began] = "(increase("
            pieces += [expr[copied : token.end()], f" / {number(seconds)})"]
            copied = token.end()
    return "".join(pieces) + expr[copied:]


def _seconds(duration: str) -> float:
    try:
        return parse_seconds(duration)
    except ValueError:
        return 0.0
