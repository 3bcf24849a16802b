"""Test the bill of materials: `make sbom` lists everything that the lock installs to run."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from support.tools import ROOT

NOT_USERS = ("all", "dev", "fuzz")
"""Extras that are a sum, or for who develops it."""
Parts = set[tuple[str, str]]


def _bill(lock: Path, directory: Path) -> Parts:
    """(name, version) of every component, by the very command of the Makefile."""
    planned = subprocess.run(["make", "-n", "sbom"], cwd=ROOT, capture_output=True, text=True, check=True)
    (line,) = [line for line in planned.stdout.splitlines() if "cyclonedx-py" in line]
    program, *words = shlex.split(line)
    named = {"sbom.json": str(directory / "sbom.json"), "constraints.txt": str(lock)}
    command = [
        str(Path(sys.executable).parent / Path(program).name),
        *(named.get(word, word) for word in words),
    ]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    written = json.loads((directory / "sbom.json").read_text())
    assert "CycloneDX" == written["bomFormat"]
    return {
        (canonicalize_name(component["name"]), component["version"]) for component in written["components"]
    }


def _installed(requirement: Requirement, seen: set[str]) -> Iterator[tuple[str, str]]:
    """(name, version) of a requirement and of all that it needs in turn, here and now."""
    name = canonicalize_name(requirement.name)
    if str(requirement) in seen:
        return
    seen.add(str(requirement))
    try:
        installed = distribution(name)
    except PackageNotFoundError:
        return  # nvidia-pytriton is installed without what it needs on some Pythons
    if name != "tritonwatch":
        yield name, installed.version
    for needed in map(Requirement, installed.requires or ()):
        if any(_applies(needed, extra) for extra in ("", *requirement.extras)):
            needed.marker = None
            yield from _installed(needed, seen)


def _applies(requirement: Requirement, extra: str = "") -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


@pytest.fixture(scope="module")
def running() -> Parts:
    """Return what an installation with every extra for users consists of, here and now."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {
        name: texts for name, texts in project["optional-dependencies"].items() if name not in NOT_USERS
    }
    wanted = [Requirement(text) for texts in (project["dependencies"], *extras.values()) for text in texts]
    seen: set[str] = set()
    return {part for requirement in wanted if _applies(requirement) for part in _installed(requirement, seen)}


@pytest.mark.thorough  # of a release, and the slowest of our tools
def test_the_bill_of_materials_names_what_runs(running: Parts, tmp_path: Path) -> None:
    """Every package of an installation, pulled in by others too, is in the bill with its version."""
    assert {"requests", "pydantic-core", "slack-sdk", "grpcio"} <= {name for name, _ in running}
    assert set() == running - _bill(ROOT / "constraints.txt", tmp_path)
