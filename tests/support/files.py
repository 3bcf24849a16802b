"""Artifacts on disk, as `tritonwatch generate` lays them out."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from triton_slo.artifact import Artifact


def write(made: Iterable[Artifact], directory: Path) -> None:
    """Write each artifact to `<directory>/<part>/<name>`."""
    for artifact in made:
        path = directory / artifact.part / artifact.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(artifact.text)
