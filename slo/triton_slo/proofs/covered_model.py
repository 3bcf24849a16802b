"""Find a model that an objective covers: its proofs need one."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from triton_slo.fields import Choice
from triton_slo.objective.model import Objective

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from re import _parser  # type: ignore[attr-defined, unused-ignore]


def covered_model(objective: Objective) -> tuple[str, str] | None:
    """Return a model version that the objective covers, with the tightest target; None if none is found."""
    models = [
        name for choice in _choices(objective, "models") for name in _example_names(choice, "some-model")
    ]
    versions = [name for choice in _choices(objective, "versions") for name in _example_names(choice, "1")]
    covered = [
        (-resolved[0], index, model, version)
        for index, (model, version) in enumerate((m, v) for m in models for v in versions)
        if (resolved := objective.resolve(model, version)) is not None
    ]
    return min(covered)[2:] if covered else None


def _choices(objective: Objective, of: str) -> Iterator[Choice]:
    yield getattr(objective, of)
    for override in objective.overrides[:50]:
        yield getattr(override, of)


def _example_names(choice: Choice, default: str) -> Iterator[str]:
    if choice.names is not None:
        yield from choice.names[:5]
    elif choice.regex is None:
        yield default
    else:
        sample = "".join(_matching_text(_parser.parse(choice.regex)))
        if re.fullmatch(choice.regex, sample) and sample:
            yield sample


def _matching_text(tokens: Sequence[tuple[Any, Any]]) -> Iterator[str]:
    """Yield the parts of one text that most expressions match; the caller checks."""
    for operator, argument in tokens:
        match str(operator):
            case "LITERAL":
                yield chr(argument)
            case "NOT_LITERAL" | "ANY":
                yield "x" if argument != ord("x") else "y"
            case "IN":
                yield _member(argument)
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                yield "".join(_matching_text(argument[2])) * max(argument[0], min(1, argument[1]))
            case "SUBPATTERN":
                yield from _matching_text(argument[-1])
            case "BRANCH":
                yield from _matching_text(argument[1][0])
            case _:
                pass


def _member(items: Sequence[tuple[Any, Any]]) -> str:
    spelled = [(str(operator), argument) for operator, argument in items]
    if spelled[0][0] == "NEGATE":
        refused = {argument for operator, argument in spelled if operator == "LITERAL"}
        return next(character for character in "xyz019-" if ord(character) not in refused)
    operator, argument = spelled[0]
    if operator == "LITERAL":
        return chr(argument)
    if operator == "RANGE":
        return chr(argument[0])
    return {"CATEGORY_DIGIT": "1", "CATEGORY_SPACE": " "}.get(str(argument), "x")
