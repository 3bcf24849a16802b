"""Exclusions in PromQL: a recorded series exists while time does not count, and every other rule reads that series.

Counters are read over a window that looks back, so time stays excluded for as long after its end: then no window
reaches into it, and no event inside is counted. That drops a few minutes of good events and bad ones alike.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace

from triton_exporter.common.duration import DAY, duration_text
from triton_slo import names
from triton_slo.indicators.common.measure import Measure
from triton_slo.objective.exclusion import DAYS, Exclusion
from triton_slo.objective.zone import ClockChange, ClockRule, clock_rule
from triton_slo.promql import Matchers, by, indent, number, on, quote
from triton_slo.rules.plan import Plan, recording_rule
from triton_slo.rules.rulefile import Rule
from triton_slo.rules.windows import MEAN_SLICE

_RESOLUTION_SCRAPES = 1


def exclusion_rules(plan: Plan) -> Iterator[Rule]:
    """Yield the rule that records which exclusions are active; none where there are none."""
    parts = [
        f"label_replace(\n{indent(_holds(plan, exclusion))},\n"
        f'  {quote(names.REASON)}, {quote(_replacement(exclusion))}, "", ""\n)'
        for exclusion in plan.objective.exclusions
    ]
    if parts:
        yield recording_rule(plan, names.SLI_EXCLUDED, "\nor\n".join(parts))


def unless_excluded(plan: Plan, expr: str) -> str:
    """Return an expression that has no result while an exclusion applies."""
    if not plan.objective.exclusions:
        return expr
    # Only `or` binds less closely than `unless`. A name that contains the word gets brackets it does not need.
    whole = f"(\n{indent(expr)}\n)" if re.search(r"\bor\b", expr, re.IGNORECASE) else expr
    return f"{whole}\nunless on () {_exclusion_series(plan)}"


def without_excluded(plan: Plan, own: Matchers, measure: Measure) -> Measure:
    """Return a measure without what happens in excluded time; `own` are the matchers of its groups."""
    if not plan.objective.exclusions:
        return measure
    # Events of 0 instead of no sample: a mean over samples would apply the rest of the window to the excluded time.
    labels = plan.objective.group_by
    nothing = f"0 * max {by(labels)} ({names.LAST_SEEN}{own}) and on () {_exclusion_series(plan)}"

    def masked(expr: str) -> str:
        return f"({unless_excluded(plan, expr)})\nor {on(labels)}\n({nothing})"

    return replace(measure, events=measure.events.map_states(masked))


def _exclusion_series(plan: Plan) -> str:
    return f"{names.SLI_EXCLUDED}{plan.own}"


def lag_seconds(plan: Plan) -> float:
    """Return the seconds by which an exclusion is prolonged: the longest window that is read from counters."""
    longest = (
        max(window.seconds for window in plan.windows.values() if window.from_counters)
        + plan.clock.scrape_seconds
    )
    events = plan.measure(plan.variants[-1]).events
    return events.reach_seconds(longest, plan.clock.real(MEAN_SLICE))


def _replacement(exclusion: Exclusion) -> str:
    return exclusion.reason.replace("$", "$$")


def _holds(plan: Plan, exclusion: Exclusion) -> str:
    """Return PromQL with one unlabelled sample while an exclusion applies or has just ended, else nothing."""
    lag = lag_seconds(plan)
    if exclusion.promql is not None:
        step = plan.clock.text("15s", _RESOLUTION_SCRAPES)
        inner = f"(\n{indent(exclusion.promql)}\n)"
        return f"group (last_over_time({inner}[{duration_text(lag)}:{step}]) or {inner})"
    if exclusion.days is None:
        start, end = exclusion.span
        return f"vector(1) and (vector(time()) >= {number(start)} < {number(end + lag)})"
    # The clock is checked now, `lag` seconds ago, and at intervals that no exclusion is shorter than.
    count = math.ceil(lag / exclusion.duration)
    backs = [0.0, *(lag * step / count for step in range(1, count + 1))]
    shown = "\nor\n".join(_recurring(exclusion, back) for back in backs)
    return f"vector(1) and (\n{indent(shown)}\n)"


def _recurring(exclusion: Exclusion, back: float) -> str:
    """Return PromQL for whether the clocks of the zone showed a time inside, `back` seconds ago."""
    # The clock minus the exclusion's start: in this time, the exclusion begins at midnight.
    clock = _clock(clock_rule(exclusion.timezone or "UTC"), -back, exclusion.opens)
    conditions = []
    if exclusion.duration < DAY:
        conditions.append(f"({clock} % {DAY} < {exclusion.duration})")
    days = set(exclusion.days or ())
    if len(days) < len(DAYS):
        # One bit a day, Sunday the lowest.
        mask = sum(1 << (number + 1) % 7 for number, day in enumerate(DAYS) if day in days)
        conditions.append(f"(floor({mask} / 2 ^ day_of_week({clock})) % 2 == 1)")
    return "(" + "\n  and ".join(conditions) + ")"


def _clock(rule: ClockRule, shift: float, minus: int) -> str:
    """Return what the clocks of a zone show, as seconds since 1970, at a time shifted by `shift` seconds."""
    standard = f"vector(time(){_plus(shift + rule.standard - minus)})"
    if rule.begins is None or rule.ends is None:
        return standard
    return f"({standard} + {rule.summer} * {_summer(rule.begins, rule.ends, shift + rule.standard)})"


def _summer(begins: ClockChange, ends: ClockChange, standard: float) -> str:
    """Return PromQL that is 1 in summer time, else 0; `standard` is what standard time adds to `time()`."""
    if begins.month < ends.month:
        return _between_changes(begins, ends, standard)
    # South of the equator the new year is in summer: it is winter between the changes of a year.
    return f"(1 - {_between_changes(ends, begins, standard)})"


def _between_changes(first: ClockChange, second: ClockChange, standard: float) -> str:
    """Return PromQL that is 1 from one change to another of the same year, else 0."""
    before, after = (f"vector(time(){_plus(standard - change.second)})" for change in (first, second))
    inside = f"(month({before}) > bool {first.month}) * (month({before}) <= bool {second.month})"
    begun = f"({inside} + {_in_month_since(first, before)})"
    not_ended = f"(1 - (month({after}) > bool {second.month}) - {_in_month_since(second, after)})"
    return f"({begun} * {not_ended})"


def _in_month_since(change: ClockChange, at: str) -> str:
    """Return PromQL that is 1 in the rest of the change's month, from the day of the change on, else 0.

    That day has come once the latest such weekday is not before the first day that a change may be on.
    """
    days_since = f"(day_of_week({at}) + {7 - change.weekday}) % 7"
    return (
        f"(month({at}) == bool {change.month}) * (day_of_month({at}) - {days_since} >= bool {change.first})"
    )


def _plus(seconds: float) -> str:
    return "" if not seconds else f" {'+' if seconds > 0 else '-'} {number(abs(round(seconds, 3)))}"
