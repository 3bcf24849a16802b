"""Measure the error of our long windows, and the samples they read beside Sloth's; writes docs/slo-samples.md."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import yaml
from numpy.typing import NDArray

from bench.samples import HOUR, STEP, Answer, History, Rule
from slo.slo_scenarios import OBJECTIVE
from slo.slo_shapes import GROUP, sloth
from support.history import END
from support.promtool import recording_rules_for
from support.tools import ROOT
from triton_exporter.catalogue import triton
from triton_exporter.common.duration import parse_seconds
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.generate import artifacts

LONG = ("2h", "6h", "1d", "3d", "30d")
SIZES = ((10, 31.0), (100, 3.2))
"""Models, and days of history."""
ENOUGH = 100
SUMS = (
    names.SLI_EVENTS_SUM,
    names.SLI_EVENTS_SINCE,
    names.SLI_EVENTS_CHECKPOINT,
    names.SLI_EVENTS_LINK,
    names.LAST_SEEN_BEFORE,
    names.RETIRED_BEFORE,
    *map(names.sli_events_base, ("6h", "1d", "3d", "30d")),
)
"""Rules that read what they recorded before, or each other."""
PAGE = ROOT / "docs" / "slo-samples.md"


@dataclass(frozen=True)
class Reading:
    """What one evaluation of each engine's rules read, and by how much our long windows differ from raw."""

    models: int
    days: float
    ours: int
    sloth: int
    sloth_windows: int
    plain: dict[str, list[float]]
    same: dict[str, list[float]]


def rules_of(text: str) -> list[Rule]:
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


def shares(text: str) -> list[float]:
    """How often each rule is evaluated, as a share of the evaluations of most: rare ones cost so much less."""
    groups = yaml.safe_load(text)["groups"]
    return [
        STEP / parse_seconds(group["interval"]) if "interval" in group else 1.0
        for group in groups
        for _ in group["rules"]
    ]


def add_sums(history: History) -> None:
    """Add up the recorded hours: promtool records no rule that reads what it recorded itself an hour before.

    The last two hours have a sum a minute, the last day one every five minutes, as rules would record them.
    """
    series: dict[str, Sequence[tuple[float, float]]] = {}
    for labels, points in history.recorded(names.sli_events("1h")):
        times, rates = (np.array(column) for column in zip(*points, strict=True))
        totals = np.cumsum(rates) * HOUR
        own = ",".join(f'{name}="{value}"' for name, value in labels.items() if name != "__name__")
        last = times[-1]
        minutes = [at for at in np.arange(last - 2 * HOUR, last, STEP) if at not in times]
        fives = np.arange(last - 24 * HOUR, last, 300)
        every = np.array(sorted((*times, *minutes)))
        series[f"{names.SLI_EVENTS_SUM}{{{own}}}"] = _points(every, np.interp(every, times, totals))
        series[f"{names.SLI_EVENTS_CHECKPOINT}{{{own}}}"] = _points(fives, np.interp(fives, times, totals))
        if labels[names.EVENT] == names.TOTAL:
            alone = own.replace(f'{names.EVENT}="{names.TOTAL}"', "").strip(",").replace(",,", ",")
            series[f"{names.SLI_EVENTS_SINCE}{{{alone}}}"] = _points(every, np.full(every.size, times[0]))
    history.add(series)


def _points(times: NDArray[np.float64], values: NDArray[np.float64]) -> list[tuple[float, float]]:
    return list(zip(times.tolist(), values.tolist(), strict=True))


def raw_ratio(window: str, further: int = 0) -> str:
    """Return the error ratio of a whole window from the counters, of models with failures enough for 1 %."""
    window = f"{parse_seconds(window) + further:.0f}s"
    failed = f'sum by ({GROUP}) (rate({triton.REQUEST_FAILURE}{{reason!="CANCELED"}}[{window}]))'
    good = f"sum by ({GROUP}) (rate({triton.REQUEST_SUCCESS}[{window}]))"
    return f"{failed} / ({failed} + {good}) and {failed} >= {ENOUGH / parse_seconds(window):.9f}"


def read(folder: Path, models: int, days: float) -> Reading:
    """Record both engines' rules over a history, then evaluate every rule once at its end."""
    (text,) = (
        artifact.text
        for artifact in artifacts((OBJECTIVE,), Options(scrape_interval_seconds=STEP))
        if artifact.name == "slo-errors.yml" and artifact.part == "rules"
    )
    ours, theirs = rules_of(text), rules_of(sloth())
    history = History(folder, models, days, END)
    recording = [rule for rule in ours if "record" in rule and rule["record"] not in SUMS]
    # Sums need each hour of the past; windows of minutes need the minutes of the last hour.
    hours, minutes = (history.start + 2 * HOUR, END, HOUR), (END - 2 * HOUR, END, STEP)
    hour = recording_rules_for(recording, names.sli_events("1h"))
    history.record(hour, hours)
    add_sums(history)
    history.record(hour, minutes)
    history.record([rule for rule in recording if rule not in hour], hours, minutes)
    five = [rule for rule in theirs if rule.get("record", "").endswith("5m")]
    history.record(five, (history.start + HOUR, END, STEP))
    others = [rule for rule in theirs if "record" in rule and rule not in five]
    history.record(others, (END - 2 * HOUR, END, HOUR))

    at = history.evaluated(names.sli_error("1d"))
    our_answers = history.ask([rule["expr"] for rule in ours], at)
    their_answers = history.ask([rule["expr"] for rule in theirs], at)
    period = next(n for n, rule in enumerate(theirs) if rule.get("record", "").endswith("30d"))
    long = [window for window in LONG if window != "30d" or days > 30]
    windows = history.ask([names.sli_error(window) for window in long], at)
    raw = history.ask([raw_ratio(window) for window in long], at)
    reach = history.ask([raw_ratio(window, STEP) for window in long], at)
    return Reading(
        models,
        days,
        round(sum(a.samples * share for a, share in zip(our_answers, shares(text), strict=True))),
        sum(answer.samples for answer in their_answers),
        sum(answer.samples for number, answer in enumerate(their_answers) if number != period),
        {w: differences(mine, true) for w, mine, true in zip(long, windows, raw, strict=True)},
        {w: differences(mine, true) for w, mine, true in zip(long, windows, reach, strict=True)},
    )


def differences(mine: Answer, true: Answer) -> list[float]:
    """Each model's relative difference, smallest first."""
    return sorted(abs(mine.values[model] / value - 1) for model, value in true.values.items())


HEAD = """# How exact the long windows are, and what they read

A window longer than an hour is the difference of two running sums. This page shows how exact such windows are,
compared with the counters themselves, and how many samples an evaluation of our rules reads, compared with
Sloth's rules. What both cost in CPU seconds is in [what the rules cost](rule-cost.md).

`make bench` writes this page (`tests/bench/bench_slo_samples.py`). A real Prometheus contains the counters of the
models in the table (successes and one failure reason each, one server, uneven traffic), scraped every 60 s.
promtool records the rules of one objective over that history. The benchmark itself computes the running sums from
the recorded hours, because promtool cannot evaluate a rule that reads its own value of an hour ago. Then every
rule, including alerts, is evaluated once, and the samples that Prometheus reports (`stats=all`,
`totalQueryableSamples`) are added up. Rules of the slow group (`slo-errors-checkpoint`) count as often as they
are evaluated. Sloth computes the period as a mean of 5-minute ratios over 30 days; *without its period* leaves
out that rule.

"""


def spread(errors: list[float]) -> str:
    return f"{statistics.median(errors):.3%}, {errors[-1]:.3%}" if errors else "too few failures"


def page(readings: list[Reading]) -> str:
    """Return the whole page."""
    lines = [
        "| models | history | ours | Sloth | ours / Sloth | Sloth without its period | ours / that |",
        "|---|---|---|---|---|---|---|",
    ]
    for reading in readings:
        lines.append(
            f"| {reading.models:,} | {reading.days:g} d | {reading.ours:,} | {reading.sloth:,} | "
            f"{reading.ours / reading.sloth:.2%} "
            f"| {reading.sloth_windows:,} | {reading.ours / reading.sloth_windows:.2%} |"
        )
    lines += [
        "",
        "The next table shows the relative error of our windows against the counters, for models with at least",
        f"{ENOUGH} failures in the window: the median, and the worst. The hours of a running sum reach back one",
        "scrape further than an hour, so that no event falls between two of them. *Same reach* compares with a",
        "window that also reaches back one scrape further, *plain* with one that does not. They differ by the",
        "events of that minute, which are many if failures come in bursts.",
        "",
        "| models | against | " + " | ".join(LONG) + " |",
        "|---|---|" + "---|" * len(LONG),
    ]
    for reading in readings:
        for name, errors in (("same reach", reading.same), ("plain", reading.plain)):
            cells = (spread(errors[w]) if w in errors else "history too short" for w in LONG)
            lines.append(f"| {reading.models:,} | {name} | " + " | ".join(cells) + " |")
    return HEAD + "\n".join(lines) + "\n"


@pytest.mark.timeout(3600)
def test_windows_read_at_most_a_tenth_of_the_samples_of_sloth(tmp_path: Path) -> None:
    """At most a tenth of what Sloth's shape reads, and windows within 1 % of the counters of their reach."""
    readings = [read(tmp_path / str(models), models, days) for models, days in SIZES]
    text = page(readings)
    PAGE.write_text(text)
    print(text)

    for reading in readings:
        assert reading.ours <= 0.1 * reading.sloth_windows, reading
        for window, errors in reading.same.items():
            assert errors[-1] < 0.01, (window, reading.models)
            assert statistics.median(reading.plain[window]) < 0.01, (window, reading.models)
