"""The documentation as a site: it builds, leads somewhere, and names what exists."""

from __future__ import annotations

import argparse
import importlib
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from support.tools import ROOT
from tritonwatch.cli import VERBS

_THREAT_TEST = re.compile(r"`(test_[a-z0-9_]+)`")
_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


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
    """A claim about safety has its proof."""
    named = set(_THREAT_TEST.findall((ROOT / "docs" / "threats.md").read_text()))
    found = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    assert len(named) > 15
    assert set() == named - found


def _commands() -> list[tuple[str, str]]:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    commands = []
    for name in listed.stdout.splitlines():
        for block in _BLOCK.findall((ROOT / name).read_text()):
            for line in block.replace("\\\n", " ").splitlines():
                words = shlex.split(line.split("|")[0].split(" > ")[0], comments=True)
                if words and Path(words[0]).name == "tritonwatch":
                    commands.append((name, shlex.join(words[1:])))
    return sorted(set(commands))


@pytest.mark.parametrize(("page", "command"), _commands())
def test_every_command_of_the_docs_is_one_the_command_line_takes(page: str, command: str) -> None:
    """Copied from a page, a command has a verb and flags that exist."""
    words = shlex.split(command)
    verb = next(word for word in words if not word.startswith("-"))
    assert verb in VERBS, page
    parser = argparse.ArgumentParser()
    importlib.import_module(f"tritonwatch.commands.{verb}").configure(parser)
    parser.parse_args(words[words.index(verb) + 1 :])
