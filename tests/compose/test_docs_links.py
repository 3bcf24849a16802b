"""Test that every link in the documentation leads to a file that exists."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from support.tools import ROOT

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def _pages() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.splitlines()]


def broken_links(page: Path, text: str) -> list[str]:
    """Relative links of a page that lead nowhere."""
    targets = [target.partition("#")[0] for target in _LINK.findall(text)]
    relative = [
        target for target in targets if target and "://" not in target and not target.startswith("mailto:")
    ]
    return [target for target in relative if not (page.parent / target).exists()]


@pytest.mark.parametrize("page", _pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    """A reader who follows a link finds a page."""
    assert [] == broken_links(page, page.read_text())


def test_a_broken_link_is_found() -> None:
    """The check can fail."""
    assert ["nowhere.md"] == broken_links(
        ROOT / "README.md", "[a](nowhere.md#x) [b](README.md) [c](https://x.org/)"
    )
