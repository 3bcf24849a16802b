"""Samples that an evaluation reads, ours beside Sloth's, on a real Prometheus; writes docs/slo-samples.md."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from support.history import END
from support.samples import HOUR, STEP, Answer, History, Rule
from support.slo_scenarios import OBJECTIVE
from support.slo_shapes import GROUP, sloth
from support.tools import ROOT
from triton_exporter.catalogue import triton
from triton_slo import conventions as names
from triton_slo.artifact import Options
from triton_slo.duration import parse_seconds
from triton_slo.generate import artifacts

LONG = ("2h", "6h", "1d", "3d", "30d")
SIZES = ((10, 31.0), (100, 3.2), (1000, 3.2))
"""Models, and days of history: 31 days of 1,000 models are 90 million samples, more than a bench should write."""
ENOUGH = 100
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


def raw_ratio(window: str, further: int = 0) -> str:
    """The error ratio of a whole window from the counters, of models with enough failures for 1 % to mean one."""
    window = f"{parse_seconds(window) + further:.0f}s"
    failed = f'sum by ({GROUP}) (rate({triton.REQUEST_FAILURE}{{reason!="CANCELED"}}[{window}]))'
    good = f"sum by ({GROUP}) (rate({triton.REQUEST_SUCCESS}[{window}]))"
    return f"{failed} / ({failed} + {good}) and {failed} >= {ENOUGH / parse_seconds(window):.9f}"


def read(folder: Path, models: int, days: float) -> Reading:
    """Record both engines' rules over a history, then evaluate every rule once at its end."""
    (text,) = (
        one.text
        for one in artifacts((OBJECTIVE,), Options(scrape_interval_seconds=STEP))
        if one.name == "slo-errors.yml" and one.part == "rules"
    )
    ours, theirs = rules_of(text), rules_of(sloth())
    history = History(folder, models, days, END)
    recording = [rule for rule in ours if "record" in rule]
    # Tiles need each hour of the past; what looks back over minutes needs the minutes of the last hour.
    history.record(recording, (history.start + 2 * HOUR, END, HOUR), (END - 2 * HOUR, END, STEP))
    five = [rule for rule in theirs if rule.get("record", "").endswith("5m")]
    history.record(five, (history.start + HOUR, END, STEP))
    others = [rule for rule in theirs if "record" in rule and rule not in five]
    history.record(others, (END - 2 * HOUR, END, HOUR))

    at = history.evaluated(names.sli_error("1d"))
    our_answers = history.ask([rule["expr"] for rule in ours], at)
    their_answers = history.ask([rule["expr"] for rule in theirs], at)
    period = next(n for n, rule in enumerate(theirs) if rule.get("record", "").endswith("30d"))
    long = [window for window in LONG if window != "30d" or days > 30]
    tiled = history.ask([names.sli_error(window) for window in long], at)
    raw = history.ask([raw_ratio(window) for window in long], at)
    reach = history.ask([raw_ratio(window, STEP) for window in long], at)
    return Reading(
        models,
        days,
        sum(answer.samples for answer in our_answers),
        sum(answer.samples for answer in their_answers),
        sum(answer.samples for number, answer in enumerate(their_answers) if number != period),
        {w: differences(mine, true) for w, mine, true in zip(long, tiled, raw, strict=True)},
        {w: differences(mine, true) for w, mine, true in zip(long, tiled, reach, strict=True)},
    )


def differences(mine: Answer, true: Answer) -> list[float]:
    """Each model's relative difference, smallest first."""
    return sorted(abs(mine.values[model] / value - 1) for model, value in true.values.items())


HEAD = """# Samples that our rules read, beside Sloth's

Written by `make bench` (`tests/bench/bench_slo_samples.py`). A real Prometheus holds counters of so many models
(success and one failure reason each, one server, uneven traffic), scraped every 60 s; both engines' rules for one
objective are recorded over that history with promtool. Then every rule, alerts included, is evaluated once, and
Prometheus' own statistics (`stats=all`, `totalQueryableSamples`) are added up. Both detect the same incidents at
the same minute, but where [the scenarios](slo-proof.md) say otherwise. Sloth's period is a mean of 5-minute ratios
over 30 days; *without its period* leaves that rule out. At 1,000 models the history is 3.2 days, so that Sloth's
period reads a tenth of what it would after a month.

"""


def spread(found: list[float]) -> str:
    return f"{statistics.median(found):.3%}, {found[-1]:.3%}" if found else "too few failures"


def page(readings: list[Reading]) -> str:
    """The whole page."""
    lines = [
        "| models | history | ours | Sloth | ours / Sloth | Sloth without its period | ours / that |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in readings:
        lines.append(
            f"| {one.models:,} | {one.days:g} d | {one.ours:,} | {one.sloth:,} | {one.ours / one.sloth:.2%} "
            f"| {one.sloth_windows:,} | {one.ours / one.sloth_windows:.2%} |"
        )
    lines += [
        "",
        f"How far our windows, which are made of tiles, are from the counters, of models with at least {ENOUGH}",
        "failures in them: the median, and the worst. Tiles reach back one scrape further than their length, so",
        "that no event falls between two of them. *Same reach* compares with a window that does so, too; *plain*",
        "with one that does not: the two differ by that minute, which is much where failures come in bursts.",
        "",
        "| models | against | " + " | ".join(LONG) + " |",
        "|---|---|" + "---|" * len(LONG),
    ]
    for one in readings:
        for name, found in (("same reach", one.same), ("plain", one.plain)):
            cells = (spread(found[w]) if w in found else "history too short" for w in LONG)
            lines.append(f"| {one.models:,} | {name} | " + " | ".join(cells) + " |")
    return HEAD + "\n".join(lines) + "\n"


@pytest.mark.timeout(3600)
def test_a_tenth_of_the_samples(tmp_path: Path) -> None:
    """At most a tenth of what Sloth's shape reads, and windows within 1 % of the counters of their reach."""
    readings = [read(tmp_path / str(models), models, days) for models, days in SIZES]
    text = page(readings)
    PAGE.write_text(text)
    print(text)

    for one in readings:
        assert one.ours <= 0.1 * one.sloth_windows, one
        for window, found in one.same.items():
            assert found[-1] < 0.01, (window, one.models)
            assert statistics.median(one.plain[window]) < 0.01, (window, one.models)
