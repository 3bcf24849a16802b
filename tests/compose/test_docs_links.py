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


def test_every_page_of_docs_is_reachable_from_the_readme() -> None:
    """A page without a link to it would not be read."""
    readme = (ROOT / "README.md").read_text()

    assert [] == [
        page.name for page in sorted((ROOT / "docs").glob("*.md")) if f"docs/{page.name}" not in readme
    ]


def test_every_setting_of_the_compose_file_is_documented() -> None:
    """Each variable of docker-compose.yml is in docs/compose.md."""
    variables = set(re.findall(r"\$\{([A-Z_]+)", (ROOT / "compose" / "docker-compose.yml").read_text()))
    page = (ROOT / "docs" / "compose.md").read_text()

    assert variables
    assert [] == sorted(name for name in variables if f"`{name}`" not in page)
