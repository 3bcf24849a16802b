"""Unknown time that counts as failed (`unknown.policy: bad`).

A second in which a group is unknown stands for as many failed events as the group had a second before: the median
of what was recorded in the hour before it fell silent. Indicators whose events come at their own pace (requests)
have no such number, and refuse the policy.
"""

from __future__ import annotations

from dataclasses import replace

from triton_exporter.common.duration import duration_text
from triton_slo import names
from triton_slo.indicators.common.measure import Measure
from triton_slo.promql import Matchers, by, indent, number, on
from triton_slo.rules.plan import Plan, on_group
from triton_slo.rules.unknown import UNKNOWN_SCRAPES

_PACE_WINDOW = "5m"
PACE_MEMORY = "1h"


def counting_unknown(plan: Plan, own: Matchers, measure: Measure) -> Measure:
    """Return the measure with unknown time as failed events; `own` selects what the rules record of its groups."""
    if plan.objective.unknown.policy != "bad":
        return measure
    lost = _lost(plan, own)
    # Until a group that is gone counts as unknown, it has 0 events: a mean over samples would apply the rest of the
    # window to this time.
    idle = f"0 * max {by(plan.objective.group_by)} ({names.LAST_SEEN}{own})"
    return replace(
        measure, events=measure.events.with_lost(lambda *known: _first_choice(plan, lost, *known, idle))
    )


def _first_choice(plan: Plan, *choices: str) -> str:
    return f"\nor {on_group(plan)}\n".join(f"(\n{indent(choice)}\n)" for choice in choices)


def _lost(plan: Plan, own: Matchers) -> str:
    """Return PromQL for the events a second that a group would have had, where it is unknown."""
    unknown, labels = _unknown_groups(plan, own), plan.objective.group_by
    # A group is gone for some time before it counts as unknown; the range is so long that it ran for most of it.
    after = plan.clock.real(plan.objective.unknown.after, UNKNOWN_SCRAPES)
    memory = duration_text(plan.clock.real(PACE_MEMORY) + 2 * after)
    recorded = f"{names.sli_events(_PACE_WINDOW)}{own.equal(names.EVENT, names.TOTAL)}"
    pace = f"max {by(labels)} (quantile_over_time(0.5, {recorded}[{memory}])) > 0"
    otherwise = number(plan.objective.indicator.unknown_pace() / plan.options.time_scale)
    paced = f"(\n  ({pace})\n  and {on(labels)} {unknown}\n)"
    return f"{paced}\nor {on(labels)}\n{otherwise} * {unknown}"


def _unknown_groups(plan: Plan, own: Matchers) -> str:
    return f"max {by(plan.objective.group_by)} ({names.UNKNOWN}{own})"
