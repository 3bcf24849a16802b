"""Pauses: rules that are not evaluated for minutes or hours, while scraping goes on or with all of Prometheus down.

As in the budget simulator everything is a twelfth of its nominal length: an hour is 5 minutes, the period of 7 days
is 14 hours. Between pauses rules are evaluated every 15 s, which stands for 3 minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from support.promtool import PAUSED, evaluated, grouped, pausable, resting_on
from support.simulator import EVERY, LENGTH, PERIOD, SCRAPE, TICK, TILE, Life, Model, Pause, Replica
from support.slo_scenarios import PAUSES, run
from support.slo_table import true_budget
from support.tools import promtools
from triton_slo import conventions as names
from triton_slo.artifact import Options
from triton_slo.duration import parse_seconds
from triton_slo.generate import artifacts
from triton_slo.objective.model import Objective

pytestmark = pytest.mark.real

OBJECTIVE = Objective.model_validate(
    {"name": "errors", "target": 0.99, "indicator": "errors", "window": "7d"}
)
SCALE = TILE * TICK / parse_seconds("1h")
WINDOWS = {"6h": 6 * TILE, "1d": 24 * TILE, "3d": 72 * TILE, "7d": PERIOD}
WHOLE = (Replica("a", (Life(0, LENGTH),)),)
AWAKE = TILE // 6
"""Ticks (10 minutes) after a pause in which nothing is asked: counters need a few scrapes."""


def rules() -> str:
    options = Options(scrape_interval_seconds=SCRAPE, time_scale=SCALE)
    (text,) = (one.text for one in artifacts([OBJECTIVE], options) if one.name == "slo-errors.yml")
    recording = [
        rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"] if "record" in rule
    ]
    kept = resting_on(recording, *(names.sli_events(window) for window in WINDOWS))
    return grouped({"budget": pausable(kept)})


def check(models: Sequence[Model], pauses: Sequence[Pause], folder: Path) -> None:
    """Whatever is asked between the pauses: failures and requests of each window within 1 % of the truth."""
    paused = " ".join("1" if any(tick in pause for pause in pauses) else "0" for tick in range(LENGTH))
    series = {name: values for model in models for name, values in model.series(pauses)}
    ticks = [
        tick
        for tick in range(TILE, LENGTH, 3 * TILE)
        if not any(pause.start <= tick <= pause.end + AWAKE for pause in pauses)
    ]
    asked = [
        (window, tick, event) for window in WINDOWS for tick in ticks for event in (names.ERROR, names.TOTAL)
    ]
    queries = [
        (f'{names.sli_events(window)}{{{names.EVENT}="{event}"}}', float(tick * TICK))
        for window, tick, event in asked
    ]
    answers = evaluated(
        promtools()[-1],
        folder,
        rules(),
        {**series, PAUSED: f"0 {paused}"},
        queries,
        interval=TICK,
        evaluation=SCRAPE,
    )
    for (window, tick, event), answer in zip(asked, answers, strict=True):
        found = {labels["model"]: value * WINDOWS[window] * TICK for labels, value in answer}
        for model in models:
            least, most = bounds(model, pauses, tick - WINDOWS[window], tick, event == names.TOTAL)
            assert least <= found.get(model.name, -1) <= most, (model.name, window, event, tick, pauses)


def bounds(model: Model, pauses: Sequence[Pause], start: int, end: int, every: bool) -> tuple[float, float]:
    """1 % about the truth; what happened around a window's ends, or in a pause that it began in, may count."""
    first, last = start, start
    for pause in pauses:
        if start - EVERY in pause or start + EVERY in pause:
            first, last = min(first, pause.start), max(last, pause.end)
    least = model.truth(last + EVERY, end - 2 * EVERY)[every]
    most = model.truth(first - EVERY, end + EVERY)[every]
    # Sums of neighbouring evaluations may differ by what happened between two of them, at the busiest time.
    apart = 1 + EVERY * max(rate * (1 if every else share) for rate, share in model.stretches)
    return 0.99 * least - apart, 1.01 * most + apart


BUSY_THEN_QUIET = ((10.0, 0.0), (10.0, 0.0), (0.2, 0.1), (0.2, 0.0)) * 3
OUTAGES = ((2.0, 0.0), (2.0, 0.0), (2.0, 0.5), (2.0, 0.0), (2.0, 0.0), (2.0, 0.0)) * 2
MODELS = (Model("busy then quiet", BUSY_THEN_QUIET, WHOLE, 1), Model("outages", OUTAGES, WHOLE, 2))


def at(hour: float, minutes: float, down: bool) -> Pause:
    start = round(hour * TILE)
    return Pause(start, start + round(minutes * TILE / 60), down)


@pytest.mark.parametrize("down", [False, True], ids=["rules only", "all down"])
@pytest.mark.parametrize(
    "pauses",
    [
        pytest.param(((4, 10), (58.4, 50), (120.7, 10)), id="10 to 50 min"),
        pytest.param(((4, 110), (58.4, 360), (120.7, 65)), id="1 to 6 h"),
    ],
)
def test_a_pause_leaves_no_hole_in_any_window(
    pauses: tuple[tuple[float, float], ...], down: bool, tmp_path: Path
) -> None:
    """Three pauses, one of them where the period begins: every window stays within 1 % of what was scraped."""
    check(MODELS, [at(hour, minutes, down) for hour, minutes in pauses], tmp_path)


def test_a_pause_pages_nobody_and_hides_nothing() -> None:
    """Ten minutes without rules on a busy day wake nobody in the evening; an outage over a restart pages once."""
    chosen = [one for one in PAUSES if "10 min" in one.name]
    for scenario, outcome in zip(chosen, run("ours", chosen), strict=True):
        assert len(scenario.incidents) == len(outcome.pages), scenario.name
        assert pytest.approx(true_budget(scenario), abs=0.05) == outcome.budget, scenario.name
