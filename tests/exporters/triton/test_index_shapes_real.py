"""Test the documented shapes of Triton's index against a real Triton."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporters.index_shapes import HEAD, SHAPES, rows
from support.tools import ROOT


@pytest.mark.real
def test_the_page_of_the_exporter_lists_the_shapes_of_a_real_index(tmp_path: Path) -> None:
    """Index row, ready endpoint and /state of each shape, alone and with a list of models and the log."""
    page = (ROOT / "docs" / "exporter.md").read_text()
    documented = page.partition(HEAD)[2].partition("\n\n")[0].splitlines()
    lines = [f"| {' | '.join(row)} |" for row in rows(tmp_path)]

    assert len(SHAPES) + 4 == len(lines)
    assert documented == lines
