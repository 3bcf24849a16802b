"""Prometheus text (format 0.0.4) to values: fast, and tolerant of what a broken target sends.

The good part is used, the bad part is dropped and counted by kind. Speed comes from one observation: a target
repeats itself. From scrape to scrape a family has the same lines in the same order and only the numbers
change, so a Parser remembers the series of each family's last body; while its lines stay the same, a family
costs one split and one list comparison, and its numbers are converted only when somebody asks for them.

Format: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from triton_exporter.exposition.exposition_values import Exposition
from triton_exporter.exposition.family_draft import (
    BOUNDS,
    SUFFIXES,
    Block,
    Drafts,
    Faults,
    declare,
    finished,
    read_lines,
    regroup,
)
from triton_exporter.exposition.series_text import (
    LABEL_ESCAPES,
    Series,
    is_number,
    parse_series,
    with_whole_escapes,
    without_strings,
)

# The form of nearly every value: float() takes it, and it is too short to overflow. Other lines are
# read one by one.
_PLAIN = r"[+-]?[0-9]{1,200}(?:\.[0-9]{0,99})?(?:e[+-]?[0-9]{1,2})?|[+-]?Inf|NaN|Nan"
_FAST = re.compile(rf" ({_PLAIN})\n")
_ALL_PLAIN = re.compile(rf"(?:(?:{_PLAIN})\n)*+".encode())
_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)
_LONG = b"0" * 200


@dataclass(slots=True)
class _Layout:
    """A block without bad lines: its lines up to their values, the series they mean, and the last block."""

    kind: str
    starts: list[bytes]
    size: int  # of all starts
    series: Sequence[Series]
    skeletons: set[str]
    last: Block


class Parser:
    """Parses the bodies of one target and remembers the layout of each family. Not safe for threads."""

    def __init__(self) -> None:
        self._layouts: dict[str, _Layout] = {}

    def parse(self, body: bytes, only: Collection[str] | None = None) -> Exposition:
        """Parse a body; with `only`, read no other families, which costs little more than to find these.

        Never raises: whatever is not an exposition is counted in `faults`.
        """
        faults: Faults = Counter()
        drafts: Drafts = {}
        declared: set[str] = set()
        layouts = (
            {}
            if only is None
            else {name: layout for name, layout in self._layouts.items() if name not in only}
        )
        name, scattered = "", False
        for header, lines in _blocks(_in_utf8(_without_cut_line(body, faults), faults)):
            name = declare(header, drafts, faults, only) or name
            declared.add(name)
            if not lines or (name and only is not None and name not in only):
                continue
            block = self._read_block(name, drafts[name].kind, lines, layouts) if name in drafts else None
            if block:
                drafts[name].blocks.append(block)
            else:
                scattered |= read_lines(lines.decode(), name, drafts, faults, only)
        self._layouts = layouts
        scattered |= regroup(drafts)
        families = {name: finished(name, draft, faults) for name, draft in drafts.items()}
        return Exposition(families, declared - {""}, scattered, +faults)

    def _read_block(self, name: str, kind: str, lines: bytes, layouts: dict[str, _Layout]) -> Block | None:
        """Read a block whose every line is as usual; None when one is not."""
        known = self._layouts.get(name)
        if known is not None and known.kind == kind:
            layouts[name] = known
            if known.last.lines == lines:
                return known.last
            again = _numbers_of(known, lines)
            if again:
                known.last = Block(known.series, again, lines, kind)
                return known.last
        parts = _FAST.split(lines.decode())
        layout = None if parts[-1] else _new_layout(name, kind, parts[:-1:2], parts[1::2], known, lines)
        if layout is None:
            return None
        layouts[name] = layout
        return layout.last


def parse(body: bytes) -> Exposition:
    """Parse one body with nothing remembered."""
    return Parser().parse(body)


def _numbers_of(known: _Layout, lines: bytes) -> list[bytes]:
    """Return what follows the start of each line; nothing when a start or a number is not as usual."""
    ends = lines.split(b"\n")
    if len(ends) != len(known.starts) + 1:
        return []
    numbers = list(map(bytes.removeprefix, ends, known.starts))
    together = b"\n".join([*numbers, b""])
    removed_all = len(together) + known.size == len(lines)
    return numbers if removed_all and _all_plain(together) else []


def _new_layout(
    name: str, kind: str, keys: list[str], numbers: list[str], known: _Layout | None, lines: bytes
) -> _Layout | None:
    """Return the layout of a block; None where a line is not as usual."""
    before = {old.text: old for old in known.series} if known and known.kind == kind else {}
    new = [key for key in keys if key not in before]
    if not (all(map(_has_whole_escapes, new)) and _bounds_are_numbers(kind, new)):
        return None
    # Keys differ in little but the values of their labels: what is left without them is soon checked.
    skeletons = {without_strings(key) for key in new}
    if not _is_of_family(name, kind, skeletons):
        return None
    skeletons |= known.skeletons if known else set()
    series = [before.get(key) or Series(key) for key in keys]
    if len(set(keys)) < len(keys) or (_ambiguous(skeletons) and _repeats(series)):
        return None
    starts = [f"{key} ".encode() for key in keys]
    return _Layout(
        kind, starts, sum(map(len, starts)), series, skeletons, Block(series, numbers, lines, kind)
    )


def _has_whole_escapes(key: str) -> bool:
    return with_whole_escapes(key, LABEL_ESCAPES) == key


def _is_of_family(name: str, kind: str, keys: Iterable[str]) -> bool:
    names = {name, *(name + suffix for suffix in SUFFIXES.get(kind, ()))}
    return all((series := parse_series(key)) and series.name in names for key in keys)


def _bounds_are_numbers(kind: str, keys: Iterable[str]) -> bool:
    """Return whether all bounds are numbers; False, too, where the value of another label resembles a bound."""
    bound = BOUNDS.get(kind)
    if bound is None:
        return True
    bounds = re.findall(rf'[{{,][ \t]*{bound}[ \t]*=[ \t]*"([^"]*)"', "\n".join(keys))
    return all(map(is_number, set(bounds)))


def _ambiguous(skeletons: Collection[str]) -> bool:
    """Return whether different texts can mean the same series: the same labels in another order or spacing."""
    return len({Series(text).identity for text in skeletons}) < len(skeletons)


def _repeats(series: Sequence[Series]) -> bool:
    return len({each.identity for each in series}) < len(series)


def _in_utf8(body: bytes, faults: Faults) -> bytes:
    if body.isascii() or _is_utf8(body):
        return body
    lines = body.split(b"\n")
    good = [line for line in lines if _is_utf8(line)]
    faults["", "encoding"] += len(lines) - len(good)
    return b"\n".join(good)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _without_cut_line(body: bytes, faults: Faults) -> bytes:
    if body.endswith(b"\n") or not body:
        return body
    faults["", "truncated"] += 1
    return body[: body.rfind(b"\n") + 1]


def _blocks(body: bytes) -> Iterator[tuple[str, bytes]]:
    """Cut a body at its comments: each comment (none before the first) with the lines that follow it."""
    start = 0 if body.startswith(b"# ") else _next_comment(body, 0)
    yield "", body[:start]
    while start < len(body):
        end = _next_comment(body, start)
        header = body[start + 2 : body.index(b"\n", start)]
        yield header.decode(), body[start + len(header) + 3 : end]
        start = end


def _next_comment(body: bytes, start: int) -> int:
    # Searching one byte is ten times as fast as searching three.
    while (start := body.find(b"#", start + 1)) >= 0:
        if body[start - 1 : start + 2] == b"\n# ":
            return start
    return len(body)


def _all_plain(numbers: bytes) -> bool:
    """Return whether each line is a number as usual."""
    if numbers.replace(b"\n", b"").isdigit():
        # No line is empty, and none too long for a double.
        return b"\n\n" not in b"\n" + numbers and _LONG not in numbers.translate(_ZEROS)
    return _ALL_PLAIN.fullmatch(numbers) is not None
