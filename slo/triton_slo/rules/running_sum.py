"""Running sums of events, which windows over an hour are differences of.

Each evaluation records the largest of several candidates, because what is missing in a candidate makes it smaller:

- a step: the sum of some time ago (an hour, half an hour, ten minutes) plus the events since, from the counters;
- the sum of the evaluation before, or the last checkpoint;
- for a new group: the events of the last hour.

`rate` extrapolates by up to a scrape's jitter in a window: the shorter the window, the more of its events that is.
So the shorter steps are candidates only where no sum was recorded an hour ago: else the largest would creep upward.

A checkpoint is a copy of the sum, which a second group of rules records every few minutes and finds again after a
pause of up to a day. It reads six hours of the counters, so a pause of that length loses nothing.

With `exclusions` nothing is read over more than five minutes, and what happens in a pause of the rules is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from triton_exporter.common.duration import duration_text
from triton_slo import names
from triton_slo.objective.model import HALF_HOUR, TILE
from triton_slo.promql import Matchers, indent, number
from triton_slo.rules.pauses import REACH, remembered_start
from triton_slo.rules.plan import Plan, on_group, recording_rule
from triton_slo.rules.rulefile import Rule
from triton_slo.rules.windows import BURST_WINDOW, MIN_SCRAPES, RecordedWindow

CHECKPOINT = "4m"
"""Interval of the group that is evaluated slowly: Prometheus forgets a sample after five minutes."""
CHECKPOINT_WINDOW = "6h"
"""Window of the counters that the slow group reads: a pause of the rules up to this length loses nothing."""
_SEARCH_STEP = "1h"
"""Step of the subquery that finds a sum or a checkpoint from before a pause."""
_AHEAD = "10m"
"""Time before a window reaches a pause at which the slow group begins to record: over twice its interval."""
_RECENT = "11m"
"""Range that contains an evaluation of the checkpoint, even a late one."""


def step_windows(plan: Plan) -> tuple[RecordedWindow, ...]:
    """Return the windows from counters that are added to an earlier sum, longest first."""
    nominals = (TILE,) if plan.objective.exclusions else ("1h", HALF_HOUR, BURST_WINDOW)
    return tuple(plan.windows[nominal] for nominal in nominals)


def link_seconds(plan: Plan) -> float:
    """Return the length of the shortest step, in seconds, whose events `SLI_EVENTS_LINK` has."""
    return MIN_SCRAPES * plan.clock.scrape_seconds


def sum_rules(plan: Plan) -> Iterator[Rule]:
    """Yield the rules of a sum's start and of the sum, which read windows from counters; others read the sum."""
    total = f"{names.sli_events(TILE)}{plan.own.equal(names.EVENT, names.TOTAL)}"
    start_of_new = f"time() + 0 * sum without ({names.EVENT}) ({total})"
    since = remembered_start(plan, names.SLI_EVENTS_SINCE, _SEARCH_STEP, on_group(plan), start_of_new)
    of_recorded = f"(\n{indent(since)}\n)\nand {on_group(plan)}\n{total}"
    yield recording_rule(plan, names.SLI_EVENTS_SINCE, of_recorded)
    yield recording_rule(plan, names.SLI_EVENTS_SUM, _largest(_sum_candidates(plan)))


def _sum_candidates(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield the names and the expressions of what the sum may be."""
    longest, *shorter = step_windows(plan)
    seconds = link_seconds(plan)
    yield longest.nominal, _stepped(plan, longest)
    recorded = f"last_over_time({_sum_series(plan)}[{duration_text(seconds)}]{_ago(longest.seconds)})"
    for window in shorter:
        yield window.nominal, f"{_stepped(plan, window)}\nunless {recorded}"
    # While there is no sum from ten minutes ago, the sum continues from the previous ones.
    yield "link", f"{_sum_series(plan, seconds)} + {number(seconds)} * {names.SLI_EVENTS_LINK}{plan.own}"
    yield "before", _sum_series(plan)
    yield "checkpoint", f"last_over_time({_checkpoint_series(plan)}[{plan.clock.text(_RECENT)}])"
    yield "new", f"{_events_within(plan, longest)} and {_of_groups_since(plan, seconds)}"


def _stepped(plan: Plan, window: RecordedWindow) -> str:
    return f"{_sum_series(plan, window.seconds)} + {_events_within(plan, window)}"


def unless_step_applies(plan: Plan) -> str:
    """Return the end of the expression of a link, which has no events if there is a sum that a step is added to."""
    nearest = step_windows(plan)[-1]
    return f"unless {on_group(plan, names.EVENT)} {_sum_series(plan, nearest.seconds)}"


def checkpoint_rule(plan: Plan) -> Rule:
    """Return the rule of a copy of the sum that outlasts a pause, for the group that is evaluated slowly."""
    alive = f"{names.sli_events(TILE)}{plan.own}"
    largest = _largest(_checkpoint_candidates(plan))
    return recording_rule(plan, names.SLI_EVENTS_CHECKPOINT, f"{largest}\nand\n{alive}")


def _checkpoint_candidates(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield the names and the expressions of what the checkpoint may be."""
    recorded = f"{_checkpoint_series(plan)}[{plan.clock.text(REACH)}]"
    yield "now", _sum_series(plan)
    yield "before", f"last_over_time({recorded})"
    if not plan.objective.exclusions:
        events, back = _checkpoint_events(plan), plan.clock.real(CHECKPOINT_WINDOW)
        yield CHECKPOINT_WINDOW, f"last_over_time({recorded}{_ago(back)}) + {events}"
        hour = step_windows(plan)[0].seconds
        # A window that contains a counter's first sample is extrapolated by up to half a scrape.
        certain = number(round(1 - plan.clock.scrape_seconds / 2 / hour, 6))
        new, under_an_hour = _of_groups_since(plan, back), _of_groups_since(plan, hour)
        has_sum = _sum_series(plan, hour)
        yield "new", f"{certain} * {events} and {new} unless {under_an_hour} unless {has_sum}"


def base_rules(plan: Plan) -> Iterator[Rule]:
    """Yield the rules of the slow group for windows that begin in a pause of over an hour: the sum at that time.

    Each records some minutes before its window reaches the pause and until the window has passed it.
    """
    for window in plan.windows.values():
        if _has_base_rule(plan, window):
            soon = window.seconds - plan.clock.real(_AHEAD)
            present = f"({_sum_series(plan, window.seconds)} and {_sum_series(plan, soon)})"
            expr = "(\n" + indent("\nor\n".join(_in_long_pause(plan, window))) + f"\n)\nunless {present}"
            yield recording_rule(plan, names.sli_events_base(window.nominal), expr)


def difference(plan: Plan, window: RecordedWindow, event: str = "") -> str:
    """Return events per second over a window: the sum of now less that of when the window began."""
    own = plan.own.equal(names.EVENT, event) if event else plan.own
    current_sum = f"{names.SLI_EVENTS_SUM}{own}"
    at_start = indent("\nor\n".join(_sums_at_start(plan, window, own)), 4)
    events = f"{current_sum}\n- (\n{at_start}\n)"
    return f"clamp_min(\n{indent(events)},\n  0\n) / {number(window.seconds)}"


def _sums_at_start(plan: Plan, window: RecordedWindow, own: Matchers) -> Iterator[str]:
    """Yield what the sum was when a window began; the first that there is applies."""
    current_sum, hour = f"{names.SLI_EVENTS_SUM}{own}", step_windows(plan)[0]
    yield f"(0 * {current_sum} and {_of_groups_since(plan, window.seconds)})"
    yield f"{current_sum}{_ago(window.seconds)}"
    if (later := window.seconds - hour.seconds) > 0:
        # If the window began in a pause of under an hour: the sum an hour later, less that hour's events.
        yield f"({current_sum}{_ago(later)} - {_events_within(plan, hour, later, own)})"
    if _has_base_rule(plan, window):
        yield f"{names.sli_events_base(window.nominal)}{own}"


def _has_base_rule(plan: Plan, window: RecordedWindow) -> bool:
    """Return whether the slow group records the sum at a window's start: shorter windows move too fast for it."""
    return not window.from_counters and window.seconds >= plan.clock.real(CHECKPOINT_WINDOW)


def _in_long_pause(plan: Plan, window: RecordedWindow) -> Iterator[str]:
    """Yield the sum six hours after a window began less the events in between, or else one of before the pause."""
    if not plan.objective.exclusions:
        later = window.seconds - plan.clock.real(CHECKPOINT_WINDOW)
        yield f"({_checkpoint_series(plan, later)} - {_checkpoint_events(plan, later)})"
    search = f"[{plan.clock.text(REACH)}:{plan.clock.text(_SEARCH_STEP)}]"
    yield f"last_over_time({_checkpoint_series(plan)}{search} offset {window.text})"


def _of_groups_since(plan: Plan, seconds: float) -> str:
    """Return `on (...)` with the groups whose sum began less than `seconds` ago: all of it is in the window."""
    return f"{on_group(plan)} ({_since_series(plan)} > time() - {number(seconds)})"


def _largest(candidates: Iterable[tuple[str, str]]) -> str:
    labelled = (
        f'label_replace(\n{indent(expr)},\n  "{names.RUNG}", "{name}", "", ""\n)' for name, expr in candidates
    )
    return f"max without ({names.RUNG}) (\n" + indent("\nor\n".join(labelled)) + "\n)"


def _sum_series(plan: Plan, ago: float = 0) -> str:
    return f"{names.SLI_EVENTS_SUM}{plan.own}{_ago(ago)}"


def _checkpoint_series(plan: Plan, ago: float = 0) -> str:
    return f"{names.SLI_EVENTS_CHECKPOINT}{plan.own}{_ago(ago)}"


def _since_series(plan: Plan) -> str:
    return f"{names.SLI_EVENTS_SINCE}{plan.own}"


def _events_within(plan: Plan, window: RecordedWindow, ago: float = 0, own: Matchers | None = None) -> str:
    """Return PromQL for the events of a window that is read from counters."""
    return f"{number(window.seconds)} * {names.sli_events(window.nominal)}{own or plan.own}{_ago(ago)}"


def _checkpoint_events(plan: Plan, ago: float = 0) -> str:
    """Return PromQL for the events of the checkpoint's window."""
    seconds = number(plan.clock.real(CHECKPOINT_WINDOW))
    return f"{seconds} * {names.SLI_EVENTS_COUNTED}{plan.own}{_ago(ago)}"


def _ago(seconds: float) -> str:
    return f" offset {duration_text(seconds)}" if seconds else ""
