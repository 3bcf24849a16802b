"""Convert objectives that the tool wrote into a file, and read them again without a mistake."""

from __future__ import annotations

from pathlib import Path

from triton_slo.objective.model import Objective
from triton_slo.objective.reading import read
from tritonwatch.cli import main

SLOTH = """\
version: prometheus/v1
service: checkout
slos:
  - name: orders
    objective: 99.9
    description: Orders are taken.
    sli:
      events:
        error_query: sum(rate(orders_total{outcome="failed"}[{{.window}}]))
        total_query: sum(rate(orders_total[{{ .window }}]))
"""
"""A document all of which can be expressed."""


def convert(source: str, folder: Path, text: str, *options: str) -> int:
    """Exit code of a conversion from another format."""
    (folder / "in.yaml").write_text(text, encoding="utf-8")
    out = _converted(folder)
    return main(["convert", "--from", source, str(folder / "in.yaml"), "--out", str(out), *options])


def converted(folder: Path) -> dict[str, Objective]:
    """Return the objectives that `convert` wrote, by name."""
    return objectives_in(_converted(folder))


def objectives_in(path: Path) -> dict[str, Objective]:
    """Return the objectives of a file by name, after a check without findings."""
    reading = read([(path.name, path.read_text(encoding="utf-8"))])
    assert () == reading.problems
    return {objective.name: objective for objective in reading.objectives}


def _converted(folder: Path) -> Path:
    return folder / "objectives" / "converted.yaml"
