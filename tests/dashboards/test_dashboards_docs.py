"""Test docs/dashboards.md against the code."""

from __future__ import annotations

import re
from pathlib import Path

from triton_dashboards.generate import dashboards
from triton_slo.artifact import Options

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "dashboards.md").read_text(encoding="utf-8")


def test_every_dashboard_is_listed_by_its_address() -> None:
    """A reader finds each dashboard, and none that is gone."""
    assert {dashboard.uid for dashboard in dashboards(Options())} == set(
        re.findall(r"`/d/(triton-(?!m-)[\w-]+)`", PAGE)
    )


def test_every_picture_is_there() -> None:
    """Every picture that the page links is in the repository."""
    assert [] == [name for name in re.findall(r"\((pictures/[\w.-]+)\)", PAGE) if not (DOCS / name).exists()]
