"""Prometheus text (format 0.0.4) to values: fast, and tolerant of what a broken target sends.

The good part is kept, the bad part is dropped and counted by kind. Speed comes from one observation: a target
repeats itself. From scrape to scrape a family has the same lines in the same order and only the numbers
change, so a Parser remembers the series of each family's last body; while its lines stay the same, a family
costs one split and one list comparison, and its numbers are converted only when somebody asks for them.

Format: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from triton_exporter.exposition.series_text import (
    HELP_ESCAPES,
    LABEL_ESCAPES,
    METRIC_NAME,
    Series,
    is_number,
    parse_series,
    read_line,
    unescape,
    with_whole_escapes,
    without_strings,
)

__all__ = ["FAULTS", "KINDS", "Exposition", "ParsedFamily", "Parser", "Series", "parse", "parse_series"]

FAULTS = ("encoding", "truncated", "syntax", "value", "duplicate", "type", "corrected")
"""Closed set of kinds of bad input, each counted in lines.

`encoding`: not UTF-8; `truncated`: a last line without an end, whose number may be cut short; `syntax`: no
sample at all; `value`: no number, or no number for a bound; `duplicate`: a series seen before in this body;
`type`: an unknown or second TYPE, or a second HELP; `corrected`: a backslash that begins no escape, or a blank in
the wrong place, for which some readers refuse the whole body: put right, and the line kept.
"""

KINDS = frozenset({"counter", "gauge", "histogram", "summary", "untyped"})

# What a value looks like nearly always: float() takes it, and it is too short to overflow. Other lines are
# read one by one.
_PLAIN = r"[+-]?[0-9]{1,200}(?:\.[0-9]{0,99})?(?:e[+-]?[0-9]{1,2})?|[+-]?Inf|NaN|Nan"
_FAST = re.compile(rf" ({_PLAIN})\n")
_ALL_PLAIN = re.compile(rf"(?:(?:{_PLAIN})\n)*+".encode())
_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)
_LONG = b"0" * 200
_HEADER = re.compile(rf"(HELP|TYPE)[ \t]+({METRIC_NAME})(?:[ \t]+(.*))?")
_NEARLY_HEADER = re.compile(r"[ \t]*(?:HELP|TYPE)(?:[ \t]|$)")
_SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}
_BOUNDS = {"histogram": "le", "summary": "quantile"}
"""The label whose value must be a number, by kind of family."""


@dataclass(frozen=True)
class ParsedFamily:
    """The good lines of one family.

    `kind` is one of KINDS; `numbers` and `lines` are as they were written, `head` is HELP and TYPE. `series`
    is the same object as in the last body while its lines are the same, so whatever was computed from it
    holds.
    """

    name: str
    kind: str
    help: str
    series: Sequence[Series]
    numbers: Sequence[str | bytes]
    head: str
    lines: bytes

    @property
    def text(self) -> str:
        """Its HELP, TYPE and sample lines."""
        return self.head + self.lines.decode()

    @cached_property
    def values(self) -> Sequence[float]:
        """The value of each series."""
        return list(map(float, self.numbers))

    def samples(self) -> Iterator[tuple[Series, float]]:
        """Pair each series with its value."""
        return zip(self.series, self.values, strict=True)


_Bad = Mapping[tuple[str | None, str], int]
"""Bad lines by family and kind of FAULTS. The family is "" where a line could belong to any of them, and None
where a reader of single families does not read the line."""


@dataclass(frozen=True, slots=True)
class Exposition:
    """One body: its families by name, in its order.

    `declared` has the names of all families of the body, also of those that were not read. With `scattered` a
    sample is among those of another family.
    """

    families: Mapping[str, ParsedFamily]
    declared: Collection[str] = ()
    scattered: bool = False
    bad: _Bad = field(default_factory=dict)

    @property
    def faults(self) -> Mapping[str, int]:
        """Bad lines by kind of FAULTS."""
        counts: Counter[str] = Counter()
        for (_, kind), count in self.bad.items():
            counts[kind] += count
        return counts

    def only(self, names: Collection[str]) -> Exposition:
        """Leave out the other families, and the bad lines that are certainly theirs."""
        bad = {key: count for key, count in self.bad.items() if key[0] == "" or key[0] in names}
        families = {name: family for name, family in self.families.items() if name in names}
        return Exposition(families, self.declared, self.scattered, bad)

    @property
    def text(self) -> str:
        """Everything good, as a body that Prometheus accepts."""
        return "".join([family.text for family in self.families.values()])


class _Block(NamedTuple):
    """Adjacent lines of one family in a body; `kind` is the one they were checked for."""

    series: Sequence[Series]
    numbers: Sequence[str | bytes]
    lines: bytes
    kind: str | None = None


@dataclass(slots=True)
class _Layout:
    """A block without bad lines: its lines up to their values, the series they mean, and the last block."""

    kind: str
    starts: list[bytes]
    size: int  # of all starts
    series: Sequence[Series]
    skeletons: set[str]
    last: _Block


@dataclass(slots=True)
class _FamilyDraft:
    """A family while its body is read."""

    kind: str = ""
    help: str | None = None
    blocks: list[_Block] = field(default_factory=list)


_Drafts = dict[str, _FamilyDraft]
_Faults = Counter[tuple[str | None, str]]


class Parser:
    """Parses the bodies of one target and remembers the layout of each family. Not safe for threads."""

    def __init__(self) -> None:
        self._layouts: dict[str, _Layout] = {}

    def parse(self, body: bytes, only: Collection[str] | None = None) -> Exposition:
        """Parse a body; with `only`, read no other families, which costs little more than to find these.

        Never raises: whatever is not an exposition is counted in `faults`.
        """
        faults: _Faults = Counter()
        drafts: _Drafts = {}
        declared: set[str] = set()
        layouts = (
            {}
            if only is None
            else {name: layout for name, layout in self._layouts.items() if name not in only}
        )
        name, scattered = "", False
        for header, lines in _blocks(_in_utf8(_complete(body, faults), faults)):
            name = _declare(header, drafts, faults, only) or name
            declared.add(name)
            if not lines or (name and only is not None and name not in only):
                continue
            block = self._read(name, drafts[name].kind, lines, layouts) if name in drafts else None
            if block:
                drafts[name].blocks.append(block)
            else:
                scattered |= _read_lines(lines.decode(), name, drafts, faults, only)
        self._layouts = layouts
        scattered |= _regroup(drafts)
        families = {name: _family(name, draft, faults) for name, draft in drafts.items()}
        return Exposition(families, declared - {""}, scattered, +faults)

    def _read(self, name: str, kind: str, lines: bytes, layouts: dict[str, _Layout]) -> _Block | None:
        """Read a block whose every line is as usual; None when one is not."""
        known = self._layouts.get(name)
        if known is not None and known.kind == kind:
            layouts[name] = known
            if known.last.lines == lines:
                return known.last
            again = _numbers_of(known, lines)
            if again:
                known.last = _Block(known.series, again, lines, kind)
                return known.last
        parts = _FAST.split(lines.decode())
        layout = None if parts[-1] else _learn(name, kind, parts[:-1:2], parts[1::2], known, lines)
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


def _learn(
    name: str, kind: str, keys: list[str], numbers: list[str], known: _Layout | None, lines: bytes
) -> _Layout | None:
    before = {old.text: old for old in known.series} if known and known.kind == kind else {}
    new = [key for key in keys if key not in before]
    if not (all(map(_has_whole_escapes, new)) and _bounds_are_numbers(kind, new)):
        return None
    # Keys differ in little but the values of their labels: what is left without them is soon checked.
    skeletons = {without_strings(key) for key in new}
    if not _usual(name, kind, skeletons):
        return None
    skeletons |= known.skeletons if known else set()
    series = [before.get(key) or Series(key) for key in keys]
    if len(set(keys)) < len(keys) or (_ambiguous(skeletons) and _repeats(series)):
        return None
    starts = [f"{key} ".encode() for key in keys]
    return _Layout(
        kind, starts, sum(map(len, starts)), series, skeletons, _Block(series, numbers, lines, kind)
    )


def _has_whole_escapes(key: str) -> bool:
    return with_whole_escapes(key, LABEL_ESCAPES) == key


def _usual(name: str, kind: str, keys: Iterable[str]) -> bool:
    names = {name, *(name + suffix for suffix in _SUFFIXES.get(kind, ()))}
    return all((series := parse_series(key)) and series.name in names for key in keys)


def _bounds_are_numbers(kind: str, keys: Iterable[str]) -> bool:
    """Return whether that is certain; what looks like a bound within another label's value is not."""
    bound = _BOUNDS.get(kind)
    if bound is None:
        return True
    bounds = re.findall(rf'[{{,][ \t]*{bound}[ \t]*=[ \t]*"([^"]*)"', "\n".join(keys))
    return all(map(is_number, set(bounds)))


def _ambiguous(skeletons: Collection[str]) -> bool:
    """Return whether different texts can mean the same series: the same labels in another order or spacing."""
    return len({Series(text).identity for text in skeletons}) < len(skeletons)


def _repeats(series: Sequence[Series]) -> bool:
    return len({each.identity for each in series}) < len(series)


def _in_utf8(body: bytes, faults: _Faults) -> bytes:
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


def _complete(body: bytes, faults: _Faults) -> bytes:
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


def _declare(header: str, drafts: _Drafts, faults: _Faults, only: Collection[str] | None) -> str:
    """Take in a HELP or TYPE; returns the family's name, or nothing for any other comment."""
    match = _HEADER.fullmatch(header)
    if match is None:
        # Prometheus refuses a whole body for a HELP or TYPE without a name; any other comment is none.
        faults[None, "syntax"] += only is None and _NEARLY_HEADER.match(header) is not None
        return ""
    word, name, rest = match.groups(default="")
    if only is not None and name not in only:
        return name
    draft = drafts.setdefault(name, _FamilyDraft())
    kind = rest.strip(" \t")
    if word == "HELP" and draft.help is None:
        draft.help = with_whole_escapes(rest, HELP_ESCAPES)
        faults[name, "corrected"] += draft.help != rest
    elif word == "TYPE" and not draft.kind and kind in KINDS:
        draft.kind = kind
        faults[name, "corrected"] += header != f"TYPE {name} {kind}"
    else:
        faults[name, "type"] += 1
    return name


def _read_lines(
    lines: str, block: str, drafts: _Drafts, faults: _Faults, only: Collection[str] | None
) -> bool:
    """Read the block of a family line by line, each line into the family of its name; whether one is of another."""
    scattered = False
    for line in lines.split("\n"):
        text = line.lstrip(" \t")
        if not text or text.startswith("#"):
            faults[None, "syntax"] += only is None and _NEARLY_HEADER.match(text, 1) is not None
            continue
        whole = with_whole_escapes(line.lstrip(" \t"), LABEL_ESCAPES)
        sample = read_line(whole)
        if isinstance(sample, str):
            faults[block, sample] += 1
            continue
        series, number = sample
        name = _family_of(series.name, drafts)
        scattered |= name != block
        if only is None or name in only:
            faults[name, "corrected"] += whole != line
            draft = drafts.setdefault(name, _FamilyDraft())
            draft.blocks.append(_Block((series,), (number,), f"{whole}\n".encode()))
    return scattered


def _all_plain(numbers: bytes) -> bool:
    """Return whether each line is a number as usual."""
    if numbers.replace(b"\n", b"").isdigit():
        # No line is empty, and none too long for a double.
        return b"\n\n" not in b"\n" + numbers and _LONG not in numbers.translate(_ZEROS)
    return _ALL_PLAIN.fullmatch(numbers) is not None


def _family_of(name: str, drafts: _Drafts) -> str:
    """Return the family that a sample's name belongs to: its own where that is declared."""
    if not _is_declared(name, drafts):
        for suffix in _SUFFIXES["histogram"]:
            base = name.removesuffix(suffix)
            if base != name and base in drafts and suffix in _SUFFIXES.get(drafts[base].kind, ()):
                return base
    return name


def _is_declared(name: str, drafts: _Drafts) -> bool:
    return name in drafts and bool(drafts[name].kind or drafts[name].help is not None)


def _regroup(drafts: _Drafts) -> bool:
    """Move samples that were read before the declaration of their family; whether there are any."""
    suffixed = {
        f"{name}{suffix}" for name, draft in drafts.items() for suffix in _SUFFIXES.get(draft.kind, ())
    }
    if suffixed.isdisjoint(drafts):
        return False
    blocks = [block for draft in drafts.values() for block in draft.blocks]
    for name in list(drafts):
        drafts[name].blocks = []
        if not _is_declared(name, drafts):
            del drafts[name]
    for block in blocks:
        for series, number, line in zip(
            block.series, block.numbers, block.lines.decode().split("\n"), strict=False
        ):
            home = drafts.setdefault(_family_of(series.name, drafts), _FamilyDraft())
            home.blocks.append(_Block((series,), (number,), f"{line}\n".encode()))
    return True


def _family(name: str, draft: _FamilyDraft, faults: _Faults) -> ParsedFamily:
    block = _merge(name, draft, faults)
    head = "" if draft.help is None else f"# HELP {name} {draft.help}\n"
    if draft.kind:
        head += f"# TYPE {name} {draft.kind}\n"
    return ParsedFamily(
        name,
        draft.kind or "untyped",
        unescape(draft.help or ""),
        block.series,
        block.numbers,
        head,
        block.lines,
    )


def _merge(name: str, draft: _FamilyDraft, faults: _Faults) -> _Block:
    if len(draft.blocks) == 1 and draft.blocks[0].kind == draft.kind:
        return draft.blocks[0]
    bound = _BOUNDS.get(draft.kind, "")
    seen: dict[object, tuple[Series, str | bytes, str]] = {}
    for block in draft.blocks:
        for series, number, line in zip(
            block.series, block.numbers, block.lines.decode().split("\n"), strict=False
        ):
            if series.identity in seen:
                faults[name, "duplicate"] += 1
            elif bound and not is_number(series.labels.get(bound, "0")):
                faults[name, "value"] += 1
            else:
                seen[series.identity] = (series, number, line)
    accepted = list(seen.values())
    lines = "".join([f"{line}\n" for _, _, line in accepted]).encode()
    return _Block([series for series, _, _ in accepted], [number for _, number, _ in accepted], lines)
