"""Tickets about the budget itself, for what burn alerts do not see: it is nearly spent, or spent and none fired.

They compare days, so the slow group of rules evaluates them.
"""

from __future__ import annotations

from collections.abc import Iterator

from triton_slo import names
from triton_slo.alert_settings import tunable
from triton_slo.alert_settings.tunable import Tunable
from triton_slo.burn import alert_texts
from triton_slo.burn.burn_alerts import in_force, objective_alert
from triton_slo.burn.condition import enough_in_period
from triton_slo.burn.condition_rules import condition_expression
from triton_slo.burn.condition_tree import All
from triton_slo.promql import Matchers, indent, number
from triton_slo.rules.plan import Plan, on_group
from triton_slo.rules.retired import unless_retired
from triton_slo.rules.rulefile import Rule

_ALL = Matchers()
_DAY, _THREE_DAYS = "1d", "3d"
"""The pace of the last day is compared with that of the two before: an ended incident is in one of them only."""


def budget_alerts(plan: Plan) -> Iterator[Rule]:
    """Yield both tickets of an objective, as they are tuned; none where its alerting is off."""
    if not plan.objective.alerting.enabled:
        return
    for ticket in in_force(plan, tunable.NEARLY_SPENT):
        yield objective_alert(
            plan, ticket, _nearly_spent(plan, ticket), alert_texts.nearly_spent(plan, ticket)
        )
    for ticket in in_force(plan, tunable.SPENT):
        yield objective_alert(plan, ticket, _spent(plan, ticket), alert_texts.spent(plan))


def _left(plan: Plan, before: str = "", models: Matchers = _ALL) -> str:
    offset = f" offset {plan.clock.text(before)}" if before else ""
    return f"{names.PERIOD_BUDGET_REMAINING}{plan.own.also(*models.parts)}{offset}"


def _nearly_spent(plan: Plan, ticket: Tunable) -> str:
    """Return PromQL for the seconds that the rest of the budget lasts at the pace of the last day."""
    assert ticket.threshold is not None
    now, yesterday, earlier = _left(plan, models=ticket.models), _left(plan, _DAY), _left(plan, _THREE_DAYS)
    day, before = plan.clock.real(_DAY), plan.clock.real(_THREE_DAYS)
    ahead = number(plan.clock.real(ticket.threshold.promql))
    soon, lines = f"< {ahead}", []
    if plan.objective.calendar:
        # A period begins with a full budget, whatever was left of the one before.
        soon = f"< on () group_left () clamp_max({names.PERIOD_END}{plan.own} - time(), {ahead})"
        lines = [f"and on () time() - {names.PERIOD_START}{plan.own} > {number(before)}"]
    return "\n".join(
        (
            f"{now} * {number(day)} / ({yesterday} - {now} > 0) {soon}",
            f"and {now} * {number(before - day)} / ({earlier} - {yesterday} > 0) < {ahead}",
            f"and {now} > 0",
            *lines,
        )
    )


def _spent(plan: Plan, ticket: Tunable) -> str:
    """Return PromQL for the rest of a budget spent in the last day, in which no burn alert of the group fired."""
    fired = plan.own.equal("alertname", plan.objective.burn_alert).equal("alertstate", "firing")
    lines = [
        f"{_left(plan, models=ticket.models)} < 0",
        f"unless {_left(plan, _DAY)} < 0",
        f"unless {on_group(plan)} max_over_time({names.ALERTS}{fired}[{plan.clock.text(_DAY)}])",
    ]
    if evidence := enough_in_period(plan):
        tier, failures = plan.objective.alerting.tiers[0], All(evidence)
        lines.append(f"and (\n{indent(condition_expression(plan, tier, failures))}\n)")
    return "\n".join((*lines, unless_retired(plan))).rstrip()
