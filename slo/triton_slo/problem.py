"""A mistake in a user's file is a value with place, reason and fix; all of them are printed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from triton_exporter.printable import without_secrets


def count(number: int, noun: str) -> str:
    """`1 mistake`, `2 mistakes`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def by_line(problems: Sequence[Problem]) -> list[Problem]:
    """Return the problems of each file together, in the order of its lines."""
    places = [_split(one.place) for one in problems]
    order = {file: number for number, (file, _) in enumerate(reversed(places))}
    pairs = sorted(zip(places, problems, strict=True), key=lambda pair: (-order[pair[0][0]], pair[0][1]))
    return [one for _, one in pairs]


def _split(place: str) -> tuple[str, int]:
    file, _, line = place.rpartition(":")
    return (file, int(line)) if line.isdecimal() and file else (place, 0)


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: where (`file:line` or `file: field`), what is wrong, how to fix it."""

    place: str
    reason: str
    fix: str = ""

    def __str__(self) -> str:
        # A token given instead of the file that holds it is part of the place.
        place = without_secrets(self.place)
        return f"{place}: {self.reason}" + (f" (fix: {self.fix})" if self.fix else "")
