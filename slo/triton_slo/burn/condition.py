"""The condition of a burn alert, defined once as a tree of named parts.

Rules (PromQL), the backtest (arrays) and the documentation are derived from this tree; nothing restates it.

A tier fires while the error budget burns too fast over its long window and its short window (SRE Workbook,
chapter 5), with these additions:

* *enough*: a minimum number of failures and a one-sided score test, so that one failure at night pages nobody.
* *recovered*: the last minutes had enough events to show that the cause is gone, so that an alert does not outlive
  its incident.
* *over*: a recovery stays in force while the short window still contains the incident, unless failures relapse.
* *recurring*: bursts keep the alert firing between them.
* *redundancy gone*: readiness pages only if fewer than half of the servers were ready, or one was away for longer
  than a restart takes, in the long window. A rolling restart pages nobody.
* *within error*: a share that the exporter estimates pages only where it burns by more than its stated error.

No alert fires for a group that is *retired*: unloaded on purpose, or replaced.
"""

from __future__ import annotations

from statistics import NormalDist

from triton_exporter.common.duration import parse_seconds
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
    Recent,
    Recurs,
    RedundancyGone,
    Relative,
    Retired,
    Significance,
    Unless,
)
from triton_slo.objective.model import SUSTAINABLE, Tier
from triton_slo.rules.plan import Plan
from triton_slo.rules.windows import BURST_WINDOW, GUARD, RECURRING, canonical

CALM_SHARE = 0.5
"""Largest burn rate of the last minutes at which an incident can have ended, as a share of the tier's factor."""
CALM_BURN = 2.0
"""Burn rate up to which an incident can have ended, whatever the tier's factor: a ticket for slow burning must not
depend on single failures."""
MAX_REMAINING_SHARE = 0.25
"""Largest error ratio of the last minutes at which an incident can have ended, as a share of the short window's."""
EXPECTED_FAILURES = 6
"""Failures to expect in the last minutes if the incident continued; with fewer, nothing shows that it has ended:
P(X <= 1 | Poisson 6) is 1.7 %."""
SINGLE_FAILURE = 1.5
"""A single failure in the last minutes does not keep an alert firing (Prometheus can extrapolate one failure
to 1.2)."""
LATE_GUARD = "30m"
"""Tiers with a longer short window also recover when this window burns at most half of their factor: while the
short window still contains the incident, no shorter window can distinguish old failures from new ones."""
BURSTS = 2
"""Ends of burning within the hour that make an incident a recurring one."""
STATED_ERROR_WINDOW = "1h"
"""The window over which stated errors of estimates are averaged, as those in `status` are."""
EXTRAPOLATION_SLACK = 0.5
"""Prometheus can extrapolate 5 failures to 4.9, so minimum numbers have a tolerance of half an event."""


def burns(rate: float | None) -> bool:
    """Return whether a burn rate uses up its budget before the period ends; no events burn nothing."""
    return rate is not None and rate > SUSTAINABLE


def burning_over(plan: Plan, tier: Tier) -> tuple[Compare, Compare]:
    """Return the conditions of burning over the long and over the short window of a tier."""
    long, short = (
        Compare(Burn(_condition_window(plan, window)), ">", plan.factor(tier))
        for window in (tier.long, tier.short)
    )
    return long, short


def burn_condition(plan: Plan, tier: Tier) -> Condition:
    """Return the condition of one tier of an objective."""
    long = _condition_window(plan, tier.long)
    burning, _ = burning_over(plan, tier)
    still_burning = _burning_now(plan, tier)
    parts: list[Condition] = [burning]
    evidence = _enough(plan, long)
    enough: Condition = All(evidence or (burning,))
    if doubtful := plan.pages(tier) and plan.measure(plan.variants[-1]).stated_error is not None:
        enough = Unless(enough, _within_error(plan, tier, burning))
    if evidence or doubtful:
        words = "the long window holds enough failures to be sure that the budget burns too fast"
        parts.append(Named("enough", enough, words))
    if "model" in plan.objective.group_by:
        still_burning = Unless(still_burning, Retired())
    if plan.pages(tier) and plan.redundancy_gone:
        gone = Named("redundancy_gone", RedundancyGone(), "one more server that fails would be noticed")
        still_burning = All((still_burning, Recent(gone, long)))
    words = "the short window still burns and the incident has not ended, or bursts recur"
    return All((*parts, Named("now", still_burning, words)))


def _burning_now(plan: Plan, tier: Tier) -> Condition:
    """Return the condition that the short window burns and the incident has not ended, or that bursts recur."""
    recovered, (_, burning_now) = _recovered(plan, tier), burning_over(plan, tier)
    if late_guard(tier):
        # The short window is long enough to bridge bursts. For days after an incident the long window contains a
        # remnant, and single failures in quiet hours would pass for the incident's return.
        return Unless(burning_now, recovered)
    factor, least = plan.factor(tier), plan.objective.alerting.min_failures
    short, guard = _condition_window(plan, tier.short), _condition_window(plan, GUARD)
    relapsed = All(
        (Compare(Failures(guard), ">", least - EXTRAPOLATION_SLACK), Compare(Burn(guard), ">", factor))
    )
    over = recovered
    if plan.objective.indicator.sees_independent_events:
        words = "the group recovered within the short window, and failures have not come back since"
        over = Named("over", Either((recovered, Unless(Recent(recovered, short), relapsed))), words)
    bursting = Compare(Burn(_condition_window(plan, BURST_WINDOW)), ">", factor)
    recurring = All((bursting, Recurs(guard, _condition_window(plan, RECURRING), BURSTS)))
    return Either((Unless(burning_now, over), recurring))


def enough_in_period(plan: Plan) -> tuple[Condition, ...]:
    """Return conditions for enough failures in the whole period to be sure that its budget is spent.

    There are none where seconds are events.
    """
    nominal, period = plan.objective.window.nominal, plan.period
    return _enough(plan, BurnWindow(nominal, period.seconds if period else plan.period_seconds))


def _enough(plan: Plan, long: BurnWindow) -> tuple[Condition, ...]:
    # Minimum failures and tests need independent events: the seconds of one outage are not.
    if not plan.objective.indicator.sees_independent_events:
        return ()
    alerting = plan.objective.alerting
    parts: list[Condition] = []
    if alerting.min_failures > 0:
        parts.append(Compare(Failures(long), ">", alerting.min_failures - EXTRAPOLATION_SLACK))
    z = round(NormalDist().inv_cdf(alerting.confidence), 3)
    if z > 0:
        parts.append(Compare(Significance(long), ">", z))
    return tuple(parts)


def _within_error(plan: Plan, tier: Tier, burning: Compare) -> Named:
    # Errors of an hour are remembered, so that a source that changes for some minutes does not raise a page. The
    # short window shows an incident beyond the error long before it fills the long one: no page waits for that.
    long, short, stated = (
        _condition_window(plan, name) for name in (tier.long, tier.short, STATED_ERROR_WINDOW)
    )
    beyond = BurnBeyondError(long, short, stated)
    words = "the long window burns, but neither window does if the estimate is wrong by its stated error"
    return Named("within_error", All((burning, Compare(beyond, "<=", plan.factor(tier)))), words)


def _recovered(plan: Plan, tier: Tier) -> Named:
    independent = plan.objective.indicator.sees_independent_events
    guard, short = _condition_window(plan, GUARD), _condition_window(plan, tier.short)
    factor = plan.factor(tier)
    calm: Condition = Compare(Burn(guard), "<=", round(max(CALM_SHARE * factor, CALM_BURN), 9))
    dropped = Compare(Relative(guard, short), "<=", MAX_REMAINING_SHARE)
    # Where there is little traffic, one failure alone burns faster than calm.
    if independent:
        calm = Either((calm, Compare(Failures(guard), "<", SINGLE_FAILURE)))
    parts: list[Condition] = [calm, dropped]
    if independent:
        parts.append(Compare(Expected(guard, short), ">=", EXPECTED_FAILURES))
    recovered: Condition = All(tuple(parts))
    words = "the last minutes have few failures, fewer than if the incident continued"
    if late := late_guard(tier):
        calm_late = Compare(Burn(_condition_window(plan, late)), "<=", round(CALM_SHARE * factor, 9))
        # Every healthy group is calm, so that calm shows a recovery only while the short window burns.
        recovered = All((Compare(Burn(short), ">", factor), Either((recovered, calm_late))))
    return Named("recovered", recovered, words)


def late_guard(tier: Tier) -> str:
    """Return the second window that can show a recovery; empty for tiers whose short window is at most as long."""
    return LATE_GUARD if parse_seconds(tier.short) > parse_seconds(LATE_GUARD) else ""


def _condition_window(plan: Plan, nominal: str) -> BurnWindow:
    name = canonical(nominal)
    return BurnWindow(name, plan.windows[name].seconds)
