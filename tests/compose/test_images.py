"""Test compose/Dockerfile without Docker: what it copies, installs, runs and leaves out."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path

import pytest

from support.stack.compose_policy import resolved
from support.tools import ROOT

TEXT = (ROOT / "compose" / "Dockerfile").read_text()
STAGES: Mapping[str, str] = {
    name: text for text, name in re.findall(r"^(FROM .+ AS ([\w-]+)\n(?:(?!FROM ).*\n)*)", TEXT, re.MULTILINE)
}
ROLES = ("exporter", "stack", "demo")


def test_every_role_is_built_on_the_bare_runtime() -> None:
    """Each role runs without root, without build tools, and with only its own environment."""
    for role in ROLES:
        assert STAGES[role].startswith("FROM runtime AS")
        copied = re.findall(r"^COPY --from=build-(\w+) /opt/\1 /opt/\1$", STAGES[role], re.MULTILINE)
        assert [role] == copied
        assert "RUN" not in STAGES[role]
    assert "USER 10001:10001" in STAGES["runtime"]
    assert not re.search(r"\b(apt|apt-get|pip|gcc)\b", STAGES["runtime"])
    assert all(f"/opt/{role}/bin/pip uninstall" in STAGES[f"build-{role}"] for role in ROLES)


def test_the_base_is_pinned_by_digest() -> None:
    """The same tag may be another image tomorrow."""
    assert re.search(r"^ARG PYTHON=3\.12\.\d+-slim-bookworm@sha256:[0-9a-f]{64}$", TEXT, re.MULTILINE)
    bases = {"python:${PYTHON}", "prom/prometheus:${PROMETHEUS}"}
    assert {*bases, "build", "runtime"} == set(re.findall(r"^FROM (\S+)", TEXT, re.MULTILINE))


def test_promtool_is_of_the_prometheus_that_the_stack_runs() -> None:
    """Rules are checked by the version that loads them."""
    made = re.search(r"^ARG PROMETHEUS=(\S+)$", TEXT, re.MULTILINE)

    assert made is not None
    assert f"prom/prometheus:{made[1]}" == resolved()["services"]["prometheus"]["image"]


def test_everything_that_is_installed_has_the_locked_version_and_a_hash() -> None:
    """Each environment is made of the files that were looked at, and of the wheel just built."""
    locked = {_pin(line) for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}
    installed = re.findall(r"pip install (.+?)(?: \\)?$", TEXT, re.MULTILINE)
    hashed = re.compile(r"\S+==\S+( +--hash=sha256:[0-9a-f]{64})+")

    for role in ("build", *ROLES):
        text = (ROOT / "compose" / "requirements" / f"{role}.txt").read_text().replace("\\\n", "")
        pins = [line for line in text.splitlines() if not line.startswith("#")]
        assert pins
        assert [] == [pin for pin in pins if not hashed.fullmatch(pin)]
        assert {_pin(pin.split()[0]) for pin in pins} <= locked, "run `make lock-images`"
        assert any(re.search(rf"--require-hashes -r \S*/{role}.txt$", words) for words in installed)
    wheel = "--no-cache-dir --no-index --no-deps /wheels/*.whl"
    assert [] == [words for words in installed if "--require-hashes" not in words and words != wheel]


def _pin(line: str) -> tuple[str, str]:
    name, _, version = line.partition(";")[0].strip().partition("==")
    return name.lower().replace("_", "-"), version


@pytest.mark.parametrize("role", ["exporter", "stack", "demo"])
def test_every_role_gets_what_its_extra_needs(role: str) -> None:
    """A dependency added to the project is missing in an image until `make lock-images` has run."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = (ROOT / "compose" / "requirements" / f"{role}.txt").read_text()
    wanted = [*project["dependencies"], *project["optional-dependencies"][role]]
    names = {re.split(r"[\[<>=;]", one)[0].lower().replace("_", "-") for one in wanted}

    assert names <= set(re.findall(r"^([\w.-]+)==", text, re.MULTILINE)), "run `make lock-images`"
    assert f"{role} $wheel[{role}] " in (ROOT / "compose" / "lock-images.sh").read_text()


def test_no_image_of_ours_has_a_name_that_somebody_else_may_own() -> None:
    """Docker Hub is asked for a name without a registry; ours name this machine, or a registry that cannot be."""
    images = [service["image"] for service in resolved()["services"].values()]
    for path in (ROOT / "compose").rglob("*.yaml"):
        images += re.findall(r"^ *image: (\S*tritonwatch/\S+)", path.read_text(), re.MULTILINE)
    ours = [image for image in images if "tritonwatch" in image]

    assert 8 < len(ours)
    assert [] == [image for image in ours if not image.startswith(("localhost/", "registry.example/"))]


def test_the_targets_are_those_that_the_stack_builds() -> None:
    """docker compose asks for no stage that is not there."""
    services = resolved()["services"].values()

    assert set(ROLES) == {service["build"]["target"] for service in services if "build" in service}


def test_what_is_copied_exists_and_is_let_through() -> None:
    """A file that is missing, or that .dockerignore excludes, ends the build."""
    let_through = (ROOT / ".dockerignore").read_text().split()
    copied = [
        word
        for line in re.findall(r"^COPY (?!--from)(.+)$", TEXT, re.MULTILINE)
        for word in line.split()[:-1]
    ]

    assert copied
    for name in copied:
        assert (ROOT / name).exists()
        assert f"!{Path(name).parts[0]}" in let_through


@pytest.mark.parametrize(
    "path", ["compose/secrets/stack_password", ".venv/bin/python", ".git/config", "site/index.html"]
)
def test_nothing_secret_and_nothing_large_reaches_the_builder(path: str) -> None:
    """The last matching rule decides, as in Docker; a rule for a folder applies to its contents."""
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    ignored = False
    for line in lines:
        rule = line.removeprefix("!")
        if fnmatch(path, rule) or path.startswith(f"{rule}/"):
            ignored = not line.startswith("!")

    assert ignored
