"""The rule groups of one objective: what is recorded, then the alerts that read it."""

from __future__ import annotations

from collections.abc import Iterator

from triton_slo.burn.budget_alerts import budget_alerts
from triton_slo.burn.burn_alerts import alert_rules
from triton_slo.burn.condition_rules import condition_rules
from triton_slo.rules.plan import Plan
from triton_slo.rules.recording import recording_rules, slow_rules
from triton_slo.rules.retired import retired_rules
from triton_slo.rules.rulefile import Group, Rule
from triton_slo.rules.running_sum import CHECKPOINT
from triton_slo.rules.unknown import unknown_rules


def groups(plan: Plan) -> Iterator[Group]:
    """Yield the groups of an objective: the main one, and one of rules that are slow or seldom needed."""
    name = f"slo-{plan.objective.name}"
    yield Group(name, objective_rules(plan))
    slow = (*slow_rules(plan), *budget_alerts(plan))
    yield Group(f"{name}-checkpoint", slow, plan.clock.text(CHECKPOINT))


def objective_rules(plan: Plan) -> tuple[Rule, ...]:
    """Return the rules of the main group, in the order in which they need each other."""
    # Retired first: if series end between two rules, the group must not be recorded as seen later than as retired,
    # because it would then count as lost.
    recorded = (*retired_rules(plan), *recording_rules(plan), *unknown_rules(plan), *condition_rules(plan))
    return (*recorded, *alert_rules(plan))
