"""Recording rules of a calendar period: when it began, what happened since, and what that leaves of its budget.

The events since the start have a sum of their own. It cannot be a difference of two values of the running sum
(`running_sum`): PromQL looks back only by a constant time, and the start is each moment longer ago. The sum is that
of an hour ago plus the last hour's events, so an evaluation reads a few samples instead of a quarter's, and depends
on one evaluation an hour, not on every one. After an outage it goes on from the last sum that a window reaches back
to. Only a sum beside which the present start was recorded is added to: with a new period it begins again, as does a
group without a sum, with the longest window that lies within the period.

The calendar is worked out on the wall clock (Unix seconds as if it showed UTC), because PromQL's calendar functions
know only UTC; how clocks are set is in `triton_slo.rules.periods`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from triton_exporter.common.duration import DAY, parse_seconds
from triton_slo import names
from triton_slo.indicators.common.measure import Events
from triton_slo.objective.period_window import CalendarWindow
from triton_slo.promql import indent, number
from triton_slo.rules.periods import known_clock_ranges
from triton_slo.rules.plan import Plan, recording_rule
from triton_slo.rules.rulefile import Rule

_NOW_SECONDS = "time()"
_NOW, _MONTH, _START, _END = "now", "month", "start", "end"
_STEPS = (
    ("1h", "1h"),
    # The first hour of a period, and of what follows an outage.
    ("30m", "30m"),
    ("5m", "5m"),
    # The first minutes after an outage: far enough into the period nothing is lost, ...
    ("6h", "6h"),
    ("1d", "1d"),
    ("3d", "3d"),
    # ... otherwise what was recorded between the sum and the window is.
    ("2h", "1h"),
    ("4h", "1h"),
    ("12h", "6h"),
    ("2d", "1d"),
    ("7d", "3d"),
    ("14d", "3d"),
    ("28d", "3d"),
    ("56d", "3d"),
)
"""How long ago the earlier sum was recorded, and the window whose events are added to it; the first that exists."""
_FIRST_WINDOWS = ("3d", "1d", "6h", "1h", "30m", "5m")


def calendar_rules(plan: Plan, window: CalendarWindow) -> Iterator[Rule]:
    """Yield the current period, the events in it, and their error ratio; all after the rules for windows."""
    for edge, expr in _wall_clock(plan, window):
        # An edge is computed from another one, whose label is removed: vmalert would keep it as exported_edge.
        expr = expr if edge == _NOW else f"sum without ({names.EDGE}) (\n  {expr}\n)"
        yield recording_rule(plan, names.PERIOD_LOCAL, expr, {names.EDGE: edge})
    yield recording_rule(plan, names.PERIOD_START, _to_utc(plan, window, _START))
    yield recording_rule(plan, names.PERIOD_END, _to_utc(plan, window, _END))
    yield recording_rule(plan, names.PERIOD_EVENTS, _events_since_start(plan))
    counted = Events(
        *(
            f"{names.PERIOD_EVENTS}{plan.own.equal(names.EVENT, event)}"
            for event in (names.ERROR, names.TOTAL)
        )
    )
    yield recording_rule(plan, names.sli_error(window.nominal), counted.ratio())


def budget_days(plan: Plan) -> str:
    """Return the days that the budget stands for: the whole period for seconds, the period so far for others."""
    return f"({_known_until(plan)} - {_start_series(plan)}) / {DAY}"


def budget_remaining(plan: Plan) -> str:
    """Return PromQL for the share of `(1 - target) * events` that is left.

    The events are those so far. Where seconds are events, they are those of the whole period: the seconds so far,
    scaled by the length of the period, which assumes the same number of servers.
    """
    spent, until = f"{names.PERIOD_BURN_RATE}{plan.own}", _known_until(plan)
    if until == _NOW_SECONDS:
        return f"1 - {spent}"
    passed = f"(time() - {_start_series(plan)}) / ({until} - {_start_series(plan)})"
    return f"1 - {spent} * on () group_left () ({passed})"


def _start_series(plan: Plan) -> str:
    return f"{names.PERIOD_START}{plan.own}"


def _known_until(plan: Plan) -> str:
    """Return PromQL for the end of the time of which the number of events is known: now, or the period's end."""
    independent = plan.objective.indicator.sees_independent_events
    return _NOW_SECONDS if independent else f"{names.PERIOD_END}{plan.own}"


def _wall_series(plan: Plan, edge: str) -> str:
    return f"{names.PERIOD_LOCAL}{plan.own.equal(names.EDGE, edge)}"


def _wall_clock(plan: Plan, window: CalendarWindow) -> Iterator[tuple[str, str]]:
    """Yield the wall clock now, at the period's first midnight, and at the next period's."""
    zone = known_clock_ranges(window.timezone)
    terms = [f"time() + {zone[0].offset}"]
    for earlier, later in pairwise(zone):
        terms.append(f"{_signed(later.offset - earlier.offset)} * (time() >= bool {later.start})")
    yield _NOW, "vector(\n" + indent("\n".join(terms)) + "\n)"
    now, start = _wall_series(plan, _NOW), _wall_series(plan, _START)
    midnight = f"floor({now} / {DAY}) * {DAY}"
    month = f"{midnight} - (day_of_month({now}) - 1) * {DAY}"
    match window.calendar:
        case "week":  # day_of_week counts from Sunday
            yield _START, f"{midnight} - (day_of_week({now}) + 6) % 7 * {DAY}"
            yield _END, f"{start} + {7 * DAY}"
        case "month":
            yield _START, month
            yield _END, f"{start} + days_in_month({start}) * {DAY}"
        case "quarter":
            yield _MONTH, month
            this = _wall_series(plan, _MONTH)
            before = (f"days_in_month({this} - {days * DAY})" for days in (1, 32))
            place = f"(month({this}) - 1) % 3"
            back = " ".join(
                f"- ({place} >= bool {n}) * {days} * {DAY}" for n, days in enumerate(before, start=1)
            )
            yield _START, f"{this} {back}"
            length = " + ".join(f"days_in_month({start} + {days * DAY})" for days in (0, 31, 62))
            yield _END, f"{start} + ({length}) * {DAY}"


def _signed(seconds: int) -> str:
    return f"{'-' if seconds < 0 else '+'} {abs(seconds)}"


def _to_utc(plan: Plan, window: CalendarWindow, edge: str) -> str:
    """Return Unix time of a wall clock's midnight: the first of two, the change where there is none."""
    zone = known_clock_ranges(window.timezone)
    wall = _wall_series(plan, edge)
    terms = [f"{wall} - {zone[0].offset}"]
    for earlier, later in pairwise(zone):
        set_at = later.start + max(earlier.offset, later.offset)
        terms.append(f"{_signed(earlier.offset - later.offset)} * ({wall} >= bool {set_at})")
    return f"sum without ({names.EDGE}) (\n" + indent("\n".join(terms)) + "\n)"


def _events_since_start(plan: Plan) -> str:
    start = _start_series(plan)
    steps = (
        _stepped(plan, ago, nominal) for ago, nominal in _STEPS if parse_seconds(ago) < plan.period_seconds
    )
    first_windows = (
        f"({_events_within(plan, nominal)} and on () ({start} <= time() - {_seconds(plan, nominal)}))"
        for nominal in _FIRST_WINDOWS
    )
    rate = f"{names.sli_events(_FIRST_WINDOWS[-1])}{plan.own}"
    first_minutes = f"({rate} * on () group_left () (time() - {start}))"
    return "\nor\n".join((*steps, *first_windows, first_minutes))


def _stepped(plan: Plan, ago: str, nominal: str) -> str:
    """Return an earlier sum of the same period plus the events of a window."""
    start, offset = _start_series(plan), f"offset {_real_text(plan, ago)}"
    sums = f"{names.PERIOD_EVENTS}{plan.own} {offset}"
    return f"(({sums} + {_events_within(plan, nominal)}) and on () ({start} == {start} {offset}))"


def _events_within(plan: Plan, nominal: str) -> str:
    """Return the events of a window that ends now."""
    return f"{names.sli_events(nominal)}{plan.own} * {_seconds(plan, nominal)}"


def _seconds(plan: Plan, nominal: str) -> str:
    return number(plan.windows[nominal].seconds)


def _real_text(plan: Plan, nominal: str) -> str:
    window = plan.windows.get(nominal)
    return window.text if window else plan.clock.text(nominal)
