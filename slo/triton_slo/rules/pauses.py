"""Pauses of the rules: series of before a pause, and a mark while one has only just ended.

Rules remember groups that are gone by reading what they themselves recorded. A Prometheus or vmalert that was
stopped must find it again, and must not judge by it before the first scrapes are in. Reading a day of every group
costs more than most rules, so only the slow group does; it records what the others miss, and nothing otherwise.
"""

from __future__ import annotations

from triton_slo import names
from triton_slo.promql import Matchers, on
from triton_slo.rules.plan import Plan
from triton_slo.rules.rulefile import Rule

_RECENT, _RECENT_SCRAPES = "15m", 20
"""Read whole, so that nothing in it is a minute off."""
_REACH = "1d"
"""How long a pause may be; running sums reach as far."""
_SPARSE = "5m"
"""Prometheus looks back this far: at these steps, no recorded series is overlooked."""
_WARM = "2m"
"""After a pause: until every target has been found and scraped."""
_BEFORE = {names.RETIRED: names.RETIRED_BEFORE, names.LAST_SEEN: names.LAST_SEEN_BEFORE}
"""Series -> where it is found after a pause. A group is known to be retired before it is known at all: otherwise it
would look lost for an evaluation."""


def remembered(plan: Plan, series: str, own: Matchers) -> str:
    """Return the last value of a recorded series of groups, also where a pause came after it."""
    return (
        f"last_over_time({series}{own}[{_recent(plan)}])\n"
        f"or {on(plan.objective.group_by)}\nlast_over_time({_BEFORE[series]}{own}[{_recent(plan)}])"
    )


def memory_rules(plan: Plan) -> list[Rule]:
    """Rules of the slow group: what was recorded within a day, of groups without a recent record."""
    sparse, matching = f"[{plan.clock.text(_REACH)}:{plan.clock.text(_SPARSE)}]", on(plan.objective.group_by)
    return [
        Rule(
            expr=f"last_over_time({series}{plan.own}{sparse})\n"
            f"unless {matching}\nlast_over_time({series}{plan.own}[{_recent(plan)}])",
            record=before,
            labels=plan.labels,
        )
        for series, before in _BEFORE.items()
        if series != names.RETIRED or "model" in plan.objective.group_by
    ]


def warm(plan: Plan) -> str:
    """A condition on other series: rules were evaluated some minutes ago, so scrapes have had time to come in."""
    return f"and on () ({names.INFO}{plan.own} offset {plan.clock.text(_WARM)})"


def _recent(plan: Plan) -> str:
    return plan.clock.text(_RECENT, _RECENT_SCRAPES)
