"""Test the site of the documentation: it builds, its links lead somewhere, and its names exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.tools import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site; MkDocs is strict: a link or an anchor that leads nowhere fails it."""
    out = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        # MkDocs' own warnings about its future are not ours.
        [sys.executable, "-X", "dev", "-W", "ignore", "-m", "mkdocs", "build", "--strict", "-q", "-d", out],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == built.returncode, built.stdout + built.stderr
    return out


def test_pages_from_everywhere_are_on_the_site(site: Path) -> None:
    """README, docs and runbooks are one site, and links between them stay on it."""
    assert all((site / name / "index.html").exists() for name in ("", "start", "runbooks/TritonServerDown"))
    assert 'href="docs/' not in (site / "index.html").read_text()
    assert 'href="../runbooks/TritonServerDown/"' in (site / "alerts" / "index.html").read_text()


def test_the_site_fetches_nothing_from_elsewhere(site: Path) -> None:
    """A reader behind a firewall sees the same pages: no font, script or style of another host."""
    text = (site / "index.html").read_text()
    assert [] == re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"https?://(?!github\.com)[^\"]+", text)
