"""Exclusions in PromQL: an expression that has a result, with the reason, while one applies."""

from __future__ import annotations

from collections.abc import Iterable

from triton_exporter.common.duration import DAY
from triton_slo import names
from triton_slo.objective.exclusion import DAYS, Exclusion
from triton_slo.objective.zone import ClockChange, ClockRule, clock_rule
from triton_slo.promql import indent, number, quote


def active_exclusions(exclusions: Iterable[Exclusion]) -> str:
    """Return PromQL with a sample for the reason of each exclusion that applies now."""
    return "\nor\n".join(
        f"label_replace(\n{indent(_holds(exclusion))},\n"
        f'  {quote(names.REASON)}, {quote(exclusion.reason.replace("$", "$$"))}, "", ""\n)'
        for exclusion in exclusions
    )


def _holds(exclusion: Exclusion) -> str:
    if exclusion.promql is not None:
        return f"group (\n{indent(exclusion.promql)}\n)"
    if exclusion.days is None:
        start, end = exclusion.span
        return f"vector(1) and (vector(time()) >= {number(start)} < {number(end)})"
    return f"vector(1) and (\n{indent(_recurring(exclusion))}\n)"


def _recurring(exclusion: Exclusion) -> str:
    """Return PromQL for whether the clocks of the zone show a time inside."""
    # The clock minus the exclusion's start: in this time, the exclusion begins at midnight.
    clock = _clock(clock_rule(exclusion.timezone or "UTC"), exclusion.opens)
    conditions = []
    if exclusion.duration < DAY:
        conditions.append(f"({clock} % {DAY} < {exclusion.duration})")
    days = set(exclusion.days or ())
    if len(days) < len(DAYS):
        # One bit a day, Sunday the lowest.
        mask = sum(1 << (number + 1) % 7 for number, day in enumerate(DAYS) if day in days)
        conditions.append(f"(floor({mask} / 2 ^ day_of_week({clock})) % 2 == 1)")
    return "(" + "\n  and ".join(conditions) + ")"


def _clock(rule: ClockRule, minus: int) -> str:
    """Return what the clocks of a zone show, less `minus` seconds, as seconds since 1970."""
    standard = f"vector(time(){_plus(rule.standard - minus)})"
    if rule.begins is None or rule.ends is None:
        return standard
    return f"({standard} + {rule.summer} * {_summer(rule.begins, rule.ends, rule.standard)})"


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
