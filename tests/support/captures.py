"""Recorded bodies kept beside the repository; a test that needs them skips where they are absent."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from support.tools import ROOT

CAPTURES = ROOT.parent / "shared" / "captures"


def bodies(folder: str, pattern: str) -> list[tuple[str, bytes]]:
    """Name and content of each capture that matches; skips the test when there is none."""
    found = [(path.name, _read(path)) for path in sorted((CAPTURES / folder).glob(pattern))]
    if not found:
        pytest.skip("no captures beside this checkout (../shared/captures)")
    return found


def _read(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
