"""A mistake of a user is a value with place, reason and fix; all of them are printed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from triton_exporter.common.printable import without_secrets


def nearest(word: str, known: Iterable[str], min_similarity: float = 0.6) -> list[str]:
    """Return at most two known words near this one (1: the same word), the nearest first."""
    return get_close_matches(word, sorted(known), n=2, cutoff=min_similarity)


def by_line(problems: Sequence[Problem]) -> list[Problem]:
    """Return the problems of each file together, in the order of its lines."""
    places = [_file_and_line(problem.place) for problem in problems]
    order = {file: number for number, (file, _) in enumerate(reversed(places))}
    pairs = sorted(zip(places, problems, strict=True), key=lambda pair: (-order[pair[0][0]], pair[0][1]))
    return [problem for _, problem in pairs]


def _file_and_line(place: str) -> tuple[str, int]:
    file, _, line = place.rpartition(":")
    return (file, int(line)) if line.isdecimal() and file else (place, 0)


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: where (`file:line`, `--option`, `$VARIABLE` or a server), what is wrong, how to fix it."""

    place: str
    reason: str
    fix: str = ""
    meaning: str = ""
    """Explanation of the reason, where several problems share it."""

    def __str__(self) -> str:
        meaning = f": {self.meaning}" if self.meaning else ""
        return self.short() + meaning + (f" (fix: {self.fix})" if self.fix else "")

    def short(self) -> str:
        """Return the place and the reason."""
        # A token may have been given instead of its file.
        return without_secrets(f"{self.place}: {self.reason}" if self.place else self.reason)


def explained_once(problems: Iterable[Problem]) -> Iterator[str]:
    """Yield a line for each meaning and fix: the problems that share them, and then these once."""
    alike: dict[tuple[str, str], list[Problem]] = {}
    for problem in problems:
        alike.setdefault((problem.meaning, problem.fix), []).append(problem)
    for (meaning, fix), (*others, last) in alike.items():
        if meaning or fix:
            yield "; ".join([*(problem.short() for problem in others), str(last)])
        else:
            yield from map(str, (*others, last))


class ProblemsError(ValueError):
    """Why a command cannot go on, all of it; `code` is its exit code: 2 where an option or variable is wrong."""

    def __init__(self, *problems: Problem, code: int | None = None) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems
        wrong_usage = any(problem.place.startswith(("--", "$")) for problem in problems)
        self.code = code or (2 if wrong_usage else 1)
