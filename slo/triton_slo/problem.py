"""A mistake in a user's file is a value with place, reason and fix; all of them are printed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: where (`file:line` or `file: field`), what is wrong, how to mend it."""

    place: str
    reason: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}" + (f" (fix: {self.fix})" if self.fix else "")
