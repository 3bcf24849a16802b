"""Find the real Prometheus, Alertmanager and vmalert: the one on PATH and the newer one of .cache/next."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from support.thorough import THOROUGH

_Case = TypeVar("_Case")

ROOT = Path(__file__).resolve().parents[2]
NEXT = Path(os.environ.get("TRITONWATCH_NEXT_TOOLS", ROOT / ".cache" / "next")) / "usr" / "bin"
"""Newer binaries, fetched by tests/support/fetch-next-tools.sh; absent where there is no apt."""


def versions_of(*names: str) -> list[Path]:
    """Every version of a tool that is here, the one on PATH first. `names` are alternative binary names."""
    on_path = next((path for name in names if (path := shutil.which(name))), None)
    newer = next((NEXT / name for name in names if (NEXT / name).exists()), None)
    return [Path(path) for path in (on_path, newer) if path is not None]


def promtools() -> list[Path]:
    """Every promtool there is."""
    return versions_of("promtool")


def shared_out(cases: Sequence[_Case]) -> Mapping[Path, Sequence[_Case]]:
    """Deal the cases out to the promtools in turn; with `TRITONWATCH_THOROUGH=1` each gets all of them."""
    tools = promtools()
    return {tool: cases if THOROUGH else cases[number :: len(tools)] for number, tool in enumerate(tools)}


def newest(versions: Sequence[_Case]) -> Sequence[_Case]:
    """Return the newest alone, for what does not depend on the version; with `TRITONWATCH_THOROUGH=1` all."""
    return versions if THOROUGH else versions[-1:]


def prometheuses() -> list[Path]:
    """Every Prometheus server there is."""
    return versions_of("prometheus")


def alertmanagers() -> list[Path]:
    """Every Alertmanager there is; Debian calls the binary prometheus-alertmanager."""
    return versions_of("alertmanager", "prometheus-alertmanager")


def amtools() -> list[Path]:
    """Every amtool there is."""
    return versions_of("amtool")


def vmalert() -> Path:
    """Return the vmalert binary; skip the test where it could not be fetched."""
    versions = versions_of("vmalert")
    if not versions:
        pytest.skip("vmalert is not here; `make tools-next` fetches it where apt can")
    return versions[0]


def victoria_metrics() -> Path:
    """Return the VictoriaMetrics server; skip the test where it could not be fetched."""
    versions = versions_of("victoria-metrics")
    if not versions:
        pytest.skip("victoria-metrics is not here; `make tools-next` fetches it where apt can")
    return versions[0]
