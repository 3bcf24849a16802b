"""Test the wheel alone: it contains the models and objectives and runs without the checkout."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
import requests
from packaging.requirements import Requirement

from exporters.paced import Traffic
from support.loopback import free_ports, started
from support.sleeper import write_sleeper
from support.tools import ROOT
from support.triton import live_triton
from support.waiting import eventually
from tritonwatch.usage import VERBS


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel of this checkout; return the folder of its unpacked content."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert 0 == done.returncode, done.stderr
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "site")
    return folder / "site"


def _run(unpacked: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return _python(unpacked, "sys.exit(main(sys.argv[1:]))", *arguments)


def _python(unpacked: Path, work: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    # Our own path entries of the editable install must not help: the wheel's folder stands first and alone.
    code = (
        "import sys; "
        "ours = ('/exporters', '/slo', '/alerts', '/dashboards', '/compose'); "
        f"sys.path = [{str(unpacked)!r}, *(path for path in sys.path if not path.endswith(ours))]; "
        "import tritonwatch; "
        f"assert tritonwatch.__file__.startswith({str(unpacked)!r}), tritonwatch.__file__; "
        f"from tritonwatch.cli import main; {work}"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=unpacked, capture_output=True, text=True
    )


def test_the_wheel_generates_from_its_own_objectives(unpacked: Path, tmp_path: Path) -> None:
    """Rules from the shipped objectives come out byte-equal to the committed ones."""
    objectives = unpacked / "tritonwatch" / "data" / "objectives"
    done = _run(
        unpacked, "generate", "--objectives", str(objectives), "--only", "rules", "--out", str(tmp_path)
    )

    assert 0 == done.returncode, done.stderr
    committed = ROOT / "alerts" / "generated" / "rules"
    assert {path.name for path in committed.iterdir()} == {path.name for path in tmp_path.iterdir()}
    for path in committed.iterdir():
        assert path.read_bytes() == (tmp_path / path.name).read_bytes(), path.name


def test_the_wheel_contains_the_demos_models(unpacked: Path) -> None:
    """Every model of the demo is there, with its versions."""
    models = unpacked / "tritonwatch" / "data" / "models"
    source = ROOT / "compose" / "demo" / "models"
    wanted = {
        str(path.relative_to(source)) for path in source.rglob("*.p*") if "__pycache__" not in path.parts
    }

    assert wanted <= {str(path.relative_to(models)) for path in models.rglob("*")}
    assert (models / "pipeline" / "1").is_dir(), "Triton needs an ensemble's empty version folder"


def test_every_verb_of_the_wheel_has_help(unpacked: Path) -> None:
    """No verb needs a file of the checkout."""
    listed = _run(unpacked, "--help").stdout
    done = _python(
        unpacked,
        "from tritonwatch.usage import VERBS; sys.exit(sum(main([verb, '--help']) for verb in VERBS))",
    )

    assert 0 == done.returncode, done.stderr
    for verb in VERBS:
        assert verb in listed
        assert f"example: tritonwatch {verb}" in done.stdout


@pytest.fixture(scope="module")
def installed(unpacked: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into an empty environment, with what it requires and no extra; return the programs' folder.

    What it requires is linked from this environment, so that no registry is asked.
    """
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, with_pip=False, symlinks=True)
    (wheel,) = unpacked.parent.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True, timeout=120)
    (packages,) = folder.glob("lib/python*/site-packages")
    (metadata,) = unpacked.glob("tritonwatch-*.dist-info")
    for name in _required(importlib.metadata.Distribution.at(metadata).requires or []):
        distribution = importlib.metadata.distribution(name)
        for top in {
            file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")
        }:
            if not (packages / top).exists():
                (packages / top).symlink_to(Path(str(distribution.locate_file(top))))
    return folder / "bin"


def _required(requirements: list[str]) -> set[str]:
    """Return the names of all distributions that pip installs for these requirements."""
    found: set[str] = set()
    waiting = list(requirements)
    while waiting:
        requirement = Requirement(waiting.pop())
        needed = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if needed and requirement.name not in found:
            found.add(requirement.name)
            waiting += importlib.metadata.requires(requirement.name) or []
    return found


@pytest.mark.parametrize(
    "words", ["demo --once", "web --prometheus http://127.0.0.1:1", "bridge --listen 127.0.0.1:0", "status"]
)
def test_a_verb_that_needs_an_extra_names_it(installed: Path, words: str, tmp_path: Path) -> None:
    """One line, also where the verb imports the package only when it runs."""
    ended = subprocess.run(
        [installed / "tritonwatch", *words.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (2, "") == (ended.returncode, ended.stdout)
    assert re.fullmatch(
        rf"tritonwatch {words.split()[0]}: the package '\w+' is not installed; try: pip install 'tritonwatch\[all\]'\n",
        ended.stderr,
    )


@pytest.mark.real
def test_the_installed_sidecar_estimates_distributions(installed: Path, tmp_path: Path) -> None:
    """`pip install` without an extra is enough for the source `decomposed`, beside a real Triton with requests."""
    write_sleeper(tmp_path / "models", "m")
    (port,) = free_ports(1)
    with (
        live_triton(tmp_path / "models", tmp_path) as server,
        started(
            [
                *(installed / "tritonwatch", "exporter", "--listen", f"127.0.0.1:{port}", "--gpu", "none"),
                *("--triton", server.http_url, "--triton-metrics", server.metrics_url),
            ],
            f"http://127.0.0.1:{port}/-/ready",
            tmp_path / "exporter.log",
        ),
        Traffic(server, "m", 20),
    ):
        source = (
            'triton_model_distribution_source{model="m",version="1",signal="request",source="decomposed"} 1'
        )
        eventually(
            lambda: source in requests.get(f"http://127.0.0.1:{port}/metrics", timeout=5).text,
            "not decomposed",
        )
