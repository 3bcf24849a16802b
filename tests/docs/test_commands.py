"""Test that everything in the commands of a page exists: verbs, flags, make targets, folders, services, extras."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from docs.commands import commands
from support.stack.compose_policy import resolved
from support.tools import ROOT
from tritonwatch.local import find_binary
from tritonwatch.project import declare_project
from tritonwatch.usage import VERBS

SHELL_IS_RUN = ("docs/howto.md", "docs/start.md")
"""Pages of which other tests run what the shell's own commands do."""
COMPOSE = ROOT / "compose" / "docker-compose.yml"


def _tritonwatch(words: tuple[str, ...]) -> None:
    verb = next(word for word in words[1:] if not word.startswith("-"))
    assert verb in VERBS
    parser = argparse.ArgumentParser(conflict_handler="resolve")
    declare_project(parser)
    VERBS[verb].configure(parser)
    # Square brackets contain what may be omitted; it must exist all the same.
    parser.parse_args([word.strip("[]") for word in words[words.index(verb) + 1 :] if word != "..."])


def _make(words: tuple[str, ...]) -> None:
    """`make -n` plans and runs nothing."""
    done = subprocess.run(["make", "-n", *words[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr


def _pip(words: tuple[str, ...]) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (wanted,) = re.findall(r"\[(.+)\]", " ".join(words))
    assert set(wanted.split(",")) <= set(extras)


def _docker(words: tuple[str, ...]) -> None:
    """Check that compose reads the file, and that it has the service that is run or the volume that is copied."""
    if words[1] in ("build", "push"):
        image = words[words.index("-t") + 1] if "-t" in words else words[-1]
        target = image.rpartition("/")[2].partition(":")[0]
        assert f" AS {target}\n" in (ROOT / "compose" / "Dockerfile").read_text()
        assert words[1] == "push" or ("--target", target) in pairwise(words)
        return
    if words[1] == "run":
        named = {
            word.partition(":")[0].removeprefix("tritonwatch_") for word in words if word.startswith("trit")
        }
        assert named <= set(resolved()["volumes"])
        return
    assert ("docker", "compose", "-f") == words[:3]
    binary = shutil.which("docker-compose", path=str(Path(sys.executable).parent))
    assert binary is not None
    done = subprocess.run(
        [binary, "-f", str(ROOT / words[3]), "--profile", "reload", "config", "--format", "json"],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
        check=True,
    )
    verb, *rest = words[4:]
    services = [word for word in rest if not word.startswith("-")]
    if verb == "run":
        services, given = services[:1], rest[rest.index(services[0]) + 1 :]
        if given:
            _tritonwatch(("tritonwatch", *given))
    assert verb in ("build", "up", "run", "down", "stop", "restart", "logs", "ps")
    assert [] == [name for name in services if name not in json.loads(done.stdout)["services"]]


def _kubectl(words: tuple[str, ...]) -> None:
    """Check that a kustomization is applied; the tests of Kubernetes run kustomize itself."""
    if "-k" in words:
        assert (ROOT / words[words.index("-k") + 1] / "kustomization.yaml").is_file()
    else:
        assert {"create", "get", "port-forward", "rollout"} & set(words)


def _helm(words: tuple[str, ...]) -> None:
    """Check that the chart exists, and every value that is set."""
    assert words[1] in ("install", "upgrade", "uninstall")
    assert words[1] == "uninstall" or (ROOT / words[3] / "Chart.yaml").is_file()
    for setting in (after for word, after in pairwise(words) if word == "--set"):
        value = yaml.safe_load((ROOT / words[3] / "values.yaml").read_text())
        for key in setting.partition("=")[0].split("."):
            value = value[key]


def _nothing(words: tuple[str, ...]) -> None:
    """Accept a word of the shell itself."""


def _script(words: tuple[str, ...]) -> None:
    assert (ROOT / words[1]).is_file()


def _tritonserver(words: tuple[str, ...]) -> None:
    """Check the form only; the recipes run these flags on a real server."""
    assert all(word == "..." or word.startswith("--") for word in words[1:])


def _server(words: tuple[str, ...]) -> None:
    """Check the flags of the program that is installed."""
    binary = find_binary(words[0], f"prometheus-{words[0]}")
    known = subprocess.run([binary, "--help"], capture_output=True, text=True, check=False)
    text = known.stdout + known.stderr
    assert [] == [word for word in words[1:] if word.partition("=")[0] not in text]


def _activate(words: tuple[str, ...]) -> None:
    assert (".", ".venv/bin/activate") == words


def _python(words: tuple[str, ...]) -> None:
    assert ("-m", "venv") == words[1:3]


CHECKS: Mapping[str, Callable[[tuple[str, ...]], None]] = {
    "tritonwatch": _tritonwatch,
    "make": _make,
    "pip": _pip,
    "docker": _docker,
    "kubectl": _kubectl,
    "helm": _helm,
    "export": _nothing,
    "sh": _script,
    "tritonserver": _tritonserver,
    "python3": _python,
    "prometheus": _server,
    "alertmanager": _server,
    "": _activate,
}


@pytest.mark.parametrize("page", dict.fromkeys(command.page for command in commands()))
def test_every_documented_command_has_its_verb_and_flags(page: str) -> None:
    """Copied from a page, a command has a verb, flags, files and services that exist."""
    for command in (command for command in commands() if command.page == page):
        if check := CHECKS.get(command.program):
            print(command)  # which one failed
            check(command.words)
        else:
            assert page in SHELL_IS_RUN, f"nothing checks {command.program}"


def test_what_the_pages_write_into_the_clone_is_ignored_by_git() -> None:
    """A reader who follows a page has a clean `git status` afterwards."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    text = "\n".join(page.read_text() for page in pages)
    written = {"data", "objectives.yaml"}  # what `prometheus` and `tritonwatch init` write by default
    written |= set(re.findall(r'^```\w+ title="([^"]+)"', text, re.MULTILINE))
    options = r"(?:--out|--data|--save|--storage(?:\.tsdb)?\.path|--log-file|--log)[ =]([a-z][\w./-]*)"
    written |= {path for path in re.findall(options, text) if not (ROOT / path).exists()}
    done = subprocess.run(
        ["git", "check-ignore", "--no-index", "--stdin"],
        input="\n".join(written),
        cwd=ROOT,
        capture_output=True,
        text=True,
    )

    assert sorted(written) == sorted(set(done.stdout.split()) & written)
