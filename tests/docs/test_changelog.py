"""Test the changelog: each entry and each kind of change once in a version."""

from __future__ import annotations

import re
from collections import Counter

from support.tools import ROOT

VERSIONS = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]


def repeated(pattern: str) -> list[str]:
    """Return what a pattern finds more than once in a version."""
    counts = [Counter(re.findall(pattern, version, re.MULTILINE)) for version in VERSIONS]
    return [text for count in counts for text, times in count.items() if times > 1]


def test_an_entry_stands_once() -> None:
    """Two branches that are joined must not leave their entries twice."""
    assert [] == repeated(r"^- .+(?:\n  .+)*")


def test_a_version_has_one_section_of_each_kind() -> None:
    """All that was fixed is in one list."""
    assert [] == repeated(r"^### .+")
