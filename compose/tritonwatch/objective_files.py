"""Objectives from a folder or a file, for the verbs that need them."""

from __future__ import annotations

from pathlib import Path

from triton_slo.problem import Problem
from triton_slo.reading import Reading, read


def load(path: Path) -> Reading:
    """Read all objectives (*.yaml, *.yml) of a folder, or of one file; what cannot be read is a problem."""
    found = (
        sorted(one for one in path.iterdir() if one.suffix in (".yaml", ".yml")) if path.is_dir() else [path]
    )
    texts, problems = [], []
    for file in found:
        try:
            texts.append((str(file), file.read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError) as error:
            problems.append(Problem(str(file), getattr(error, "strerror", None) or "is not UTF-8 text"))
    if not found:
        problems.append(Problem(str(path), "holds no objectives", "name a folder with *.yaml files"))
    reading = read(texts)
    return Reading(reading.objectives, reading.places, (*problems, *reading.problems))
