"""Run tests/fuzz/parsers.py briefly: randomly damaged bodies break no property."""

from __future__ import annotations

import pytest

from fuzz.parsers import by_mutation
from fuzz.promises import TARGETS


@pytest.mark.parametrize("target", TARGETS)
def test_damaged_bodies_are_read_or_refused(target: str) -> None:
    """Bodies with bytes flipped, cut, doubled and swapped are read or refused as promised."""
    assert by_mutation(target, seconds=0.1, min_inputs=21) > 20
