"""Recording rules of an objective: events once per group, longer windows from running sums, ratios, budget.

Nothing here records NaN: a ratio of no events is absent, and idle groups record 0 events. A group whose series
are gone keeps recording zeros for the objective's period, so that its history and its budget stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from triton_exporter.common.duration import DAY, duration_text
from triton_slo import names
from triton_slo.indicators.common.measure import Events, Measure
from triton_slo.promql import Matchers, number, paren
from triton_slo.rules.calendar import budget_days, budget_remaining, calendar_rules
from triton_slo.rules.exclusion_rules import exclusion_rules, unless_excluded, without_excluded
from triton_slo.rules.pauses import evaluations_rule, mean_of_evaluations, memory_rules, remembered
from triton_slo.rules.plan import Plan, Variant, group_matchers, on_group, recording_rule
from triton_slo.rules.rulefile import Rule
from triton_slo.rules.running_sum import (
    CHECKPOINT_WINDOW,
    base_rules,
    checkpoint_rule,
    difference,
    link_seconds,
    step_windows,
    sum_rules,
    unless_step_applies,
)
from triton_slo.rules.unknown_as_failed import counting_unknown
from triton_slo.rules.windows import GUARD, RecordedWindow


def recording_rules(plan: Plan) -> Iterator[Rule]:
    """Yield all recording rules of an objective, in the order in which they need each other."""
    measures = [(variant, _measure(plan, variant)) for variant in plan.variants]
    yield from exclusion_rules(plan)
    yield from _state_rules(plan, measures)
    counter_windows, sum_windows = (
        [window for window in plan.windows.values() if window.from_counters is from_counters]
        for from_counters in (True, False)
    )
    for window in counter_windows:
        for variant, measure in measures:
            yield recording_rule(
                plan, names.sli_events(window.nominal), _window_events(plan, window, variant, measure)
            )
    link = RecordedWindow("link", link_seconds(plan))
    for variant, measure in measures:
        linked = f"{paren(_window_events(plan, link, variant, measure))}\n{unless_step_applies(plan)}"
        yield recording_rule(plan, names.SLI_EVENTS_LINK, linked)
    yield from sum_rules(plan)
    for window in sum_windows:
        yield from _difference_rules(plan, window)
    for variant, measure in measures:
        yield from _target_rules(plan, variant)
        yield from _source_rules(plan, measure)
        if measure.estimate_error is not None:
            yield recording_rule(plan, names.ESTIMATE_ERROR, measure.estimate_error(plan.clock.text("1h")))
    for window in counter_windows:
        yield recording_rule(plan, names.sli_error(window.nominal), error_ratio(plan, window.nominal))
    if plan.objective.calendar:
        yield from calendar_rules(plan, plan.objective.calendar)
    yield from _budget_rules(plan)


def slow_rules(plan: Plan) -> Iterator[Rule]:
    """Yield recording rules that need no frequent evaluation, in a group of their own: what outlasts a pause."""
    yield from memory_rules(plan)
    if not plan.objective.exclusions:
        window = RecordedWindow(CHECKPOINT_WINDOW, plan.clock.real(CHECKPOINT_WINDOW))
        for variant in plan.variants:
            yield recording_rule(
                plan, names.SLI_EVENTS_COUNTED, _window_events(plan, window, variant, _measure(plan, variant))
            )
    yield checkpoint_rule(plan)
    yield from base_rules(plan)


def _state_rules(plan: Plan, measures: Sequence[tuple[Variant, Measure]]) -> Iterator[Rule]:
    """Yield the rules that record the state at an evaluation: when a group was last seen, and events of states."""
    if any(measure.events.states for _, measure in measures):
        yield evaluations_rule(plan)
    for variant, measure in measures:
        yield recording_rule(plan, names.LAST_SEEN, _last_seen(plan, variant, measure))
        for events_now in measure.events.states:
            yield recording_rule(plan, names.SLI_EVENTS_NOW, events_now.labelled())


def _difference_rules(plan: Plan, window: RecordedWindow) -> Iterator[Rule]:
    """Yield the rules of a window that is a difference of sums; its events are recorded if a rule reads them."""
    if window.nominal in plan.windows_with_events:
        yield recording_rule(plan, names.sli_events(window.nominal), difference(plan, window))
        yield recording_rule(plan, names.sli_error(window.nominal), error_ratio(plan, window.nominal))
    else:
        both = Events(*(difference(plan, window, event) for event in (names.ERROR, names.TOTAL)))
        yield recording_rule(plan, names.sli_error(window.nominal), both.ratio())


def _measure(plan: Plan, variant: Variant) -> Measure:
    """Return what the indicator measures, with what the objective makes of unknown and of excluded time."""
    own = group_matchers(plan, variant.matchers)
    return without_excluded(plan, own, counting_unknown(plan, own, plan.measure(variant)))


def events(plan: Plan, nominal: str, event: str, matchers: Matchers | None = None) -> str:
    """Return the selector of recorded events per second."""
    own = (matchers or plan.own).equal(names.EVENT, event)
    return f"{names.sli_events(nominal)}{own}"


def error_ratio(plan: Plan, nominal: str) -> str:
    """Return PromQL of the error ratio over a window; absent where nothing happened."""
    return Events(*(events(plan, nominal, event) for event in (names.ERROR, names.TOTAL))).ratio()


def _last_seen(plan: Plan, variant: Variant, measure: Measure) -> str:
    before = remembered(plan, names.LAST_SEEN, group_matchers(plan, variant.matchers))
    period = number(plan.period_seconds)
    return f"time() * {paren(measure.presence)}\nor {on_group(plan)}\n{paren(before)} > time() - {period}"


def _window_events(plan: Plan, window: RecordedWindow, variant: Variant, measure: Measure) -> str:
    """Return the events of a window: from counters, or averaged from what each evaluation recorded."""
    groups = group_matchers(plan, variant.matchers)
    mean = mean_of_evaluations(plan, f"{names.SLI_EVENTS_NOW}{groups}", window)
    parts = measure.events.over(_counter_range(plan, window), mean, lambda expr: unless_excluded(plan, expr))
    seen = f"0 * {names.LAST_SEEN}{groups}"
    if measure.events.may_begin_late and (shorter := _next_shorter(plan, window)):
        part = f"{number(shorter.seconds)} / {number(window.seconds)}"
        parts = (*parts, f"{part} * {names.sli_events(shorter.nominal)}{groups}")
    # Each part is itself an `or` without `on`: unbracketed, its second half would be matched on all labels.
    return f"\nor {on_group(plan, names.EVENT)}\n".join(map(paren, (*parts, Events(seen, seen).labelled())))


def _next_shorter(plan: Plan, window: RecordedWindow) -> RecordedWindow | None:
    """Return the longest of the shorter windows from counters, which have been recorded before; None for a link."""
    shorter = [
        other for other in plan.windows.values() if other.from_counters and other.seconds < window.seconds
    ]
    return max(shorter, key=lambda other: other.seconds, default=None)


def _counter_range(plan: Plan, window: RecordedWindow) -> str:
    """Return the range over which a window reads counters; for windows that sums add up, it is one scrape longer.

    Otherwise the increase from the last sample of one window to the first of the next would be in neither. With one
    scrape more, every increase is in exactly one of them, and the rate stays the same.
    """
    shown = window in plan.windows.values() and window not in step_windows(plan)
    return duration_text(window.seconds + (0 if shown else plan.clock.scrape_seconds))


def _target_rules(plan: Plan, variant: Variant) -> Iterator[Rule]:
    seen = f"0 * {names.LAST_SEEN}{group_matchers(plan, variant.matchers)}"
    yield recording_rule(plan, names.OBJECTIVE_RATIO, f"{seen} + {number(variant.target)}")
    yield recording_rule(plan, names.ERROR_BUDGET_RATIO, f"{seen} + {number(variant.budget)}")
    if variant.threshold is not None:
        yield recording_rule(plan, names.THRESHOLD_SECONDS, f"{seen} + {number(variant.threshold)}")


def _source_rules(plan: Plan, measure: Measure) -> Iterator[Rule]:
    """Yield the rules that record the source of each group's numbers, by which status and alerts mark estimates."""
    for expr, source in measure.sources:
        yield recording_rule(plan, names.SLI_SOURCE, expr, {names.SOURCE: source} if source else {})


def burn(plan: Plan, nominal: str) -> str:
    """Return how many times too fast the budget burns over a window."""
    return f"{names.sli_error(nominal)}{plan.own} / {names.ERROR_BUDGET_RATIO}{plan.own}"


def _budget_rules(plan: Plan) -> Iterator[Rule]:
    window = plan.objective.window
    days, left = f"vector({number(window.seconds / DAY)})", f"1 - {names.PERIOD_BURN_RATE}{plan.own}"
    if plan.objective.calendar:
        days, left = budget_days(plan), budget_remaining(plan)
    yield recording_rule(plan, names.PERIOD_DAYS, days)
    yield recording_rule(plan, names.CURRENT_BURN_RATE, burn(plan, "5m"))
    yield recording_rule(plan, names.PERIOD_BURN_RATE, burn(plan, window.nominal))
    yield recording_rule(plan, names.PERIOD_BUDGET_REMAINING, left)
    yield recording_rule(
        plan, names.BURNING, f"{names.sli_error(GUARD)}{plan.own} > bool {names.ERROR_BUDGET_RATIO}{plan.own}"
    )
    yield recording_rule(plan, names.INFO, "vector(1)", _info_labels(plan))


def _info_labels(plan: Plan) -> dict[str, str]:
    objective = plan.objective
    about = {
        names.OWNER: objective.owner,
        "description": objective.description,
        "target": number(objective.target),
        "window": objective.window.words,
        "threshold": objective.indicator.threshold_text,
    }
    return {label: value for label, value in about.items() if value}
