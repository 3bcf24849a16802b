"""Write artifacts to disk as `tritonwatch generate` does, and find a folder in memory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from triton_slo.artifact import Artifact

IN_MEMORY = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path(tempfile.gettempdir())
"""A folder in memory where the machine has one."""


def write(made: Iterable[Artifact], directory: Path) -> None:
    """Write each artifact to `<directory>/<part>/<name>`."""
    for artifact in made:
        path = directory / artifact.part / artifact.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(artifact.text)
