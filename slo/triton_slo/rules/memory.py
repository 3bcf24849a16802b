"""What rules recorded before a pause, and whether one has only just ended.

Rules remember groups that are gone by reading what they themselves recorded. A Prometheus or vmalert that was
stopped must find it again, and must not judge by it before the first scrapes are in.
"""

from __future__ import annotations

from triton_slo import conventions as names
from triton_slo.promql import on
from triton_slo.rules.plan import Plan

_RECENT, _RECENT_SCRAPES = "15m", 20
"""Read whole, so that nothing in it is a minute off."""
_REACH = "1d"
"""How long a pause may be; running sums reach as far."""
_SPARSE = "5m"
"""Prometheus looks back this far: at these steps, no recorded series is overlooked."""
_WARM = "2m"
"""After a pause: until every target has been found and scraped."""


def remembered(plan: Plan, selector: str) -> str:
    """The last value of a recorded series of groups, also where a pause came after it."""
    recent = plan.clock.text(_RECENT, _RECENT_SCRAPES)
    sparse = f"[{plan.clock.text(_REACH)}:{plan.clock.text(_SPARSE)}]"
    return (
        f"last_over_time({selector}[{recent}])\n"
        f"or {on(plan.objective.group_by)}\nlast_over_time({selector}{sparse})"
    )


def warm(plan: Plan) -> str:
    """A condition on other series: rules were evaluated some minutes ago, so scrapes have had time to come in."""
    return f"and on () ({names.INFO}{plan.own} offset {plan.clock.text(_WARM)})"
