"""A clock that tests set: for seconds that pass, or processor time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Clock:
    """Returns `now`, which a test changes."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now
