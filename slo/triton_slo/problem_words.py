"""Words of a `Problem`: what pydantic or the YAML parser found wrong, in terms of YAML, without Python types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from typing import Any

import yaml

from triton_exporter.common.problem import nearest
from triton_exporter.common.yaml_files import YAML_FAULTS

_MAX_VALUE = 40
"""Characters of a value that a message repeats."""
_MIN_SIMILARITY = 0.75
"""Fields are short words, of which different ones have a similarity of up to 0.7: `zone` and `owner`."""
_FORMS = {"timestamp": "a date", "int": "a whole number", "float": "a number", "bool": "a yes or no"}


def reason(detail: Mapping[str, Any]) -> str:
    """Return the reason of one finding of pydantic's `errors()`, in words for people."""
    explain = _REASONS.get(detail["type"])
    if explain is not None:
        return explain(detail.get("input"), detail.get("ctx", {}))
    text = str(detail["msg"]).removeprefix("Value error, ")
    return text.replace("Input should be", "must be").replace("String should", "must")


def without_consequences(details: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Leave out findings that only follow from another one: a list whose one item is wrong is not empty as well."""
    places = [tuple(detail["loc"]) for detail in details]
    return [
        detail
        for detail, place in zip(details, places, strict=True)
        if detail["type"] != "too_short"
        or not any(len(other) > len(place) and other[: len(place)] == place for other in places)
    ]


def as_written(value: Any) -> str:
    """Return the value as written, with its kind where that is what is wrong."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {_cut(_digits(value))}"
        case str():
            return repr(_cut(value))
        case date():
            return f"the date {value.isoformat()}"
        case dict():
            return "a mapping"
        case list() | tuple() | set():
            return "a list"
        case bytes():
            return "binary data"
    return "something else"


def count(number: int, noun: str) -> str:
    """Return a number of things: `1 mistake`, `2 mistakes`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def yaml_reason(error: Exception) -> str:
    """Return the reason of a YAML parser, without its own name for things."""
    text = getattr(error, "problem", None) or str(error).splitlines()[0]
    if "determine a constructor for the tag" in text:
        return f"the tag !!{text.rstrip(chr(39)).rpartition('yaml.org,2002:')[2]} is not allowed here"
    if "unhashable" in text:
        return "a key must be a single word, not a list or a mapping"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return str(text).replace("unacceptable character #x0000: ", "")


def unreadable(node: yaml.Node) -> tuple[yaml.Node, str]:
    """Return the value below a node that YAML takes for a date or a number, and that is none; and why."""
    loader = yaml.SafeLoader("")
    try:
        for scalar in _scalars(node):
            try:
                loader.construct_object(scalar)
            except YAML_FAULTS:
                kind = scalar.tag.rpartition(":")[2]
                form = _FORMS.get(kind, kind)
                return scalar, f"{_cut(scalar.value)!r} looks like {form} and cannot be read as one"
    finally:
        loader.dispose()
    return node, "contains a value that cannot be read"


def _scalars(node: yaml.Node) -> list[yaml.ScalarNode]:
    scalars: list[yaml.ScalarNode] = []
    pending, seen = [node], set()
    while pending:
        current = pending.pop(0)
        if id(current) in seen:
            continue
        seen.add(id(current))
        if isinstance(current, yaml.ScalarNode):
            scalars.append(current)
        elif isinstance(current, yaml.SequenceNode):
            pending += current.value
        elif isinstance(current, yaml.MappingNode):
            pending += [part for pair in current.value for part in pair]
    return scalars


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_VALUE else f"{text[: _MAX_VALUE - 3]}..."


def _digits(value: float) -> str:
    try:
        return str(value)
    except ValueError:  # more digits than Python turns into text
        return "with thousands of digits"


_Explain = Callable[[Any, Mapping[str, Any]], str]


def _should(what: str) -> _Explain:
    return lambda value, _: f"must be {what}, and is {as_written(value)}"


def _than(sign: str, limit: str) -> _Explain:
    return lambda value, context: f"must be {sign} {context[limit]:g}, and is {as_written(value)}"


def _one_of(value: Any, context: Mapping[str, Any]) -> str:
    return f"{as_written(value)} is none of {', '.join(expected_words(context))}"


def expected_words(context: Mapping[str, Any]) -> list[str]:
    """Return the words that pydantic lists in the context of a `literal_error`."""
    return str(context["expected"]).replace(" or ", ", ").replace("'", "").split(", ")


_MAPPING, _LIST, _TEXT = _should("a mapping of fields"), _should("a list"), _should("text")
_WHOLE, _NUMBER = _should("a whole number"), _should("a number")
_REASONS: Mapping[str, _Explain] = {
    "extra_forbidden": lambda *_: "unknown field",
    "missing": lambda *_: "required field is missing",
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
    "dict_type": _MAPPING,
    "tuple_type": _LIST,
    "list_type": _LIST,
    "string_type": _TEXT,
    "bool_type": _should("true or false"),
    "bool_parsing": _should("true or false"),
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_parsing_size": _WHOLE,
    "int_from_float": _WHOLE,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "finite_number": _should("a finite number"),
    "greater_than": _than("above", "gt"),
    "greater_than_equal": _than("at least", "ge"),
    "less_than": _than("under", "lt"),
    "less_than_equal": _than("at most", "le"),
    "literal_error": _one_of,
    "json_invalid": lambda *_: "is not JSON",
    "timezone_aware": _should("a moment with its time zone, such as 2026-05-01T09:30:00Z"),
    "datetime_from_date_parsing": _should("a moment such as 2026-05-01T09:30:00Z"),
    "datetime_parsing": _should("a moment such as 2026-05-01T09:30:00Z"),
    "datetime_type": _should("a moment such as 2026-05-01T09:30:00Z"),
    "union_tag_invalid": lambda value, _: f"{as_written(value.get('kind'))} is not a kind of indicator",
    "too_short": lambda *_: "is empty, and must hold at least one",
    "string_too_short": lambda *_: "is empty",
    "string_too_long": lambda _, context: f"is longer than {context['max_length']} characters",
    "string_pattern_mismatch": lambda value, _: f"{as_written(value)} is not written as it must be",
    "string_unicode": lambda *_: "contains a character that is half of one (a surrogate)",
}


def nearest_as_fix(word: str, known: Iterable[str]) -> str:
    """Return the fix of a problem: a question with the nearest known word, or nothing where none is near."""
    words = list(known)
    near = nearest(word, words, _MIN_SIMILARITY) or nearest(word.lower(), words, _MIN_SIMILARITY)
    return f"did you mean {near[0]!r}?" if near else ""


def with_fix(reason: str, fix: str) -> tuple[str, str]:
    """Return the reason and the fix; without a fix, the part of the reason after `write`."""
    before, separator, after = reason.partition("; write ")
    return (before, f"write {after}") if separator and not fix else (reason, fix)
