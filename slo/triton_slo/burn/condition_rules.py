"""Burn conditions as PromQL: a recorded series for each named part, and the short expression of the alert.

A named part is recorded as a series that exists, with the value 1, while the part is true: healthy groups cost no
series, and `slo:burn_recovered:bool` and the others can be graphed beside the alert.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from triton_exporter.common.duration import duration_text
from triton_slo import names
from triton_slo.burn.condition import burn_condition
from triton_slo.burn.condition_tree import (
    All,
    Burn,
    BurnBeyondError,
    BurnWindow,
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
from triton_slo.promql import indent, number, on
from triton_slo.rules.plan import Plan, recording_rule
from triton_slo.rules.recording import burn, events
from triton_slo.rules.retired import retired
from triton_slo.rules.rulefile import Rule


def burn_tiers(plan: Plan) -> tuple[Tier, ...]:
    """Return the tiers that have an alert, most urgent first: those that some group's error ratio can reach."""
    alerting, tightest = plan.objective.alerting, min(variant.budget for variant in plan.variants)
    return (
        tuple(tier for tier in alerting.tiers if plan.reachable(tier, tightest)) if alerting.enabled else ()
    )


def condition_rules(plan: Plan) -> Iterator[Rule]:
    """Yield the rules that record the named parts of every tier's condition."""
    for tier in burn_tiers(plan):
        for part in named_parts(burn_condition(plan, tier)):
            holds = f"0 * (\n{indent(condition_expression(plan, tier, part.condition))}\n) + 1"
            yield recording_rule(plan, names.burn_part(part.name), holds, {names.TIER: tier.name})


def alert_expression(plan: Plan, tier: Tier) -> str:
    """Return the condition of a tier's alert; its value is the burn rate over the long window."""
    return condition_expression(plan, tier, burn_condition(plan, tier))


def condition_expression(plan: Plan, tier: Tier, condition: Condition) -> str:
    """Return PromQL of a condition that is part of a tier's."""
    return _Expression(plan, tier).of(condition)


@dataclass(frozen=True, slots=True)
class _Expression:
    plan: Plan
    tier: Tier

    def of(self, condition: Condition) -> str:
        """Return PromQL of a condition, one operand a line; a sample exists for each group where it is true."""
        match condition:
            case All(parts):
                return self._joined("and", *parts)
            case Either(parts):
                return self._joined("or", *parts)
            case Unless(inner, but):
                return self._joined("unless", inner, but)
            case Compare(quantity, operator, limit):
                return f"{self._quantity(quantity)} {operator} {number(limit)}"
            case Recent(part, window):
                return f"last_over_time({self._part(part)}[{duration_text(window.seconds)}])"
            case Recurs(_, within, times):
                burning = f"{names.BURNING}{self.plan.own}"
                return f"resets({burning}[{duration_text(within.seconds)}]) >= {times}"
            case Retired():
                return retired(self.plan)
            case RedundancyGone():
                return self.plan.redundancy_gone
            case Named():
                return self._part(condition)

    def _joined(self, word: str, *parts: Condition) -> str:
        # Recorded parts carry the tier; ratios and events do not.
        matching = f" ignoring ({names.TIER})" if any(map(named_parts, parts)) else ""
        return f"\n{word}{matching} ".join(map(self._operand, parts))

    def _operand(self, condition: Condition) -> str:
        text = self.of(condition)
        # Comparisons bind closer than set operators, selectors and calls closer still.
        if isinstance(condition, Compare | Recurs | Recent | Retired | Named):
            return text
        return f"(\n{indent(text)}\n)"

    def _part(self, part: Named) -> str:
        return f"{names.burn_part(part.name)}{self.plan.own.equal(names.TIER, self.tier.name)}"

    def _quantity(self, quantity: Quantity) -> str:
        match quantity:
            case Burn(window):
                return burn(self.plan, window.nominal)
            case BurnBeyondError(window, short, stated):
                own, other = self._ratio(window), self._ratio(short)
                matching = f"{on(self.plan.objective.group_by)} group_left ()"
                left = f"({own} > {other} or {other} or {own}) - {matching} {self._stated_error(stated)}"
                return f"({left}) / {names.ERROR_BUDGET_RATIO}{self.plan.own}"
            case Failures(window):
                return self._event_count(window, names.ERROR)
            case Significance(window):
                budget = f"{names.ERROR_BUDGET_RATIO}{self.plan.own}"
                count = self._event_count(window, names.TOTAL)
                return f"({burn(self.plan, window.nominal)} - 1) * sqrt({count} * {budget} / (1 - {budget}))"
            case Expected(window, like):
                return f"{self._ratio(like)} * {self._event_count(window, names.TOTAL)}"
            case Relative(window, like):
                return f"{self._ratio(window)} / {self._ratio(like)}"

    def _event_count(self, window: BurnWindow, event: str) -> str:
        period = self.plan.objective.calendar
        if period is not None and window.nominal == period.nominal:
            so_far = f"{names.PERIOD_EVENTS}{self.plan.own.equal(names.EVENT, event)}"
            return f"sum without ({names.EVENT}) ({so_far})"
        recorded = events(self.plan, window.nominal, event)
        return f"sum without ({names.EVENT}) ({recorded}) * {number(window.seconds)}"

    def _stated_error(self, window: BurnWindow) -> str:
        """Return PromQL of the stated error: variants' models do not overlap, so each group is in one operand."""
        measures = map(self.plan.measure, self.plan.variants)
        stated = [
            measure.stated_error(duration_text(window.seconds))
            for measure in measures
            if measure.stated_error
        ]
        return stated[0] if len(stated) == 1 else f"(\n{indent(f'{chr(10)}or '.join(stated))}\n)"

    def _ratio(self, window: BurnWindow) -> str:
        return f"{names.sli_error(window.nominal)}{self.plan.own}"
