"""Types of the fields that users write: ratios, durations, names and choices of names, valid once they exist."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterable
from functools import cache
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_core import (
    InitErrorDetails,
    PydanticCustomError,
    SchemaError,
    SchemaValidator,
    core_schema,
)

from triton_exporter.common.duration import parse_seconds
from triton_slo import problem_words

_MICROSECOND = 1e-6
_MIN_PERCENTAGE = 50
"""A target from this number on lacks only its percent sign; a smaller one, such as 1.2, is another mistake."""


def read_ratio(value: Any) -> float:
    """Read `99.5%`, `"0.995"` or `0.995`. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(
            f"must be a share, and is {problem_words.as_written(value)}; write for example 99.5%"
        )
    try:
        # float() reads more (digits of other scripts, `1_0`, `nan`), which in a target is a mistake.
        if isinstance(value, str) and not re.fullmatch(r"\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*%?\s*", value):
            raise ValueError
        if isinstance(value, str) and value.strip().endswith("%"):
            # Rounded to 12 digits, so that 99.9% is 0.999 and not 0.9990000000000001.
            return round(float(value.strip()[:-1]) / 100, 12)
        return float(value)
    except ValueError:
        raise ValueError(f"{str(value)[:40]!r} is not a share; write for example 99.5%") from None


def refuse(reasons: Iterable[str]) -> None:
    """Raise all reasons why a value is refused at once: a ValidationError. Without a reason, do nothing."""
    errors = [
        InitErrorDetails(type=PydanticCustomError("value_error", "{reason}", {"reason": reason}), input=None)
        for reason in reasons
    ]
    if errors:
        raise ValidationError.from_exception_data("", errors)


def error_budget(target: float) -> float:
    """Return the share of events that may fail: 1 - target, to 12 digits, so that it is 0.001 for 99.9 %."""
    return round(1 - target, 12)


def _read_target(value: Any) -> float:
    ratio = read_ratio(value)
    if 0 < ratio < 1:
        return ratio
    has_sign = isinstance(value, str) and value.strip().endswith("%")
    if not has_sign and 1 < ratio < 100:
        reason = "a target is a ratio below 1 (0.999) or a percentage (99.9%), and this is the number"
        fix = f"write {ratio:.10g}%" if ratio >= _MIN_PERCENTAGE else "write for example 99.9%"
        raise ValueError(f"{reason} {ratio:.10g}; {fix}")
    if math.isnan(ratio):
        reason = "this is not a number"
    elif ratio <= 0:
        reason = "0% promises nothing" if ratio == 0 else "this is below 0%"
    elif ratio == 1 or (ratio == 100 and not has_sign):
        reason = "100% leaves no budget to burn"
    else:
        reason = "this is above 100%"
    raise ValueError(f"a target must be between 0% and 100%, and {reason}; write for example 99.9%")


def valid_duration(value: Any) -> str:
    """Return a duration with its unit, as it is written. Raises ValueError on any other."""
    if not isinstance(value, str):
        raise ValueError(
            f"{problem_words.as_written(value)} is not a duration; write it with its unit, such as 100ms or 1h"
        )
    if parse_seconds(value) < 0.001:
        raise ValueError(f"{value} is shorter than 1ms, the shortest duration that Prometheus reads")
    return value


def _valid_threshold(value: Any) -> str:
    if not isinstance(value, str) or parse_seconds(value) >= 0.001:
        return valid_duration(value)
    if parse_seconds(value) < _MICROSECOND:
        raise ValueError(f"{value} is below 0.001ms, the smallest threshold: Triton counts microseconds")
    return value


_CHARACTER_CLASS = r"\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]"
_NOT_IN_PYTHON = (
    (r"\\z", r"leave out \z: the whole name is matched anyway"),
    (
        r"\\[pPQEC]|\\x\{",
        r"write \p, \Q and \x{...} as characters, such as [a-zé]: names are also read by Python, without them",
    ),
    (
        r"\[:\^?\w+:\]",
        "write [[:alpha:]] and its kind as [a-zA-Z]: names are also read by Python, without them",
    ),
    (
        r"(?<!^)\(\?[imsU-]+\)|\(\?\w*U",
        "write (?i) at the beginning, or (?i:...) around the part that it is for",
    ),
)
"""Patterns that Prometheus accepts and Python, which reads them first, does not, with what to write instead."""
_NOT_IN_PROMETHEUS = (
    (r"\(\?(?:[=!]|<[=!]|P=|P>|\()|\\[1-9]", "no look-around and no back-references"),
    (r"\(\?>|(?:[*+?]|\{\d*,?\d*\})\+", "no atomic groups (?>...) and no possessive a++"),
    (r"\\[ZuN]|\(\?#", r"no \Z, \u, \N{...} and no comments"),
    (r"\{\d*,?(?:\d{5,}|[2-9]\d{3}|1(?!000)\d{3})", "no repetition over 1000"),
    (r"\(\?[a-zA-Z-]*[aLux]", "no flags but i, m and s"),
)


_ASCII = {"w": "0-9A-Za-z_", "d": "0-9", "s": r"\t\n\f\r "}
"""What \\w, \\d and \\s stand for in RE2."""


@cache
def _linear(regex: str) -> SchemaValidator:
    """Return what matches whole names in linear time, as RE2 does: Python would try `(a+)+b` on a long name for years.

    Pydantic's engine (Rust's regex) reads the same, but its classes hold all of Unicode, and sets in sets. Raises
    SchemaError where the expression is too large for it.
    """

    def as_rust(found: re.Match[str]) -> str:
        text = found[0]
        if len(text) > 2:  # a class, and the characters in it
            return "[" + re.sub(r"\\.|[\[&~]|--", as_rust, text[1:])
        if not text[-1].isalnum():  # a character that means more to Rust
            return re.escape(text.removeprefix("\\"))
        if text in (r"\b", r"\B"):
            return f"(?-u:{text})"
        characters = _ASCII.get(text[1].lower())
        return f"[{'^' * text[1].isupper()}{characters}]" if characters else text

    pattern = re.sub(rf"\\.|{_CHARACTER_CLASS}|\{{(?!\d+(?:,\d*)?\}})", as_rust, regex)
    return SchemaValidator(core_schema.str_schema(pattern=f"^(?:{pattern})$"))


def _regex(value: str) -> str:
    bare = re.sub(r"\\[\\.+*?()|\[\]{}^$]", "_", value)
    outside = re.sub(_CHARACTER_CLASS, "_", bare)
    for pattern, fix in _NOT_IN_PYTHON:
        if re.search(pattern, bare if ":" in pattern else outside):
            raise ValueError(f"{problem_words.as_written(value)}: {fix}")
    for pattern, lacks in _NOT_IN_PROMETHEUS:
        if re.search(pattern, outside):
            raise ValueError(f"Prometheus (RE2) has {lacks}")
    counts = [int(most) for most in re.findall(r"\{(?:\d*,)?(\d+),?\}", outside)]
    if "){" in outside and math.prod(max(1, most) for most in counts) > 1000:
        raise ValueError("Prometheus (RE2) has no repetition over 1000, also where one is in another")
    try:
        with warnings.catch_warnings(action="ignore"):  # of sets in sets, which are none here
            re.compile(value)
        _linear(value)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except SchemaError:
        raise ValueError("too large or too nested to match names with; write a simpler one") from None
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}; write for example bert-.*") from None
    return value


def _listed(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def _label_name(value: str) -> str:
    if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", value) or value.startswith("__"):
        raise ValueError(f"{value!r} is not a label name (letters, digits and _, not starting with __)")
    return value


Target = Annotated[
    float,
    BeforeValidator(_read_target, json_schema_input_type=float | str),
]
Ratio = Annotated[float, BeforeValidator(read_ratio, json_schema_input_type=float | str)]
Duration = Annotated[str, BeforeValidator(valid_duration)]
Threshold = Annotated[str, BeforeValidator(_valid_threshold)]
Regex = Annotated[str, Field(max_length=2000), AfterValidator(_regex)]
LabelName = Annotated[str, AfterValidator(_label_name)]
Text = Annotated[str, Field(max_length=2000)]
Names = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=500)], ...],
    BeforeValidator(_listed, json_schema_input_type=str | list[str]),
]


class Value(BaseModel):
    """A frozen value that users write; a field that it does not have is a mistake."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Choice(Value):
    """Names chosen one by one, or by a regular expression (RE2, anchored at both ends); neither means all."""

    names: Names | None = None
    regex: Regex | None = None

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if self.names is not None and self.regex is not None:
            raise ValueError("choose by names or by regex, not both")
        if self.names == () or self.regex == "":
            raise ValueError("chooses nothing; write `all`, a list of names, or {regex: ...}")
        return self

    def includes(self, name: str) -> bool:
        """Return whether a name is among the chosen."""
        if self.names is not None:
            return name in self.names
        return self.regex is None or _linear(self.regex).isinstance_python(name)

    def __str__(self) -> str:
        return ", ".join(self.names) if self.names is not None else self.regex or "all"

    @property
    def everything(self) -> bool:
        """True if no name is left out."""
        return self.names is None and self.regex is None


def _choice(value: Any) -> Any:
    if value == "all":
        return {}
    if isinstance(value, dict) and value:
        return value
    if isinstance(value, str | list | tuple):
        return {"names": value}
    if isinstance(value, Choice):
        return value
    raise ValueError("write `all`, a list of names (numbers in quotes), or {regex: ...}")


class _RegexForm(Value):
    regex: str


Selection = Annotated[Choice, BeforeValidator(_choice, json_schema_input_type=str | list[str] | _RegexForm)]
"""Choice of models or versions: `all`, a list of names, or `{regex: ...}`."""
