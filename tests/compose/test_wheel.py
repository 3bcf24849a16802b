"""Test the wheel alone: it contains the models and objectives and runs without the checkout."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from support.tools import ROOT


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
    # Our own path entries of the editable install must not help: the wheel's folder stands first and alone.
    code = (
        "import sys; "
        "ours = ('/exporters', '/slo', '/alerts', '/dashboards', '/compose'); "
        f"sys.path = [{str(unpacked)!r}, *(path for path in sys.path if not path.endswith(ours))]; "
        "import tritonwatch; "
        f"assert tritonwatch.__file__.startswith({str(unpacked)!r}), tritonwatch.__file__; "
        "from tritonwatch.cli import main; sys.exit(main(sys.argv[1:]))"
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
    for verb in ("demo", "exporter", "generate", "status", "bridge"):
        assert verb in listed
        done = _run(unpacked, verb, "--help")
        assert 0 == done.returncode, done.stderr
        assert "example:" in done.stdout
