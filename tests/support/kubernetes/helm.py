"""Run Helm where it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.tools import ROOT

CHART = ROOT / "compose" / "helm" / "tritonwatch"

Objects = Mapping[tuple[str, str], Any]


def find_helm() -> str:
    """Return the path of helm. Skip the test where helm is not installed."""
    folders = (os.environ["PATH"], str(Path.home() / "go" / "bin"), str(ROOT / ".cache" / "kubernetes"))
    path = os.pathsep.join(folders)
    binary = shutil.which("helm", path=path)
    if binary is None:
        pytest.skip(
            "helm is not installed; run `sh tests/support/fetch-kubernetes-tools.sh .cache/kubernetes` (needs Go)"
        )
    return binary


def helm(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run helm. Skip the test where helm is not installed."""
    command = [find_helm(), *(str(word) for word in arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def template(*arguments: str, chart: Path = CHART) -> str:
    """Return what `helm template` writes for the namespace `triton`."""
    done = helm("template", "tritonwatch", chart, "--namespace=triton", *arguments)
    assert 0 == done.returncode, done.stderr
    return done.stdout


def objects(text: str) -> Objects:
    """Return Kubernetes objects by kind and name."""
    documents = (document for document in yaml.load_all(text, yaml.CSafeLoader) if document)
    return {(document["kind"], document["metadata"]["name"]): document for document in documents}
