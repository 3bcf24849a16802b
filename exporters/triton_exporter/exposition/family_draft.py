"""Put the families of a body together while it is read: declarations, blocks of lines, and single bad lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from triton_exporter.exposition.exposition_values import KINDS, ParsedFamily
from triton_exporter.exposition.series_text import (
    HELP_ESCAPES,
    LABEL_ESCAPES,
    METRIC_NAME,
    Series,
    is_number,
    read_line,
    unescape,
    with_whole_escapes,
)

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
