"""Read the recipes of the documentation: files, commands and expected output, from the page itself."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from support.tools import ROOT

_PART = re.compile(r"^## (.+)$", re.MULTILINE)
_FENCE = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: its language, its title (a file's path, or nothing) and its text."""

    language: str
    title: str
    text: str


def parts(page: str) -> Mapping[str, tuple[Block, ...]]:
    """Heading -> blocks, of one page of docs/."""
    pieces = _PART.split((ROOT / "docs" / page).read_text())[1:]
    return {
        heading: tuple(Block(*fence) for fence in _FENCE.findall(text))
        for heading, text in zip(pieces[::2], pieces[1::2], strict=True)
    }


def write_files(blocks: tuple[Block, ...], directory: Path) -> None:
    """Write what the page calls files."""
    for block in blocks:
        if "." in block.title:
            path = directory / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)


def arguments(blocks: tuple[Block, ...], program: str) -> list[str]:
    """Return the arguments that the page gives a program in its block of servers."""
    lines = [
        shlex.split(line) for block in blocks if block.title == "servers" for line in block.text.splitlines()
    ]
    (given,) = [words[1:] for words in lines if Path(words[0]).name == program]
    return given


def missing(promised: str, printed: str) -> list[str]:
    """Return the lines of a page that a command did not print; numbers and blanks may differ, `...` is anything."""
    lines = [_plain(line) for line in printed.splitlines()]
    return [
        line
        for line in promised.splitlines()
        if not any(re.fullmatch(_pattern(_plain(line)), printed) for printed in lines)
    ]


def _plain(line: str) -> str:
    return " ".join(_NUMBER.sub("#", line).split())


def _pattern(line: str) -> str:
    return ".*".join(re.escape(piece.strip()) + r"\s*" for piece in line.split("...")).replace(
        r"\s*.*", r".*"
    )
