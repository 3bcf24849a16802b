"""Displays of the usual figures: the same unit, colours and words on every dashboard."""

from __future__ import annotations

from dataclasses import replace

from triton_dashboards.query import NO_SHARE
from triton_dashboards.values import Color, Display, Style, Threshold
from triton_slo import signals
from triton_slo.alert_settings import Tuning
from triton_slo.signals import Level, Share, Signal

REQUESTS = Display("reqps", minimum=0, no_value="No traffic")
FAILED = Display(
    "percentunit",
    minimum=0,
    no_value="No traffic",
    thresholds=(Threshold("green"), Threshold("orange", 0.001), Threshold("red", 0.01)),
)
"""Colours only: an objective's own limit is on its dashboard."""
SECONDS = Display("s", minimum=0, no_value="No traffic")
MICROSECONDS = Display("µs", minimum=0, no_value="No traffic")
SHARE = Display("percentunit", minimum=0, maximum=1)
BATCH = Display("short", decimals=1, minimum=0, no_value="No traffic")
COUNT = Display("locale", decimals=0, minimum=0)
"""A number of things, in full: 1,234, not 1 K."""
FAULTS = Display("locale", decimals=0, thresholds=(Threshold("green"), Threshold("red", 1)))
"""Something of which there should be none."""
WARNINGS = replace(FAULTS, thresholds=(Threshold("green"), Threshold("orange", 1)))
"""The same, where it is not urgent."""
BUDGET = Display(
    "percentunit",
    decimals=1,
    maximum=1,
    no_value="No budget yet",
    thresholds=(Threshold("red"), Threshold("orange", 0.1), Threshold("green", 0.5)),
)
"""Share of the period's error budget that is left; below zero it is overspent."""
MATURE = "A budget is shown once there are three days of data, a tenth of its usual period."
BUDGET_CELL = replace(BUDGET, words={NO_SHARE: ("–", "text")})
"""Share of the budget that is left, in a table that is sorted by it."""
BURN = Display(
    "short",
    minimum=0,
    no_value="No objective",
    thresholds=(Threshold("green"), Threshold("orange", 1), Threshold("red", 6)),
)
"""1 spends exactly the budget in its period."""
FAILED_BY = replace(FAILED, shade="red")
"""Share of failed requests in a graph of several series: Grafana's own palette begins with green."""
FAILURES = replace(COUNT, shade="red")
"""Failures over time: bars in shades of red, whatever they are called."""
FIRING = Display(
    words={1: ("Ticket", "orange"), 2: ("Page", "red")}, thresholds=(Threshold("orange"), Threshold("red", 2))
)
"""Urgency of a firing alert: a ticket or a page."""
YES = Display(words={0: ("No", "red"), 1: ("Yes", "green")})
YES_BANDS = Display(words={0: ("No", "dark-red"), 1: ("Yes", "light-green")})
"""Yes or no as bands over time: dark against light, for people who cannot distinguish red and green."""
BYTES = Display("bytes", minimum=0)
DASHED_LIMIT = Style("limit", "red", "limit", prefix=True)
"""A series named "limit" or "limit of ..." is a dashed red line, not one of the measured ones."""


def warned(display: Display, signal: Signal) -> Display:
    """Return the same with the limit from which an alert fires, for a graph that draws its thresholds."""
    return replace(display, thresholds=_ascending("transparent", ("orange", signal.limit)))


def judged(display: Display, signal: Signal) -> Display:
    """Return the same for one number: orange from where an alert fires."""
    return replace(display, thresholds=_ascending("green", ("orange", signal.limit)))


def filled(signal: Share) -> Display:
    """Return how full a memory is: orange from 90 %, red from where the alert fires."""
    steps = _ascending("green", ("orange", 0.9), ("red", signal.limit))
    return replace(SHARE, decimals=0, thresholds=steps)


def queue_share(tuning: Tuning, model: str = "") -> Display:
    """Return the share of their time that requests spend in the queue: orange from where the alert fires."""
    limit = signals.QUEUE_SHARE.tuned(tuning, model).limit
    steps = _ascending("green", ("orange", limit), ("red", max(0.8, limit or 0)))
    return replace(SHARE, no_value="No traffic", thresholds=steps)


def aged(signal: Level, no_value: str) -> Display:
    """Return an age: orange from half of what the alert lets pass, red from where it fires."""
    half = None if signal.limit is None else signal.limit / 2
    return Display(
        "s", 0, 0, no_value=no_value, thresholds=_ascending("green", ("orange", half), ("red", signal.limit))
    )


def _ascending(base: Color, *colored: tuple[Color, float | None]) -> tuple[Threshold, ...]:
    """Return ascending thresholds, as Grafana needs them: a later colour replaces those it is not above."""
    steps: list[Threshold] = []
    for color, value in colored:
        if value is not None:
            steps = [step for step in steps if step.value is not None and step.value < value]
            steps.append(Threshold(color, value))
    return (Threshold(base), *steps)


def calm(display: Display) -> Display:
    """Return the same without green: in a table only what is wrong has a colour."""
    steps = (replace(step, color="text") if step.color == "green" else step for step in display.thresholds)
    return replace(display, thresholds=tuple(steps))
