"""Running sums of events, which windows over an hour are differences of.

A sum is that of an hour ago plus the last hour's events, as the counters show them. An evaluation that never took
place leaves no hole: where no sum was recorded an hour ago, those of half an hour and of ten minutes ago serve as
well. Whatever is missing in a candidate makes it smaller, so the largest misses the fewest. `rate` extrapolates,
however, by up to a scrape's jitter in a window: the shorter the window, the more of its events that is, and the
largest of many would creep upward. After a pause of over an hour the checkpoint helps: a group of rules that is
evaluated every few minutes, keeps the sum for a day, and reads six hours of the counters.

Where time is left out (`exclusions`), nothing is read over more than five minutes: what happens in a pause is lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from triton_exporter.common.duration import duration_text
from triton_slo import names
from triton_slo.objective.model import HALF_HOUR, TILE
from triton_slo.promql import Matchers, indent, number, on
from triton_slo.rules.pauses import REACH, remembered_start
from triton_slo.rules.plan import Plan, on_group, recording_rule
from triton_slo.rules.rulefile import Rule
from triton_slo.rules.windows import BURST_WINDOW, MIN_SCRAPES, RecordedWindow

CHECKPOINT = "4m"
"""Interval of the group that is evaluated slowly: Prometheus forgets a sample after five minutes."""
CHECKPOINT_WINDOW = "6h"
"""Window of the counters that the slow group reads: a pause of the rules up to this length loses nothing."""
_SPARSE = "1h"
_LEAD = "10m"
"""Longer than twice the slow group's interval: what it records is there when a window reaches a pause."""
_RECENT = "11m"
"""Holds an evaluation of the checkpoint, also a late one."""


def carry_windows(plan: Plan) -> tuple[str, ...]:
    """Windows from counters by which a sum goes on, longest first."""
    return (TILE,) if plan.objective.exclusions else ("1h", HALF_HOUR, BURST_WINDOW)


def link_seconds(plan: Plan) -> float:
    """Length of the window that links a sum to one before."""
    return MIN_SCRAPES * plan.clock.scrape_seconds


def sum_rules(plan: Plan) -> Iterator[Rule]:
    """Yield the rules of a sum and of its start; after the windows from counters, before those that are not."""
    total = f"{names.sli_events(TILE)}{plan.own.equal(names.EVENT, names.TOTAL)}"
    now = f"time() + 0 * sum without ({names.EVENT}) ({total})"
    since = remembered_start(plan, names.SLI_EVENTS_SINCE, _SPARSE, on_group(plan), now)
    yield recording_rule(
        plan, names.SLI_EVENTS_SINCE, f"(\n{indent(since)}\n)\nand {on_group(plan)}\n{total}"
    )
    longest = plan.windows[carry_windows(plan)[0]]
    recently = duration_text(link_seconds(plan))
    recorded = f"last_over_time({_sum_series(plan)}[{recently}]{_ago(longest.seconds)})"
    candidates: dict[str, str] = {}
    for nominal in carry_windows(plan):
        window = plan.windows[nominal]
        gone_on = f"{_sum_series(plan, window.seconds)} + {_events_within(plan, window)}"
        candidates[nominal] = gone_on if window is longest else f"{gone_on}\nunless {recorded}"
    # While there is no sum of ten minutes ago: each goes on from its neighbour, so that all of them agree.
    seconds = link_seconds(plan)
    events = f"{number(seconds)} * {names.SLI_EVENTS_LINK}{plan.own}"
    candidates["link"] = f"{_sum_series(plan, seconds)} + {events}"
    candidates["before"] = _sum_series(plan)
    candidates["checkpoint"] = f"last_over_time({_checkpoint_series(plan)}[{plan.clock.text(_RECENT)}])"
    candidates["new"] = (
        f"{_events_within(plan, longest)} and {on_group(plan)} ({_began_within(plan, seconds)})"
    )
    yield recording_rule(plan, names.SLI_EVENTS_SUM, _largest(candidates))


def unless_carried(plan: Plan) -> str:
    """Return what follows the events of a link: there are none where a longer window carries the sum on."""
    nearest = plan.windows[carry_windows(plan)[-1]]
    return f"unless {on_group(plan, names.EVENT)} {_sum_series(plan, nearest.seconds)}"


def checkpoint_rule(plan: Plan) -> Rule:
    """Return what outlasts a pause; evaluated every few minutes, in a group of its own."""
    reach = plan.clock.text(REACH)
    candidates = {"now": _sum_series(plan), "before": f"last_over_time({_checkpoint_series(plan)}[{reach}])"}
    if not plan.objective.exclusions:
        back = plan.clock.text(CHECKPOINT_WINDOW)
        earlier = f"last_over_time({_checkpoint_series(plan)}[{reach}] offset {back})"
        candidates[CHECKPOINT_WINDOW] = f"{earlier} + {_checkpoint_events(plan)}"
        seconds = plan.clock.real(CHECKPOINT_WINDOW)
        hour = plan.windows[carry_windows(plan)[0]].seconds
        # A window that holds a counter's first sample is extrapolated by up to half a scrape.
        certain = number(round(1 - plan.clock.scrape_seconds / 2 / hour, 6))
        young, younger = (f"{on_group(plan)} ({_began_within(plan, length)})" for length in (seconds, hour))
        counted = f"{certain} * {_checkpoint_events(plan)}"
        candidates["new"] = f"{counted} and {young} unless {younger} unless {_sum_series(plan, hour)}"
    alive = f"{names.sli_events(TILE)}{plan.own}"
    return recording_rule(plan, names.SLI_EVENTS_CHECKPOINT, f"{_largest(candidates)}\nand\n{alive}")


def base_rules(plan: Plan) -> Iterator[Rule]:
    """Sums of when windows began that lie in a pause of over an hour: rules of the slow group.

    They begin to record before a window reaches a pause, and record nothing otherwise.
    """
    for window in plan.windows.values():
        if _has_base_rule(plan, window):
            soon = window.seconds - plan.clock.real(_LEAD)
            present = f"({_sum_series(plan, window.seconds)} and {_sum_series(plan, soon)})"
            expr = "(\n" + indent("\nor\n".join(_in_long_pause(plan, window))) + f"\n)\nunless {present}"
            yield recording_rule(plan, names.sli_events_base(window.nominal), expr)


def difference(plan: Plan, window: RecordedWindow, event: str = "") -> str:
    """Events per second over a window: the sum of now less that of when the window began.

    The objective's own period also has its corrections; what alerts read over shorter windows has none.
    """
    own = plan.own.equal(names.EVENT, event) if event else plan.own
    now = f"{names.SLI_EVENTS_SUM}{own}"
    young = f"(0 * {now} and {on_group(plan)} ({_began_within(plan, window.seconds)}))"
    hour = plan.windows[carry_windows(plan)[0]]
    began = [young, f"{now}{_ago(window.seconds)}"]
    if (later := window.seconds - hour.seconds) > 0:
        # In a pause: the sum an hour later, less that hour's events.
        began.append(f"({now}{_ago(later)} - {_events_within(plan, hour, later, own)})")
    if _has_base_rule(plan, window):
        began.append(f"{names.sli_events_base(window.nominal)}{own}")
    first = indent("\nor\n".join(began), 4)
    events = f"{now}\n- (\n{first}\n)"
    if window is plan.period:
        events += (
            f"\n+ (\n{indent(corrections(plan, own, window.text, _since_series(plan)))}\n  or\n  0 * {now}\n)"
        )
    return f"clamp_min(\n{indent(events)},\n  0\n) / {number(window.seconds)}"


def corrections(plan: Plan, own: Matchers, window: str, since: str) -> str:
    """Events by which corrections change a period: of each that starts where, or after, its events are counted.

    A sum that began again after a pause does not contain the events of before it: nothing is to be taken from it.
    """
    of_group, each = plan.objective.group_by, (*plan.objective.group_by, names.CORRECTION)
    counted_from = f"last_over_time({names.CORRECTION_FROM}{plan.own}[{window}])"
    matching = of_group if since == _since_series(plan) else ()
    return (
        f"sum without ({names.CORRECTION}) (\n"
        f"  sum_over_time({names.SLI_EVENTS_CORRECTION}{own}[{window}])\n"
        f"  and {on(each)} ({counted_from} >= {on(matching)} group_left () {since})\n)"
    )


def _has_base_rule(plan: Plan, window: RecordedWindow) -> bool:
    """Shorter windows change too fast to begin at what was recorded minutes ago."""
    return not window.raw and window.seconds >= plan.clock.real(CHECKPOINT_WINDOW)


def _in_long_pause(plan: Plan, window: RecordedWindow) -> Iterator[str]:
    """Yield the sum six hours after a window began less the events in between, or else one of before the pause."""
    if not plan.objective.exclusions:
        later = window.seconds - plan.clock.real(CHECKPOINT_WINDOW)
        yield f"({_checkpoint_series(plan, later)} - {_checkpoint_events(plan, later)})"
    sparse = f"[{plan.clock.text(REACH)}:{plan.clock.text(_SPARSE)}]"
    yield f"last_over_time({_checkpoint_series(plan)}{sparse} offset {window.text})"


def _began_within(plan: Plan, seconds: float) -> str:
    """Groups whose sum began so lately: all of it is in a window of that length."""
    return f"{_since_series(plan)} > time() - {number(seconds)}"


def _largest(candidates: Mapping[str, str]) -> str:
    labelled = (
        f'label_replace(\n{indent(expr)},\n  "{names.RUNG}", "{rung}", "", ""\n)'
        for rung, expr in candidates.items()
    )
    return f"max without ({names.RUNG}) (\n" + indent("\nor\n".join(labelled)) + "\n)"


def _sum_series(plan: Plan, ago: float = 0) -> str:
    return f"{names.SLI_EVENTS_SUM}{plan.own}{_ago(ago)}"


def _checkpoint_series(plan: Plan, ago: float = 0) -> str:
    return f"{names.SLI_EVENTS_CHECKPOINT}{plan.own}{_ago(ago)}"


def _since_series(plan: Plan) -> str:
    return f"{names.SLI_EVENTS_SINCE}{plan.own}"


def _events_within(plan: Plan, window: RecordedWindow, ago: float = 0, own: Matchers | None = None) -> str:
    """Events of a window that is read from counters."""
    return f"{number(window.seconds)} * {names.sli_events(window.nominal)}{own or plan.own}{_ago(ago)}"


def _checkpoint_events(plan: Plan, ago: float = 0) -> str:
    """Events of the checkpoint's window."""
    seconds = number(plan.clock.real(CHECKPOINT_WINDOW))
    return f"{seconds} * {names.SLI_EVENTS_COUNTED}{plan.own}{_ago(ago)}"


def _ago(seconds: float) -> str:
    return f" offset {duration_text(seconds)}" if seconds else ""
