"""Tickets about the budget itself, for what burn alerts do not see: it is nearly spent, or spent and none fired.

They compare days, so the slow group of rules evaluates them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from triton_slo import names
from triton_slo.burn import words
from triton_slo.burn.burn_alerts import alert_labels
from triton_slo.burn.condition import All, enough_in_period
from triton_slo.burn.condition_rules import expression
from triton_slo.objective.model import CalendarWindow
from triton_slo.promql import indent, number, on
from triton_slo.rules.excluding import counting
from triton_slo.rules.plan import Plan
from triton_slo.rules.retired import unless_retired
from triton_slo.rules.rulefile import Rule

_AHEAD, _DAY = "3d", "1d"
"""The budget is nearly spent if it lasts less than three days at the pace of the last day, and at that of the two
days before: an incident that has ended is in one of the two only."""
_NEARLY_FOR = "1h"
_SPENT_FOR = "6h"
"""A burn alert that needs hours of evidence comes before a ticket about a spent budget."""
_KEEP = "6h"


def budget_alerts(plan: Plan) -> Iterator[Rule]:
    """Yield both tickets of an objective; none where its alerting is off."""
    if not plan.objective.alerting.enabled:
        return
    ticket = partial(
        Rule, keep_firing_for=plan.clock.text(_KEEP, 1), labels=alert_labels(plan, "warning", {})
    )
    yield ticket(
        alert=names.NEARLY_SPENT_ALERT,
        expr=counting(plan, _nearly_spent(plan)),
        hold=plan.clock.text(_NEARLY_FOR, 1),
        annotations=words.nearly_spent(plan),
    )
    yield ticket(
        alert=names.SPENT_ALERT,
        expr=counting(plan, _spent(plan)),
        hold=plan.clock.text(_SPENT_FOR, 1),
        annotations=words.spent(plan),
    )


def _left(plan: Plan, before: str = "") -> str:
    offset = f" offset {plan.clock.text(before)}" if before else ""
    return f"{names.PERIOD_BUDGET_REMAINING}{plan.own}{offset}"


def _nearly_spent(plan: Plan) -> str:
    """Seconds that the rest of the budget lasts at the pace of the last day."""
    now, yesterday, earlier = _left(plan), _left(plan, _DAY), _left(plan, _AHEAD)
    day, ahead = plan.clock.real(_DAY), plan.clock.real(_AHEAD)
    soon, lines = f"< {number(ahead)}", []
    if isinstance(plan.objective.window, CalendarWindow):
        # A period begins with a full budget, whatever was left of the one before.
        soon = f"< on () group_left () clamp_max({names.PERIOD_END}{plan.own} - time(), {number(ahead)})"
        lines = [f"and on () time() - {names.PERIOD_START}{plan.own} > {number(ahead)}"]
    return "\n".join(
        (
            f"{now} * {number(day)} / ({yesterday} - {now} > 0) {soon}",
            f"and {now} * {number(ahead - day)} / ({earlier} - {yesterday} > 0) < {number(ahead)}",
            f"and {now} > 0",
            *lines,
        )
    )


def _spent(plan: Plan) -> str:
    """What is left of a budget that was spent in the last day, in which no burn alert of the group fired."""
    fired = plan.own.equal("alertname", plan.objective.indicator.burn_alert).equal("alertstate", "firing")
    lines = [
        f"{_left(plan)} < 0",
        f"unless {_left(plan, _DAY)} < 0",
        f"unless {on(plan.objective.group_by)} max_over_time({names.ALERTS}{fired}[{plan.clock.text(_DAY)}])",
    ]
    if evidence := enough_in_period(plan):
        tier, failures = plan.objective.alerting.tiers[0], All(evidence)
        lines.append(f"and (\n{indent(expression(plan, tier, failures))}\n)")
    return "\n".join((*lines, unless_retired(plan))).rstrip()
