"""Prometheus text (format 0.0.4) to values: fast, and tolerant of what a broken target sends.

The good part is used, the bad part is dropped and counted by kind. Speed comes from one observation: a target
repeats itself. From scrape to scrape a family has the same lines in the same order and only the numbers
change, so a Parser remembers the series of each family's last body; while its lines stay the same, a family
costs one split and one list comparison, and its numbers are converted only when somebody asks for them.

In this order: the text of a series and of a line; a parsed body; a family while its body is read; the Parser.
Format: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

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


class Series(bytes):
    """One series as exposed: how its lines start, up to the value. A page has tens of thousands.

    Most are passed on without anybody asking for their labels.
    """

    __slots__ = ()

    @classmethod
    def of(cls, text: str) -> Series:
        """Return the series with this name and labels, as exposed."""
        return cls(f"{text} ".encode())

    @property
    def text(self) -> str:
        """Name and labels as exposed."""
        return self[:-1].decode()

    @property
    def name(self) -> str:
        """The sample's name, such as `x_bucket` of a histogram `x`."""
        return self.text.partition("{")[0].strip(" \t")

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels by name, parsed again at each call."""
        return {name: unescape(value) for name, value in _PAIRS.findall(self.text.partition("{")[2])}

    @property
    def identity(self) -> str:
        """Name and labels, which are equal however the labels of a series are ordered and written."""
        return "\n".join([self.name, *sorted(f"{name}={value!r}" for name, value in self.labels.items())])


def parse_series(text: str) -> Series | None:
    """Read `name{label="value",...}`, or None when it is not that."""
    match = _SERIES.fullmatch(text)
    if match is None:
        return None
    names = [name for name, _ in _PAIRS.findall(match[2] or "")]
    # A label twice makes Prometheus refuse the whole body; the reserved one has the name that the series has already.
    return Series.of(text) if len({*names, "__name__"}) == len(names) + 1 else None


def without_strings(text: str) -> str:
    """Return what is left of a series without the values of its labels."""
    return _STRINGS.sub('""', text)


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


FAULTS = ("encoding", "truncated", "syntax", "value", "duplicate", "type", "corrected")
"""Closed set of kinds of bad input, each counted in lines.

`encoding`: not UTF-8; `truncated`: a last line without an end, whose number may be cut short; `syntax`: no
sample at all; `value`: no number, or no number for a bound; `duplicate`: a series seen before in this body;
`type`: an unknown or second TYPE, or a second HELP; `corrected`: a backslash that begins no escape, or a blank in
the wrong place, for which some readers refuse the whole body: it is corrected, and the line is relayed.
"""

KINDS = frozenset({"counter", "gauge", "histogram", "summary", "untyped"})


@dataclass(frozen=True)
class ParsedFamily:
    """The good lines of one family.

    `kind` is one of KINDS; `numbers` and `lines` are as they were written, `head` is HELP and TYPE. `series`
    is the same object as in the last body while its lines are the same, so whatever was computed from it
    stays valid.
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


BadLines = Mapping[tuple[str | None, str], int]
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
    bad: BadLines = field(default_factory=dict)

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


_HEADER = re.compile(rf"(HELP|TYPE)[ \t]+({METRIC_NAME})(?:[ \t]+(.*))?")
_NEARLY_HEADER = re.compile(r"[ \t]*(?:HELP|TYPE)(?:[ \t]|$)")
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}
"""How names of samples end that belong to a family of this kind."""

BOUNDS = {"histogram": "le", "summary": "quantile"}
"""The label whose value must be a number, by kind of family."""


class Block(NamedTuple):
    """Adjacent lines of one family in a body; `kind` is the one they were checked for."""

    series: Sequence[Series]
    numbers: Sequence[str | bytes]
    lines: bytes
    kind: str | None = None


@dataclass(slots=True)
class FamilyDraft:
    """A family while its body is read."""

    kind: str = ""
    help: str | None = None
    blocks: list[Block] = field(default_factory=list)


Drafts = dict[str, FamilyDraft]
"""By name of the family, in the order of the body."""

Faults = Counter[tuple[str | None, str]]
"""Bad lines by family and kind, see `BadLines`."""


def declare(header: str, drafts: Drafts, faults: Faults, only: Collection[str] | None) -> str:
    """Take in a HELP or TYPE; returns the family's name, or nothing for any other comment."""
    match = _HEADER.fullmatch(header)
    if match is None:
        # Prometheus refuses a whole body for a HELP or TYPE without a name, and ignores any other comment.
        faults[None, "syntax"] += only is None and _NEARLY_HEADER.match(header) is not None
        return ""
    word, name, rest = match.groups(default="")
    if only is not None and name not in only:
        return name
    draft = drafts.setdefault(name, FamilyDraft())
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


def read_lines(lines: str, block: str, drafts: Drafts, faults: Faults, only: Collection[str] | None) -> bool:
    """Read a block line by line, each into the family of its name; return whether one is of another family."""
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
            draft = drafts.setdefault(name, FamilyDraft())
            draft.blocks.append(Block((series,), (number,), f"{whole}\n".encode()))
    return scattered


def _family_of(name: str, drafts: Drafts) -> str:
    """Return the family that a sample's name belongs to: its own where that is declared."""
    if not _is_declared(name, drafts):
        for suffix in SUFFIXES["histogram"]:
            base = name.removesuffix(suffix)
            if base != name and base in drafts and suffix in SUFFIXES.get(drafts[base].kind, ()):
                return base
    return name


def _is_declared(name: str, drafts: Drafts) -> bool:
    return name in drafts and bool(drafts[name].kind or drafts[name].help is not None)


def regroup(drafts: Drafts) -> bool:
    """Move samples that were read before the declaration of their family; return whether there are any."""
    suffixed = {
        f"{name}{suffix}" for name, draft in drafts.items() for suffix in SUFFIXES.get(draft.kind, ())
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
            draft = drafts.setdefault(_family_of(series.name, drafts), FamilyDraft())
            draft.blocks.append(Block((series,), (number,), f"{line}\n".encode()))
    return True


def finished(name: str, draft: FamilyDraft, faults: Faults) -> ParsedFamily:
    """Return the family that a draft has become; lines that are a series twice are counted in `faults`."""
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


def _merge(name: str, draft: FamilyDraft, faults: Faults) -> Block:
    if len(draft.blocks) == 1 and draft.blocks[0].kind == draft.kind:
        return draft.blocks[0]
    bound = BOUNDS.get(draft.kind, "")
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
    return Block([series for series, _, _ in accepted], [number for _, number, _ in accepted], lines)


# The form of nearly every value: float() takes it, and it is too short to overflow. Other lines are
# read one by one.
_PLAIN = r"[+-]?[0-9]{1,200}(?:\.[0-9]{0,99})?(?:e[+-]?[0-9]{1,2})?|[+-]?Inf|NaN|Nan"
_FAST = re.compile(rf" ({_PLAIN})\n")
_ALL_PLAIN = re.compile(rf"(?:(?:{_PLAIN})\n)*+".encode())
_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)
_LONG = b"0" * 200


@dataclass(slots=True)
class _Layout:
    """A block without bad lines: its series, and the last block."""

    kind: str
    size: int  # of all series
    series: Sequence[Series]
    skeletons: set[str]
    last: Block
    family: ParsedFamily | None = None  # that of the last block


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
        if body and not body.endswith(b"\n"):
            faults["", "truncated"] += 1
            body = body[: body.rfind(b"\n") + 1]
        if not body.isascii() and not _is_utf8(body):
            lines_of_body = body.split(b"\n")
            good = [line for line in lines_of_body if _is_utf8(line)]
            faults["", "encoding"] += len(lines_of_body) - len(good)
            body = b"\n".join(good)
        name, scattered = "", False
        for header, start, end in _blocks(body):
            name = declare(header, drafts, faults, only) or name
            declared.add(name)
            if start == end or (name and only is not None and name not in only):
                continue
            lines = body[start:end]
            block = self._read_block(name, drafts[name].kind, lines, layouts) if name in drafts else None
            if block:
                drafts[name].blocks.append(block)
            else:
                scattered |= read_lines(lines.decode(), name, drafts, faults, only)
        self._layouts = layouts
        scattered |= regroup(drafts)
        families = {
            name: _same_if_equal(finished(name, draft, faults), layouts.get(name))
            for name, draft in drafts.items()
        }
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


def _same_if_equal(family: ParsedFamily, layout: _Layout | None) -> ParsedFamily:
    """Return the family of the last body if this is the same, so that its values are not converted again."""
    if layout is None or family.lines is not layout.last.lines:
        return family
    before = layout.family
    if before is None or family.lines is not before.lines or family.head != before.head:
        layout.family = before = family
    return before


def _numbers_of(known: _Layout, lines: bytes) -> list[bytes]:
    """Return what follows the start of each line; nothing when a start or a number is not as usual."""
    ends = lines.split(b"\n")
    if len(ends) != len(known.series) + 1:
        return []
    numbers = list(map(bytes.removeprefix, ends, known.series))
    together = b"\n".join([*numbers, b""])
    removed_all = len(together) + known.size == len(lines)
    return numbers if removed_all and _all_plain(together) else []


def _new_layout(
    name: str, kind: str, keys: list[str], numbers: list[str], known: _Layout | None, lines: bytes
) -> _Layout | None:
    """Return the layout of a block; None where a line is not as usual."""
    before = {old.text: old for old in known.series} if known and known.kind == kind else {}
    new = [key for key in keys if key not in before]
    if not all(with_whole_escapes(key, LABEL_ESCAPES) == key for key in new):
        return None
    bound = BOUNDS.get(kind)
    if bound is not None:
        # The value of another label can resemble a bound; its lines are then read one by one.
        bounds = re.findall(rf'[{{,][ \t]*{bound}[ \t]*=[ \t]*"([^"]*)"', "\n".join(new))
        if not all(map(is_number, set(bounds))):
            return None
    # Keys differ in little but the values of their labels: what is left without them is soon checked.
    skeletons = {without_strings(key) for key in new}
    names = {name, *(name + suffix for suffix in SUFFIXES.get(kind, ()))}
    if not all((parsed := parse_series(text)) and parsed.name in names for text in skeletons):
        return None
    skeletons |= known.skeletons if known else set()
    series = [before.get(key) or Series.of(key) for key in keys]
    if len(set(keys)) < len(keys):
        return None
    # Different texts can mean the same series: the same labels in another order or spacing.
    is_ambiguous = len({Series.of(text).identity for text in skeletons}) < len(skeletons)
    if is_ambiguous and len({each.identity for each in series}) < len(series):
        return None
    return _Layout(kind, sum(map(len, series)), series, skeletons, Block(series, numbers, lines, kind))


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _blocks(body: bytes) -> Iterator[tuple[str, int, int]]:
    """Cut a body at its comments: each comment (none before the first), and where its lines start and end."""
    start = 0 if body.startswith(b"# ") else _next_comment(body, 0)
    yield "", 0, start
    while start < len(body):
        end = _next_comment(body, start)
        header = body[start + 2 : body.index(b"\n", start)]
        yield header.decode(), start + len(header) + 3, end
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
