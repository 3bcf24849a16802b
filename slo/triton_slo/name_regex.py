"""Match names with a regular expression of Prometheus (RE2), which ends in a bounded time for every expression.

Python's `re` tries one way through the text after the other, and for some expressions there are more ways than
time. Here every part of the expression makes, out of the set of positions at which it may begin, the set of
positions at which it can end.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

with warnings.catch_warnings(action="ignore"):
    from re import _parser  # type: ignore[attr-defined, unused-ignore]

Token = tuple[Any, Any]
Positions = frozenset[int]
_MAX_REPETITIONS = 1000
"""Of one part, also where repetitions are nested."""
_MAX_DEPTH = 100
_TOO_DEEP = f"nested too deeply: more than {_MAX_DEPTH} levels"
_IS_IN: Mapping[str, Callable[[str], bool]] = {
    "DIGIT": lambda character: "0" <= character <= "9",
    "SPACE": lambda character: character in " \t\n\r\f\v",
    "WORD": lambda character: character.isascii() and (character.isalnum() or character == "_"),
}


def matches(regex: str, name: str) -> bool:
    """Return whether a valid expression matches the whole name."""
    tokens, flags = _parsed(regex)
    return len(name) in _Match(name).ends(tokens, frozenset({0}), flags)


def check(regex: str) -> None:
    """Raise ValueError where an expression is not valid, nests too deeply, or repeats more than RE2 does.

    Raises re.error as Python's own `re` does.
    """
    try:
        tokens, _ = _parsed(regex)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    _check(tokens, _MAX_REPETITIONS, _MAX_DEPTH)


def _check(tokens: Iterable[Token], repetitions: int, depth: int) -> None:
    if not depth:
        raise ValueError(_TOO_DEEP)
    for operator, argument in tokens:
        match str(operator):
            case "SUBPATTERN":
                _check(argument[-1], repetitions, depth - 1)
            case "BRANCH":
                for branch in argument[1]:
                    _check(branch, repetitions, depth - 1)
            case "MAX_REPEAT" | "MIN_REPEAT":
                least, most, inner = argument
                times = int(least) if most == _parser.MAXREPEAT else int(most)
                if times > repetitions:
                    raise ValueError(f"Prometheus (RE2) has no repetition over {_MAX_REPETITIONS}")
                _check(inner, repetitions // max(1, times), depth - 1)


@lru_cache(maxsize=1024)
def _parsed(regex: str) -> tuple[Sequence[Token], int]:
    with warnings.catch_warnings(action="ignore"):
        pattern = _parser.parse(regex)
    return pattern, pattern.state.flags


class _Match:
    def __init__(self, text: str) -> None:
        self.text = text

    def ends(self, tokens: Iterable[Token], starts: Positions, flags: int) -> Positions:
        """Return where matches of a sequence can end that begin at any of some positions."""
        for token in tokens:
            if not starts:
                break
            starts = self._ends_of(token, starts, flags)
        return starts

    def _ends_of(self, token: Token, starts: Positions, flags: int) -> Positions:
        operator, argument = str(token[0]), token[1]
        match operator:
            case "SUBPATTERN":
                _, added, removed, inner = argument
                return self.ends(inner, starts, (flags | added) & ~removed)
            case "BRANCH":
                return frozenset().union(*(self.ends(branch, starts, flags) for branch in argument[1]))
            case "MAX_REPEAT" | "MIN_REPEAT":
                least, most, inner = argument
                return self._repeated(inner, int(least), int(most), starts, flags)
            case "AT":
                return frozenset(at for at in starts if self._is_at(str(argument), at, flags))
        return frozenset(
            at + 1 for at in starts if at < len(self.text) and _takes(token, self.text[at], flags)
        )

    def _repeated(
        self, inner: Sequence[Token], least: int, most: int, starts: Positions, flags: int
    ) -> Positions:
        for _ in range(least):
            before, starts = starts, self.ends(inner, starts, flags)
            if starts == before:  # nothing changes from here on
                break
        reached = fresh = starts
        for _ in range(most - least):
            fresh = self.ends(inner, fresh, flags) - reached
            if not fresh:
                break
            reached |= fresh
        return reached

    def _is_at(self, place: str, at: int, flags: int) -> bool:
        before, after = self.text[at - 1 : at] if at else "", self.text[at : at + 1]
        lines = bool(flags & re.MULTILINE)
        match place:
            case "AT_BEGINNING" | "AT_BEGINNING_STRING":
                return not at or (lines and place == "AT_BEGINNING" and before == "\n")
            case "AT_END" | "AT_END_STRING":
                return not after or (lines and place == "AT_END" and after == "\n")
        edge = any(map(_IS_IN["WORD"], before)) != any(map(_IS_IN["WORD"], after))
        return edge == (place == "AT_BOUNDARY")


def _takes(token: Token, character: str, flags: int) -> bool:
    """Return whether a part that stands for one character stands for this one."""
    operator, argument = str(token[0]), token[1]
    forms = {character, character.lower(), character.upper()} if flags & re.IGNORECASE else {character}
    match operator:
        case "LITERAL":
            return chr(argument) in forms
        case "NOT_LITERAL":
            return chr(argument) not in forms
        case "ANY":
            return character != "\n" or bool(flags & re.DOTALL)
        case "RANGE":
            return any(chr(argument[0]) <= form <= chr(argument[1]) for form in forms)
        case "CATEGORY":
            _, _, kind = str(argument).partition("CATEGORY_")
            return _IS_IN[kind.removeprefix("NOT_")](character) != kind.startswith("NOT_")
    assert operator == "IN", token
    negated = str(argument[0][0]) == "NEGATE"
    return any(_takes(item, character, flags) for item in argument[negated:]) != negated
