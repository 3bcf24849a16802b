"""How one probe ended."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outcome:
    """One of the catalogue's RESULTS, the duration, and Triton's text unless it worked."""

    result: str
    seconds: float
    text: str = ""
