"""The known words that a mistaken one may stand for."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(word: str, known: Iterable[str], min_similarity: float = 0.6) -> list[str]:
    """Return at most two known words near this one (1: the same word), the nearest first."""
    return get_close_matches(word, sorted(known), n=2, cutoff=min_similarity)
