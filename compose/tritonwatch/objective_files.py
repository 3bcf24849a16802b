"""Objectives from a folder, for the verbs that need them."""

from __future__ import annotations

import sys
from pathlib import Path

from triton_slo.objective.model import Objective
from triton_slo.objective.reading import read
from tritonwatch.arguments import objective_texts


def load(folder: Path, verb: str) -> tuple[Objective, ...] | int:
    """Read all objectives of a folder; with mistakes, print them all and give an exit code instead."""
    texts = objective_texts(folder, verb)
    if texts is None:
        return 2
    reading = read(texts)
    for problem in reading.problems:
        print(f"tritonwatch {verb}: {problem}", file=sys.stderr)
    return 1 if reading.problems else reading.objectives
