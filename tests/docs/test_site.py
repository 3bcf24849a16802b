"""The documentation as a site: it builds, leads somewhere, and names what exists."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from support.tools import ROOT

_THREAT_TEST = re.compile(r"`(test_[a-z0-9_]+)`")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; MkDocs is strict: a link or an anchor that leads nowhere ends it."""
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


def test_every_test_that_the_threat_page_names_exists() -> None:
    """A claim about safety has its proof, each line of it; two tests of a name could be the wrong one."""
    page = (ROOT / "docs" / "threats.md").read_text()
    named = set(_THREAT_TEST.findall(page))
    found = Counter(
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)", path.read_text())
    )
    rows = [line for line in page.splitlines() if line.startswith("| ") and "---" not in line]
    heads = ("| who listens", "| secret |", "| who | tries")
    assert [] == [row for row in rows if not row.startswith(heads) and not _THREAT_TEST.search(row)]
    assert len(named) > 15
    assert {} == {name: found[name] for name in named if found[name] != 1}
