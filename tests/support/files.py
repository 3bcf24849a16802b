"""Artifacts on disk, as `tritonwatch generate` lays them out."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from triton_slo.artifact import Artifact


def write(made: Iterable[Artifact], directory: Path) -> None:
    """Write each artifact to `<directory>/<part>/<name>`."""
    for one in made:
        path = directory / one.part / one.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(one.text)
