"""The kinds of parts that the condition of a burn alert is made of: a tree of frozen values."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, assert_never


@dataclass(frozen=True, slots=True)
class BurnWindow:
    """A window by its nominal name and its real length in seconds."""

    nominal: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Burn:
    """Error ratio over a window, divided by the error budget: how many times too fast the budget burns."""

    window: BurnWindow


@dataclass(frozen=True, slots=True)
class BurnBeyondError:
    """The larger of two burn rates, less the stated error of the estimate.

    Only where an error was stated in the window `stated`.
    """

    window: BurnWindow
    short: BurnWindow
    stated: BurnWindow


@dataclass(frozen=True, slots=True)
class Failures:
    """Number of failed events in a window."""

    window: BurnWindow


@dataclass(frozen=True, slots=True)
class Significance:
    """Score test of "the error ratio is above the budget b" over n events: (burn - 1) * sqrt(n * b / (1 - b))."""

    window: BurnWindow


@dataclass(frozen=True, slots=True)
class Expected:
    """Failures that `window` would have had at the error ratio of the window `like`."""

    window: BurnWindow
    like: BurnWindow


@dataclass(frozen=True, slots=True)
class Relative:
    """Error ratio of `window` as a share of the error ratio of `like`."""

    window: BurnWindow
    like: BurnWindow


Quantity = Burn | BurnBeyondError | Failures | Significance | Expected | Relative
Operator = Literal[">", ">=", "<", "<="]
OPERATORS: Mapping[Operator, Callable[[Any, Any], Any]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
"""How numbers, and arrays of them, are compared."""


@dataclass(frozen=True, slots=True)
class Compare:
    """A quantity against a number; false where there were no events."""

    quantity: Quantity
    operator: Operator
    limit: float


@dataclass(frozen=True, slots=True)
class All:
    """True while all parts are true."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """True while any part is true."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Unless:
    """True while `condition` is true and `but` is not."""

    condition: Condition
    but: Condition


@dataclass(frozen=True, slots=True)
class Recent:
    """True when the named part was true at any evaluation of the last window."""

    part: Named
    window: BurnWindow


@dataclass(frozen=True, slots=True)
class Recurs:
    """True when burning (an error ratio over `window` above the budget) ended `times` times or more in `within`."""

    window: BurnWindow
    within: BurnWindow
    times: int


@dataclass(frozen=True, slots=True)
class Retired:
    """True for a group that was unloaded on purpose or replaced (`triton_slo.rules.retired`)."""


@dataclass(frozen=True, slots=True)
class RedundancyGone:
    """True while too few servers are ready (`Indicator.redundancy_gone`)."""


@dataclass(frozen=True, slots=True)
class Named:
    """A part that the rules record as a series of its own, and what it means in words."""

    name: str
    condition: Condition = field(compare=False)
    meaning: str = field(compare=False)


Condition = Compare | All | Either | Unless | Recent | Recurs | Retired | RedundancyGone | Named


def named_parts(condition: Condition) -> tuple[Named, ...]:
    """Return all named parts, each after the parts it is made of, and each once."""
    parts: dict[str, Named] = {}
    _collect(condition, parts)
    return tuple(parts.values())


def _collect(condition: Condition, collected: dict[str, Named]) -> None:
    match condition:
        case All(parts) | Either(parts):
            for part in parts:
                _collect(part, collected)
        case Unless(inner, but):
            _collect(inner, collected)
            _collect(but, collected)
        case Recent(part, _):
            _collect(part, collected)
        case Named(name, inner):
            _collect(inner, collected)
            collected.setdefault(name, condition)
        case Compare() | Recurs() | Retired() | RedundancyGone():
            pass
        case _:
            assert_never(condition)
