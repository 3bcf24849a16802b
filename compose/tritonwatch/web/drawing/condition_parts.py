"""The condition of a burn alert as a tree of parts, each with its words and whether it is true now."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from triton_slo.burn.amounts import burn_rate
from triton_slo.burn.condition import burn_condition
from triton_slo.burn.condition_rules import burn_tiers
from triton_slo.burn.condition_tree import (
    OPERATORS,
    All,
    Burn,
    Compare,
    Condition,
    Either,
    Named,
    Recent,
    Recurs,
    RedundancyGone,
    Retired,
    Unless,
)
from triton_slo.burn.condition_words import condition_text
from triton_slo.objective.model import Tier
from triton_slo.rules.plan import Plan
from triton_slo.verdict.group_status import GroupStatus

Truth = bool | None
"""Whether a condition is true now; None if only Prometheus can evaluate it."""


@dataclass(frozen=True, slots=True)
class ConditionPart:
    """A part of a condition: `words` are its own, `name` is that of the series that records it, if there is one."""

    words: str
    truth: Truth
    name: str = ""
    parts: tuple[ConditionPart, ...] = ()


@dataclass(frozen=True, slots=True)
class TierCondition:
    """One tier of an objective: what it calls for, when, and the tree of its condition."""

    tier: str
    severity: str
    factor: float
    long: str
    short: str
    firing: bool
    root: ConditionPart


def tier_conditions(
    plan: Plan, row: GroupStatus, recorded: Callable[[str, str], Truth], firing: Callable[[str], bool]
) -> tuple[TierCondition, ...]:
    """Return the tiers of an objective, most urgent first.

    `recorded` returns whether the named part of a tier is true now, `firing` whether a tier fires.
    """
    return tuple(
        TierCondition(
            tier.name,
            plan.severity(tier),
            plan.factor(tier),
            tier.long,
            tier.short,
            firing(tier.name),
            _Tree(tier, row.burn, recorded).of(burn_condition(plan, tier)),
        )
        for tier in burn_tiers(plan)
    )


@dataclass(frozen=True, slots=True)
class _Tree:
    tier: Tier
    burn: Mapping[str, float]
    recorded: Callable[[str, str], Truth]

    def of(self, condition: Condition) -> ConditionPart:
        match condition:
            case All(parts):
                inner = tuple(map(self.of, parts))
                return ConditionPart("all of", _all(part.truth for part in inner), parts=inner)
            case Either(parts):
                inner = tuple(map(self.of, parts))
                return ConditionPart("any of", _any(part.truth for part in inner), parts=inner)
            case Unless(wanted, but):
                first, second = self.of(wanted), self.of(but)
                truth = _all((first.truth, None if second.truth is None else not second.truth))
                return ConditionPart("the first, and not the second", truth, parts=(first, second))
            case Recent(part, window):
                return ConditionPart(f"at any time in {window.nominal}", None, parts=(self.of(part),))
            case Named(name, inner_condition, meaning):
                truth = self.recorded(self.tier.name, name)
                return ConditionPart(meaning, truth, name, (self.of(inner_condition),))
            case Compare(Burn(window), _, limit):
                rate = self.burn.get(window.nominal)
                now = "no events" if rate is None else f"now {burn_rate(rate)}"
                truth = None if rate is None else OPERATORS[condition.operator](rate, limit)
                return ConditionPart(f"{condition_text(condition)} ({now})", truth)
            case Compare() | Recurs() | Retired() | RedundancyGone():
                return ConditionPart(condition_text(condition), None)


def _all(parts: Iterable[Truth]) -> Truth:
    truths = set(parts)
    return False if False in truths else None if None in truths else True


def _any(parts: Iterable[Truth]) -> Truth:
    truths = set(parts)
    return True if True in truths else None if None in truths else False
