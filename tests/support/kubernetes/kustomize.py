"""Build compose/kubernetes and render it as kustomize would: the objects a cluster gets."""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from support.tools import ROOT


@functools.cache
def built() -> Path:
    """Return a copy of compose/kubernetes in which `make generate-kubernetes` wrote the rules and dashboards."""
    scratch = tempfile.TemporaryDirectory(prefix="tritonwatch-kubernetes-")
    atexit.register(scratch.cleanup)
    folder = Path(scratch.name) / "kubernetes"
    shutil.copytree(
        ROOT / "compose" / "kubernetes", folder, ignore=shutil.ignore_patterns("rules", "dashboards")
    )
    # --old-file: what a test runs in is installed, also where it is not make's .venv.
    command = ["make", "--old-file=.venv/.installed", "generate-kubernetes", f"KUBERNETES={folder}"]
    done = subprocess.run(
        [*command, f"BIN={Path(sys.executable).parent}"], cwd=ROOT, capture_output=True, text=True
    )
    assert 0 == done.returncode, done.stdout + done.stderr
    return folder


@functools.cache
def kustomized(folder: str) -> str:
    """Return the rendering of a folder. Skip the test where kubectl is not installed."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed here")
    done = subprocess.run([kubectl, "kustomize", built() / folder], capture_output=True, text=True)
    assert 0 == done.returncode, done.stderr
    return done.stdout
