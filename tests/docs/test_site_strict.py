"""Test that each kind of mistake in a page fails the build of the site."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.tools import ROOT


def _sources(to: Path) -> Path:
    """Copy the sources of the site."""
    for name in ("docs", "alerts/runbooks"):
        shutil.copytree(ROOT / name, to / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("mkdocs.yml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE"):
        shutil.copy(ROOT / name, to / name)
    (to / "compose" / "kubernetes").mkdir(parents=True)
    shutil.copy(ROOT / "compose/kubernetes/README.md", to / "compose/kubernetes/README.md")
    return to


def _errors(root: Path, out: Path) -> str:
    """Return the errors of the strict build; empty if it succeeded."""
    built = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)],
        cwd=root,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return built.stderr if built.returncode else ""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the errors of a site with a dead link on some pages, and a page outside the navigation."""
    root = _sources(tmp_path_factory.mktemp("site") / "tree")
    for page, link in DEAD.items():
        with (root / "docs" / page).open("a", encoding="utf-8") as text:
            text.write(f"\n[dead]({link})\n")
    (root / "docs" / "orphan.md").write_text("# Orphan\n", encoding="utf-8")
    return _errors(root, tmp_path_factory.mktemp("out")).splitlines()


DEAD = {
    "gpu.md": "nowhere.md",
    "exporter.md": "metrics.md#no-such-heading",
    "on-call.md": "../alerts/runbooks/No.md",
}
"""Page -> a link on it that leads nowhere."""


@pytest.mark.parametrize("page", DEAD)
def test_a_dead_link_is_an_error_of_the_build(printed: list[str], page: str) -> None:
    """The page and the target are named."""
    assert any(page in line and Path(DEAD[page]).name in line for line in printed), printed


def test_a_page_outside_the_navigation_is_an_error_of_the_build(printed: list[str]) -> None:
    """No page is built that a reader of the site cannot find."""
    assert any("orphan.md" in line for line in printed), printed
