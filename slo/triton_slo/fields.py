"""Types of the fields that users write: ratios, durations, names and choices of names, valid once they exist."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from triton_exporter.duration import parse_seconds
from triton_slo import mistake


def ratio(value: Any) -> float:
    """Read `99.5%`, `"0.995"` or `0.995`."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("a ratio is written 99.5% or 0.995")
    try:
        # What float() reads besides (other scripts' digits, `1_0`, `nan`) is a slip, or another tool's.
        if isinstance(value, str) and not re.fullmatch(r"\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*%?\s*", value):
            raise ValueError
        if isinstance(value, str) and value.strip().endswith("%"):
            # Through a rounding to 12 digits, so that 99.9% is 0.999 and not 0.9990000000000001.
            return round(float(value.strip()[:-1]) / 100, 12)
        return float(value)
    except ValueError:
        raise ValueError(f"{str(value)[:40]!r} is not a ratio; write 99.5% or 0.995") from None


def _target(value: float) -> float:
    if not (math.isfinite(value) and 0 < value < 1):
        raise ValueError("a target must be between 0% and 100%, both excluded: 100% leaves no budget to burn")
    return value


def duration(value: Any) -> str:
    """Return a duration with its unit, as it is written."""
    if not isinstance(value, str):
        raise ValueError(
            f"{mistake.shown(value)} is not a duration; write it with its unit, such as 100ms or 1h"
        )
    parse_seconds(value)
    return value


def _regex(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    # Go's RE2 knows none of these; Prometheus would refuse the file.
    if re.search(r"\(\?(?:[=!]|<[=!]|P=|P>|\()|\\[1-9]", value):
        raise ValueError("Prometheus (RE2) has no look-around and no back-references")
    unescaped = re.sub(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", "_", value, flags=re.DOTALL)
    if re.search(r"\(\?>|(?:[*+?]|\{\d*,?\d*\})\+", unescaped):
        raise ValueError("Prometheus (RE2) has no atomic groups (?>...) and no possessive a++")
    return value


def _listed(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def _label_name(value: str) -> str:
    if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", value) or value.startswith("__"):
        raise ValueError(f"{value!r} is not a label name (letters, digits and _, not starting with __)")
    return value


Target = Annotated[float, BeforeValidator(ratio, json_schema_input_type=float | str), AfterValidator(_target)]
Ratio = Annotated[float, BeforeValidator(ratio, json_schema_input_type=float | str)]
Duration = Annotated[str, BeforeValidator(duration)]
Regex = Annotated[str, AfterValidator(_regex)]
LabelName = Annotated[str, AfterValidator(_label_name)]
Text = Annotated[str, Field(max_length=2000)]
Names = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=500)], ...],
    BeforeValidator(_listed, json_schema_input_type=str | list[str]),
]


class Value(BaseModel):
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
        return self.regex is None or re.fullmatch(self.regex, name) is not None

    def __str__(self) -> str:
        return ", ".join(self.names) if self.names is not None else self.regex or "all"

    @property
    def everything(self) -> bool:
        """Whether nothing is left out."""
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
"""Which models or versions: `all`, a list of names, or `{regex: ...}`."""
