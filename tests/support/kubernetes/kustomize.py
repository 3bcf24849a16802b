"""Render compose/kubernetes as kustomize would: the objects a cluster gets, with the sidecar's patch."""

from __future__ import annotations

import functools
import shutil
import subprocess

import pytest

from support.tools import ROOT

KUBERNETES = ROOT / "compose" / "kubernetes"


@functools.cache
def kustomized(folder: str) -> str:
    """Return the rendering of a folder. Skip the test where kubectl is not installed."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed here")
    done = subprocess.run([kubectl, "kustomize", KUBERNETES / folder], capture_output=True, text=True)
    assert 0 == done.returncode, done.stderr
    return done.stdout
