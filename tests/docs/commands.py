"""Read every command that a page of the documentation shows, as words."""

from __future__ import annotations

import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

from support.tools import ROOT

FOLLOWED = ("docs/howto.md",)
"""Pages whose commands are run in their order, with what the page promises of them."""
_BLOCK = re.compile(r"^( *)```sh\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`(tritonwatch [a-z]+ [^`]+)`")
_BLANK = re.compile(r"\b(?:URL|FILE|DIR|NS|NAME|VERB)\b|\.\.\.|\[")
"""A place that the reader fills in."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command: its page, its words, and whether the reader must fill in something first."""

    page: str
    words: tuple[str, ...]
    in_block: bool = True

    @property
    def program(self) -> str:
        """The program's name without its folder."""
        return Path(self.words[0]).name

    @property
    def whole(self) -> bool:
        """Whether it can be run as it stands: without a blank, and without a server that only the reader has."""
        if any("//your-" in word for word in self.words):
            return False
        return self.in_block or not _BLANK.search(" ".join(self.words).replace("--prometheus URL", ""))

    def __str__(self) -> str:
        return f"{self.page}: {shlex.join(self.words)}"


def commands() -> list[Command]:
    """All commands of all pages, in the order of each page; runbooks have a test of their own.

    The change log also names what is no more.
    """
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    left_out = ("alerts/runbooks/", "CHANGELOG.md")
    pages = [page for page in listed.stdout.splitlines() if not page.startswith(left_out)]
    return [command for page in pages for command in _of(page)]


def _of(page: str) -> list[Command]:
    text = (ROOT / page).read_text()
    placed = [
        (match.start(), Command(page, tuple(words)))
        for match in _BLOCK.finditer(text)
        for line in match[2].replace("\\\n", " ").splitlines()
        for words in _split(line)
    ]
    placed += [
        (match.start(), Command(page, tuple(shlex.split(match[1])), in_block=False))
        for match in _SPAN.finditer(text)
    ]
    return [command for _, command in sorted(placed, key=lambda pair: pair[0])]


def _split(line: str) -> list[list[str]]:
    """Return the commands of a line, without variables set for them, pipes into others and redirections."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="&|;()>")
    lexer.whitespace_split = True
    pieces: list[list[str]] = [[]]
    for word in lexer:
        if word == ">":
            next(lexer)
        elif set(word) <= set("&|;()>"):
            pieces.append([])
        else:
            pieces[-1].append(word)
    return [words for words in map(_without_variables, pieces) if words]


def _without_variables(words: list[str]) -> list[str]:
    while words and re.match(r"[A-Z_]+=", words[0]):
        words = words[1:]
    return words
