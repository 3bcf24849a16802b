"""Burn conditions in words, for the reference of alerts."""

from __future__ import annotations

from collections.abc import Iterator

from triton_slo import names
from triton_slo.burn.condition import burn_condition
from triton_slo.burn.condition_tree import (
    All,
    Burn,
    BurnBeyondError,
    Compare,
    Condition,
    Either,
    Expected,
    Failures,
    Named,
    Quantity,
    Recent,
    Recurs,
    RedundancyGone,
    Relative,
    Retired,
    Significance,
    Unless,
    named_parts,
)
from triton_slo.objective.model import Tier
from triton_slo.promql import number
from triton_slo.rules.plan import Plan
from triton_slo.rules.windows import RESTART


def explained(plan: Plan, tier: Tier) -> Iterator[tuple[str, str, str]]:
    """Yield name, meaning and definition of each recorded part of a tier's condition, and of the alert itself."""
    condition = burn_condition(plan, tier)
    for part in named_parts(condition):
        yield names.burn_part(part.name), part.meaning, condition_text(part.condition)
    yield plan.objective.indicator.burn_alert, "the alert fires", condition_text(condition)


def condition_text(condition: Condition) -> str:
    """Describe a condition: the quantities that it compares and their limits."""
    match condition:
        case All(parts):
            return " and ".join(map(_operand, parts))
        case Either(parts):
            return " or ".join(map(_operand, parts))
        case Unless(inner, but):
            return f"{_operand(inner)}, unless {_operand(but)}"
        case Compare(quantity, operator, limit):
            return f"{_quantity(quantity)} {operator} {number(limit)}"
        case Recent(part, window):
            return f"{condition_text(part)} at any time in {window.nominal}"
        case Recurs(window, within, times):
            return f"burning over {window.nominal} ended {times} times or more in {within.nominal}"
        case Retired():
            return "the group is retired"
        case RedundancyGone():
            return f"fewer than half of the servers are ready, or one has not been ready for {RESTART}"
        case Named(name):
            return f"`{names.burn_part(name)}`"


def _operand(condition: Condition) -> str:
    text = condition_text(condition)
    return f"({text})" if isinstance(condition, All | Either | Unless) else text


def _quantity(quantity: Quantity) -> str:
    match quantity:
        case Burn(window):
            return f"burn rate over {window.nominal}"
        case BurnBeyondError(window, short, stated):
            larger = f"larger burn rate of {window.nominal} and {short.nominal}"
            return f"{larger} less the error stated over {stated.nominal}"
        case Failures(window):
            return f"failures in {window.nominal}"
        case Significance(window):
            return f"score of the error ratio over {window.nominal}"
        case Expected(window, like):
            return f"failures expected in {window.nominal} at the error ratio of {like.nominal}"
        case Relative(window, like):
            return f"error ratio over {window.nominal} / error ratio over {like.nominal}"
