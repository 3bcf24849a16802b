"""Unknown time that counts as failed (`unknown.policy: bad`).

A second in which a group is unknown stands for as many failed events as the group had a second before: the median
of what was recorded in the hour before it fell silent. Indicators whose events come at their own pace (requests)
have no such number, and refuse the policy.
"""

from __future__ import annotations

from dataclasses import replace

from triton_exporter.duration import render
from triton_slo import conventions as names
from triton_slo.indicators import Events, Measure
from triton_slo.promql import Matchers, by, indent, number, on
from triton_slo.rules.plan import Plan
from triton_slo.rules.unknown import MIN_SCRAPES

_PACE_WINDOW = "5m"
PACE_MEMORY = "1h"


def counting_unknown(plan: Plan, own: Matchers, measure: Measure) -> Measure:
    """The measure with unknown time as failed events; `own` selects what the rules record of its groups."""
    if plan.objective.unknown.policy != "bad":
        return measure
    lost, known = _lost(plan, own, measure), measure.sampled
    # Gone, and not called unknown yet: nothing, lest the mean over a window spreads what surrounds it.
    idle = f"0 * max {by(plan.objective.group_by)} ({names.LAST_SEEN}{own})"
    if known is None:
        events = _first(plan, lost, idle)
        return replace(measure, sampled=Events(events, events), adds=True)
    # Both from one place: what calls itself ready while it is stuck has a total of its own.
    sampled = Events(_first(plan, lost, known.error, idle), _first(plan, lost, known.total, idle))
    return replace(measure, sampled=sampled)


def _first(plan: Plan, *choices: str) -> str:
    return f"\nor {on(plan.objective.group_by)}\n".join(f"(\n{indent(one)}\n)" for one in choices)


def _lost(plan: Plan, own: Matchers, measure: Measure) -> str:
    """Events a second that a group would have had, where it is unknown."""
    assert measure.unseen is not None
    unknown, labels = _unknown(plan, own), plan.objective.group_by
    # The group stops before it is called unknown: of the span looked back at, it ran for more than half.
    after = plan.clock.real(plan.objective.unknown.after, MIN_SCRAPES)
    memory = render(plan.clock.real(PACE_MEMORY) + 2 * after)
    recorded = f"{names.sli_events(_PACE_WINDOW)}{own.equal(names.EVENT, names.TOTAL)}"
    pace = f"max {by(labels)} (quantile_over_time(0.5, {recorded}[{memory}])) > 0"
    otherwise = number(measure.unseen / plan.options.time_scale)
    paced = f"(\n  ({pace})\n  and {on(labels)} {unknown}\n)"
    return f"{paced}\nor {on(labels)}\n{otherwise} * {unknown}"


def _unknown(plan: Plan, own: Matchers) -> str:
    return f"max {by(plan.objective.group_by)} ({names.UNKNOWN}{own})"
