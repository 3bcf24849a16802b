"""Test the release workflow: valid, on every supported Python, and with secrets for tags only."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.tools import ROOT

FILE = ROOT / ".github" / "workflows" / "release.yml"
JOBS: dict[str, Any] = yaml.safe_load(FILE.read_text())["jobs"]


def _steps() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    return ((job, step) for job in JOBS.values() for step in job["steps"])


def test_the_workflow_is_valid() -> None:
    """Actionlint knows the syntax, the contexts and the shell's own mistakes."""
    path = os.pathsep.join((os.environ["PATH"], str(Path.home() / "go" / "bin")))
    actionlint = shutil.which("actionlint", path=path)
    if actionlint is None:
        pytest.skip(
            "actionlint is not installed here (go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.12)"
        )
    done = subprocess.run([actionlint, FILE], capture_output=True, text=True, check=False)

    assert 0 == done.returncode, done.stdout


def test_every_supported_python_is_tested() -> None:
    """The matrix is the list of classifiers."""
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    versions = [classifier.rpartition(" ")[2] for classifier in classifiers if "Python :: 3." in classifier]

    assert versions == JOBS["test"]["strategy"]["matrix"]["python"]


def test_secrets_are_for_tags_alone() -> None:
    """A pull request publishes nothing, and never sees the registry's password."""
    for job, step in _steps():
        if "secrets." in str(step) or "cosign" in str(step) or "push" in str(step.get("run")):
            assert "github.ref_type == 'tag'" in (step.get("if"), job.get("if")), step


def test_every_action_is_pinned_by_commit() -> None:
    """A tag may be another program tomorrow; the comment names the release for who updates it."""
    used = re.findall(r"uses: (.+)$", FILE.read_text(), re.MULTILINE)

    assert used
    pinned = re.compile(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
    assert [] == [words for words in used if not pinned.fullmatch(words)]


def test_only_a_tag_gets_an_identity_to_sign_with() -> None:
    """A pull request runs what its author wrote: it must not be able to sign or to write as this repository."""
    workflow = yaml.safe_load(FILE.read_text())
    assert {"contents": "read"} == workflow["permissions"]
    for job in JOBS.values():
        if job.get("permissions", {"contents": "read"}) != {"contents": "read"}:
            assert "github.ref_type == 'tag'" == job["if"]


def test_what_the_workflow_builds_exists() -> None:
    """Images are targets of the Dockerfile, and the words of make are in the Makefile."""
    dockerfile = (ROOT / "compose" / "Dockerfile").read_text()
    for job in ("image", "signed-image"):
        assert all(f" AS {target}\n" in dockerfile for target in JOBS[job]["strategy"]["matrix"]["target"])
    runs = " ".join(str(step.get("run")) for _, step in _steps())
    words = set(re.findall(r"(?:make |&& '|\|\| ')([a-z-]+)", runs))
    made = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    assert {"setup", "test", "test-all", "sbom", "mixin", "generate-kubernetes"} == words
    assert words <= made
