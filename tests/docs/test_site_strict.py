"""What is wrong in a page ends the build of the site."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.tools import ROOT


def _sources(to: Path) -> Path:
    """A copy of what the site is made from."""
    for name in ("docs", "alerts/runbooks"):
        shutil.copytree(ROOT / name, to / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("mkdocs.yml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE"):
        shutil.copy(ROOT / name, to / name)
    (to / "compose" / "kubernetes").mkdir(parents=True)
    shutil.copy(ROOT / "compose/kubernetes/README.md", to / "compose/kubernetes/README.md")
    return to


def _errors(root: Path, out: Path) -> str:
    """What the strict build said when it refused; empty when it was content."""
    built = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)],
        cwd=root,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return built.stderr if built.returncode else ""


@pytest.mark.parametrize("link", ["nowhere.md", "metrics.md#no-such-heading", "../alerts/runbooks/No.md"])
def test_a_dead_link_ends_the_build(tmp_path: Path, link: str) -> None:
    """The page and the target are named."""
    root = _sources(tmp_path / "tree")
    with (root / "docs" / "gpu.md").open("a", encoding="utf-8") as page:
        page.write(f"\n[dead]({link})\n")

    said = _errors(root, tmp_path / "out")

    assert "gpu.md" in said
    assert Path(link).name in said


def test_a_page_outside_the_navigation_ends_the_build(tmp_path: Path) -> None:
    """No page is built that a reader of the site cannot find."""
    root = _sources(tmp_path / "tree")
    (root / "docs" / "orphan.md").write_text("# Orphan\n", encoding="utf-8")

    assert "orphan.md" in _errors(root, tmp_path / "out")
