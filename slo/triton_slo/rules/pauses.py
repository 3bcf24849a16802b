"""Evaluations of the rules and their pauses: means over evaluations, series of before a pause, a mark after one.

Rules remember groups that are gone by reading what they themselves recorded. A Prometheus or vmalert that was
stopped must find it again, and must not judge by it before the first scrapes are in. Reading a day of every group
costs more than most rules, so only the slow group does; it records what the others miss, and nothing otherwise.
"""

from __future__ import annotations

from triton_slo import names
from triton_slo.promql import Matchers, number, on
from triton_slo.rules.plan import Plan, on_group, recording_rule
from triton_slo.rules.rulefile import Rule
from triton_slo.rules.windows import RecordedWindow

_RECENT, _RECENT_SCRAPES = "15m", 20
"""Read whole, so that nothing in it is a minute off."""
REACH = "1d"
"""Longest pause of the rules that is bridged; after a longer one running sums begin again."""
_SEARCH_STEP = "5m"
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
        f"or {on_group(plan)}\nlast_over_time({_BEFORE[series]}{own}[{_recent(plan)}])"
    )


def memory_rules(plan: Plan) -> list[Rule]:
    """Return rules of the slow group: what was recorded within a day, of groups without a recent record."""
    search, matching = f"[{plan.clock.text(REACH)}:{plan.clock.text(_SEARCH_STEP)}]", on_group(plan)
    return [
        recording_rule(
            plan,
            before,
            f"last_over_time({series}{plan.own}{search})\n"
            f"unless {matching}\nlast_over_time({series}{plan.own}[{_recent(plan)}])",
        )
        for series, before in _BEFORE.items()
        if series != names.RETIRED or "model" in plan.objective.group_by
    ]


def remembered_start(plan: Plan, series: str, step: str, matching: str, first: str) -> str:
    """Return when something began: as recorded last, also where a pause came after it; else `first`.

    What a day before has serves only where nothing newer matches: a series from before the indicator of the
    objective changed would become a second one with the labels of the rule, which Prometheus refuses.
    """
    recorded = f"{series}{plan.own}"
    memory = f"last_over_time({recorded}[{plan.clock.text(REACH)}:{plan.clock.text(step)}])"
    return f"\nor {matching}\n".join((recorded, memory, first))


def evaluations_rule(plan: Plan) -> Rule:
    """Return the rule that records, at each evaluation, when the first one was."""
    first = remembered_start(plan, names.RULES_SINCE, _SEARCH_STEP, on(()), "vector(time())")
    return recording_rule(plan, names.RULES_SINCE, first)


def mean_of_evaluations(plan: Plan, series: str, window: RecordedWindow) -> str:
    """Return a recorded series' mean over a window; an evaluation without it, or before the first, counts as 0.

    A mean over the samples alone would give a version that existed for minutes the weight of the whole window.
    Evaluations that a pause left out count as the others did.
    """
    since = f"{names.RULES_SINCE}{plan.own}"
    # Aggregated: for a while there are two such series after a label of the rules has changed.
    return (
        f"sum_over_time({series}[{window.text}])\n"
        f"/ on () group_left ()\nsum(count_over_time({since}[{window.text}]))\n"
        f"* on () group_left ()\nclamp_max((time() - min({since})) / {number(window.seconds)}, 1)"
    )


def warm(plan: Plan) -> str:
    """Return a condition on other series: rules were evaluated some minutes ago, so scrapes had time to come in."""
    return f"and on () ({names.INFO}{plan.own} offset {plan.clock.text(_WARM)})"


def _recent(plan: Plan) -> str:
    return plan.clock.text(_RECENT, _RECENT_SCRAPES)
