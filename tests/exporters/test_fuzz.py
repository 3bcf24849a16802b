"""A short run of tests/fuzz/parsers.py: real bodies, damaged at random, break no promise."""

from __future__ import annotations

import pytest

from fuzz.parsers import CAPTURES, TARGETS, by_mutation


@pytest.mark.parametrize("target", TARGETS)
def test_damaged_bodies(target: str) -> None:
    """Recorded bodies with bytes flipped, cut, doubled and swapped are read or refused as promised."""
    if target == "exposition" and not CAPTURES.is_dir():
        pytest.skip("no captures beside this checkout (../shared/captures)")
    assert by_mutation(target, seconds=1.0) > 20
