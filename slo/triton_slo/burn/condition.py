"""The condition of a burn alert, defined once as a tree of named parts.

Rules (PromQL), the backtest (arrays) and the documentation are derived from this tree; nothing restates it.

A tier fires while the error budget burns too fast over its long window and its short window (SRE Workbook,
chapter 5), with four additions:

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

from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Literal, assert_never

from triton_exporter.duration import parse_seconds
from triton_slo.objective.model import SUSTAINABLE, Tier
from triton_slo.rules.plan import Plan
from triton_slo.rules.windows import BURST_WINDOW, GUARD, RECURRING, canonical

CALM_SHARE = 0.5
CALM_BURN = 2.0
"""An incident can have ended only when the last minutes burn at most half of the tier's factor (or twice too
fast, whichever is more: a ticket for slow burning must not depend on single failures)."""
DROP = 0.25
"""... at most this share of what the short window shows ..."""
EXPECTED_FAILURES = 6
"""... and would have shown this many failures had the incident continued: P(X <= 1 | Poisson 6) is 1.7 %."""
SINGLE_FAILURE = 1.5
"""One failure in the last minutes does not keep an incident open (extrapolation can make 1.2 of one failure)."""
LATE_GUARD = "30m"
"""Tiers with a longer short window also recover when this window burns at most half of their factor: while the
short window drains, nothing shorter can tell a remnant from an incident."""
BURSTS = 2
"""Ends of burning within the hour that make an incident a recurring one."""
STATED = "1h"
"""The window over which stated errors of estimates are averaged, as those in `status` are."""
EXTRAPOLATION_SLACK = 0.5
"""A rate that Prometheus extrapolates gives 4.9 failures for 5: minimum numbers allow for half an event."""


@dataclass(frozen=True, slots=True)
class Window:
    """A window by its nominal name and its real length in seconds."""

    nominal: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Burn:
    """Error ratio over a window, divided by the error budget: how many times too fast the budget burns."""

    window: Window


@dataclass(frozen=True, slots=True)
class BurnBeyondError:
    """The larger of two burn rates, less the stated error of the estimate.

    Only where an error was stated in the window `stated`.
    """

    window: Window
    short: Window
    stated: Window


@dataclass(frozen=True, slots=True)
class Failures:
    """Number of failed events in a window."""

    window: Window


@dataclass(frozen=True, slots=True)
class Significance:
    """Score test of "the error ratio is above the budget b" over n events: (burn - 1) * sqrt(n * b / (1 - b))."""

    window: Window


@dataclass(frozen=True, slots=True)
class Expected:
    """Failures that `window` would have had at the error ratio of the window `like`."""

    window: Window
    like: Window


@dataclass(frozen=True, slots=True)
class Relative:
    """Error ratio of `window` as a share of the error ratio of `like`."""

    window: Window
    like: Window


Quantity = Burn | BurnBeyondError | Failures | Significance | Expected | Relative
Operator = Literal[">", ">=", "<", "<="]


@dataclass(frozen=True, slots=True)
class Compare:
    """A quantity against a number; false where there were no events."""

    quantity: Quantity
    operator: Operator
    limit: float


@dataclass(frozen=True, slots=True)
class All:
    """True while all parts are true."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """True while any part is true."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Unless:
    """True while `condition` is true and `but` is not."""

    condition: Condition
    but: Condition


@dataclass(frozen=True, slots=True)
class Recent:
    """True when the named part was true at any evaluation of the last window."""

    part: Named
    window: Window


@dataclass(frozen=True, slots=True)
class Recurs:
    """True when burning (an error ratio over `window` above the budget) ended at least `times` times in `span`."""

    window: Window
    span: Window
    times: int


@dataclass(frozen=True, slots=True)
class Retired:
    """True for a group that was unloaded on purpose or replaced (`triton_slo.rules.retired`)."""


@dataclass(frozen=True, slots=True)
class RedundancyGone:
    """True while too few servers are ready (`Indicator.redundancy_gone`)."""


@dataclass(frozen=True, slots=True)
class Named:
    """A part that the rules record as a series of its own, and what it means in words."""

    name: str
    condition: Condition = field(compare=False)
    meaning: str = field(compare=False)


Condition = Compare | All | Either | Unless | Recent | Recurs | Retired | RedundancyGone | Named


def burns(rate: float | None) -> bool:
    """Return whether a burn rate uses up its budget before the period ends; no events burn nothing."""
    return rate is not None and rate > SUSTAINABLE


def burning_over(plan: Plan, tier: Tier) -> tuple[Compare, Compare]:
    """Burning over the long and over the short window of a tier."""
    long, short = (
        Compare(Burn(_window(plan, window)), ">", plan.factor(tier)) for window in (tier.long, tier.short)
    )
    return long, short


def burn_condition(plan: Plan, tier: Tier) -> Condition:
    """The condition of one tier of an objective."""
    factor, least = plan.factor(tier), plan.objective.alerting.min_failures
    long, short, guard = (_window(plan, name) for name in (tier.long, tier.short, GUARD))
    # Only where one event is one event do minimum failures and statistical tests mean anything.
    counted = plan.objective.indicator.counted
    burning, burning_now = burning_over(plan, tier)
    recovered = _recovered(plan, tier)
    now: Condition
    if late_guard(tier):
        # The short window bridges bursts without help. For days after an incident the long window contains a
        # remnant, and single failures in quiet hours would pass for the incident's return.
        now = Unless(burning_now, recovered)
    else:
        relapsed = All(
            (Compare(Failures(guard), ">", least - EXTRAPOLATION_SLACK), Compare(Burn(guard), ">", factor))
        )
        lasting = counted(Unless(Recent(recovered, short), relapsed))
        words = "the group recovered within the short window, and failures have not come back since"
        over = Named("over", Either((recovered, *lasting)), words) if lasting else recovered
        recurring = All(
            (
                Compare(Burn(_window(plan, BURST_WINDOW)), ">", factor),
                Recurs(guard, _window(plan, RECURRING), BURSTS),
            )
        )
        now = Either((Unless(burning_now, over), recurring))
    parts: list[Condition] = [burning]
    evidence = counted(*_enough(plan, long))
    enough: Condition = All(evidence or (burning,))
    if doubtful := plan.pages(tier) and plan.measure(plan.variants[-1]).stated_error is not None:
        enough = Unless(enough, _within_error(plan, tier, burning))
    if evidence or doubtful:
        words = "the long window holds enough failures to be sure that the budget burns too fast"
        parts.append(Named("enough", enough, words))
    if "model" in plan.objective.group_by:
        now = Unless(now, Retired())
    if plan.pages(tier) and plan.redundancy_gone:
        gone = Named("redundancy_gone", RedundancyGone(), "one more server that fails would be noticed")
        now = All((now, Recent(gone, long)))
    words = "the short window still burns and the incident has not ended, or bursts recur"
    return All((*parts, Named("now", now, words)))


def enough_in_period(plan: Plan) -> tuple[Condition, ...]:
    """Enough failures in the whole period to be sure that its budget is spent; empty where seconds are events."""
    nominal, period = plan.objective.window.nominal, plan.period
    return plan.objective.indicator.counted(
        *_enough(plan, Window(nominal, period.seconds if period else plan.period_seconds))
    )


def _enough(plan: Plan, long: Window) -> Iterator[Condition]:
    alerting = plan.objective.alerting
    if alerting.min_failures > 0:
        yield Compare(Failures(long), ">", alerting.min_failures - EXTRAPOLATION_SLACK)
    z = round(NormalDist().inv_cdf(alerting.confidence), 3)
    if z > 0:
        yield Compare(Significance(long), ">", z)


def _within_error(plan: Plan, tier: Tier, burning: Compare) -> Named:
    # Errors of an hour are remembered, so that a source that changes for some minutes does not raise a page. The
    # short window shows an incident beyond the error long before it fills the long one: no page waits for that.
    long, short, stated = (_window(plan, name) for name in (tier.long, tier.short, STATED))
    beyond = BurnBeyondError(long, short, stated)
    words = "the long window burns, but neither window does if the estimate is wrong by its stated error"
    return Named("within_error", All((burning, Compare(beyond, "<=", plan.factor(tier)))), words)


def _recovered(plan: Plan, tier: Tier) -> Named:
    counted = plan.objective.indicator.counted
    guard, short = _window(plan, GUARD), _window(plan, tier.short)
    factor = plan.factor(tier)
    calm: Condition = Compare(Burn(guard), "<=", round(max(CALM_SHARE * factor, CALM_BURN), 9))
    dropped = Compare(Relative(guard, short), "<=", DROP)
    # Where there is little traffic, one failure alone burns faster than calm.
    for single in counted(Compare(Failures(guard), "<", SINGLE_FAILURE)):
        calm = Either((calm, single))
    shown = counted(Compare(Expected(guard, short), ">=", EXPECTED_FAILURES))
    recovered: Condition = All((calm, dropped, *shown))
    words = "the last minutes have few failures, fewer than if the incident continued"
    if late := late_guard(tier):
        calm_late = Compare(Burn(_window(plan, late)), "<=", round(CALM_SHARE * factor, 9))
        # Calm is true of every healthy group: only while the short window burns does it end anything.
        recovered = All((Compare(Burn(short), ">", factor), Either((recovered, calm_late))))
    return Named("recovered", recovered, words)


def late_guard(tier: Tier) -> str:
    """The second window that can show a recovery; empty for tiers with a short window of at most that length."""
    return LATE_GUARD if parse_seconds(tier.short) > parse_seconds(LATE_GUARD) else ""


def _window(plan: Plan, nominal: str) -> Window:
    name = canonical(nominal)
    return Window(name, plan.spans[name].seconds)


def named_parts(condition: Condition) -> tuple[Named, ...]:
    """All named parts, each after the parts it is made of, and each once."""
    parts: dict[str, Named] = {}
    _collect(condition, parts)
    return tuple(parts.values())


def _collect(condition: Condition, collected: dict[str, Named]) -> None:
    match condition:
        case All(parts) | Either(parts):
            for part in parts:
                _collect(part, collected)
        case Unless(inner, but):
            _collect(inner, collected)
            _collect(but, collected)
        case Recent(part, _):
            _collect(part, collected)
        case Named(name, inner):
            _collect(inner, collected)
            collected.setdefault(name, condition)
        case Compare() | Recurs() | Retired() | RedundancyGone():
            pass
        case _:
            assert_never(condition)
