"""The known words that a mistaken one may stand for."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(word: str, known: Iterable[str]) -> list[str]:
    """Return at most two known words near this one, the nearest first."""
    return get_close_matches(word, sorted(known), n=2)
