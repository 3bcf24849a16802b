"""Choose the folder of the stores of these tests."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.files import IN_MEMORY


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In memory where there is such a place: a store commits often, and each commit waits for the disk."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        yield Path(folder)
