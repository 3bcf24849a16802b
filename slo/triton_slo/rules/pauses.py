"""PromQL that remains right after a pause of the rules, such as a restart of Prometheus or vmalert.

Rules find groups whose series are gone in what they recorded themselves, which after a pause is up to a day old. To
read a day of every group costs more than most rules. So only the slow group does, and it records only what the last
minutes do not contain. Until the first scrapes have come in after a pause, no rule may call a group lost.
"""

from __future__ import annotations

from triton_slo import names
from triton_slo.promql import Matchers, number, on
from triton_slo.rules.plan import Plan, on_group, recording_rule
from triton_slo.rules.rulefile import Rule
from triton_slo.rules.windows import RecordedWindow

_RECENT, _RECENT_SCRAPES = "15m", 20
"""Time and least number of scrapes over which every rule reads its own records at full resolution."""
REACH = "1d"
"""Longest pause of the rules that is bridged; after a longer one running sums begin again."""
_SEARCH_STEP = "5m"
"""Step of the subquery over a day: Prometheus' lookback, so that it finds every recorded series."""
_WARM = "2m"
"""Time after a pause until every target has been discovered and scraped."""
_BEFORE = {names.RETIRED: names.RETIRED_BEFORE, names.LAST_SEEN: names.LAST_SEEN_BEFORE}
"""Recorded series -> series in which the slow group records it after a pause. RETIRED comes first: a group that was
seen, and is not known to be retired, would count as lost for one evaluation."""


def remembered(plan: Plan, series: str, own: Matchers) -> str:
    """Return the last value of a recorded series of groups, also where a pause came after it."""
    return (
        f"last_over_time({series}{own}[{_recent(plan)}])\n"
        f"or {on_group(plan)}\nlast_over_time({_BEFORE[series]}{own}[{_recent(plan)}])"
    )


def memory_rules(plan: Plan) -> list[Rule]:
    """Return the rules of the slow group that record again what was last recorded up to a day ago."""
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
    """Return PromQL for the time at which something began: the last record, also from before a pause; else `first`.

    A value from up to a day ago is used only if no newer one matches. Otherwise, after a change of the objective's
    indicator, its older series would be a second one with the labels of the rule, which Prometheus refuses.
    """
    recorded = f"{series}{plan.own}"
    memory = f"last_over_time({recorded}[{plan.clock.text(REACH)}:{plan.clock.text(step)}])"
    return f"\nor {matching}\n".join((recorded, memory, first))


def evaluations_rule(plan: Plan) -> Rule:
    """Return the rule that records, at each evaluation, when the first one was."""
    first = remembered_start(plan, names.RULES_SINCE, _SEARCH_STEP, on(()), "vector(time())")
    return recording_rule(plan, names.RULES_SINCE, first)


def mean_of_evaluations(plan: Plan, series: str, window: RecordedWindow) -> str:
    """Return PromQL for the mean of a recorded series over a window; an evaluation without a sample counts as 0.

    A mean over the samples alone would give a version that existed for minutes the weight of the whole window. The
    mean also covers the evaluations that a pause left out.
    """
    since = f"{names.RULES_SINCE}{plan.own}"
    # Aggregated: for a while there are two such series after a label of the rules has changed.
    return (
        f"sum_over_time({series}[{window.text}])\n"
        f"/ on () group_left ()\nsum(count_over_time({since}[{window.text}]))\n"
        f"* on () group_left ()\nclamp_max((time() - min({since})) / {number(window.seconds)}, 1)"
    )


def warm(plan: Plan) -> str:
    """Return the condition that the rules were evaluated some minutes ago, so that scrapes have come in since."""
    return f"and on () ({names.INFO}{plan.own} offset {plan.clock.text(_WARM)})"


def _recent(plan: Plan) -> str:
    return plan.clock.text(_RECENT, _RECENT_SCRAPES)
