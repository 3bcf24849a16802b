"""Test pauses of rule evaluation for minutes or hours, while scraping goes on or with all of Prometheus down.

As in the budget simulator everything is a twelfth of its nominal length: an hour is 5 minutes, the period of 7 days
is 14 hours. Between pauses rules are evaluated every 30 s, which stands for 6 minutes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from slo.simulator import EVERY, LENGTH, PERIOD, SCRAPE, TICK, TILE, Life, Model, Pause, Replica
from slo.slo_scenarios import PAUSES, STEP, Scenario, run
from slo.slo_table import true_budget
from support.promtool import PAUSED, at_own_interval, evaluated, pausable, recording_rules_for, rule_file
from support.thorough import THOROUGH
from support.tools import promtools
from triton_exporter.catalogue import triton
from triton_exporter.common.duration import parse_seconds
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.generate import artifacts
from triton_slo.objective.model import Objective

pytestmark = pytest.mark.real

OBJECTIVE = Objective.model_validate(
    {"name": "errors", "target": 0.99, "indicator": "errors", "window": "7d"}
)
SCALE = TILE * TICK / parse_seconds("1h")
WINDOWS = {"6h": 6 * TILE, "1d": 24 * TILE, "3d": 72 * TILE, "7d": PERIOD}
WHOLE = (Replica("a", (Life(0, LENGTH),)),)
EVALUATION = 2 * EVERY
"""Ticks between two evaluations of the rules."""
AWAKE = TILE // 6
"""Ticks (10 minutes) after a pause in which nothing is asked: counters need a few scrapes."""


def recording(options: Options, objective: Objective = OBJECTIVE) -> list[dict[str, str]]:
    name = f"slo-{objective.name}.yml"
    (text,) = (artifact.text for artifact in artifacts([objective], options) if artifact.name == name)
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"] if "record" in rule]


def rules(*windows: str) -> str:
    every = recording(Options(scrape_interval_seconds=SCRAPE, time_scale=SCALE))
    return rule_file(
        {"budget": pausable(recording_rules_for(every, *map(names.sli_events, windows)), by="model")}
    )


def check(pauses_of: Mapping[Model, Sequence[Pause]], folder: Path) -> None:
    """Between a model's pauses, the events of each window are within 1 % of the truth."""
    series: dict[str, str] = {}
    for model, pauses in pauses_of.items():
        series |= dict(model.series(pauses))
    asked = [
        (window, tick, event)
        for window in WINDOWS
        for tick in range(TILE, LENGTH, TILE)
        for event in (names.ERROR, names.TOTAL)
    ]
    queries = [
        (f'{names.sli_events(window)}{{{names.EVENT}="{event}"}}', float(tick * TICK))
        for window, tick, event in asked
    ]
    answers = evaluated(
        promtools()[-1],
        folder,
        rules(*WINDOWS),
        series,
        queries,
        interval=TICK,
        evaluation=EVALUATION * TICK,
    )
    for (window, tick, event), answer in zip(asked, answers, strict=True):
        events = {labels["model"]: value * WINDOWS[window] * TICK for labels, value in answer}
        for model, pauses in pauses_of.items():
            if any(pause.start <= tick <= pause.end + AWAKE for pause in pauses):
                continue
            least, most = bounds(model, pauses, tick - WINDOWS[window], tick, event == names.TOTAL)
            assert least <= events.get(model.name, -1) <= most, (model.name, window, event, tick, pauses)


def bounds(model: Model, pauses: Sequence[Pause], start: int, end: int, every: bool) -> tuple[float, float]:
    """1 % about the truth; what happened around a window's ends, or in a pause that it began in, may count."""
    first, last = start, start
    for pause in pauses:
        if start - EVALUATION in pause or start + EVALUATION in pause:
            first, last = min(first, pause.start), max(last, pause.end)
    least = model.truth(last + EVALUATION, end - EVALUATION - EVERY)[every]
    most = model.truth(first - EVALUATION, end + EVERY)[every]
    # Sums of neighbouring evaluations may differ by what happened between two of them, at the busiest time.
    rate = max(rate * (1 if every else share) for rate, share in model.stretches)
    apart = 1 + EVALUATION * rate * len(model.replicas)
    return 0.99 * least - apart, 1.01 * most + apart


BUSY_THEN_QUIET = ((10.0, 0.0), (10.0, 0.0), (0.2, 0.1), (0.2, 0.0)) * 3
OUTAGES = ((2.0, 0.0), (2.0, 0.0), (2.0, 0.5), (2.0, 0.0), (2.0, 0.0), (2.0, 0.0)) * 2
MODELS = (Model("busy then quiet", BUSY_THEN_QUIET, WHOLE, 1), Model("outages", OUTAGES, WHOLE, 2))


DOWN = 350
"""Minutes without a scrape: a window of 6 hours must contain a scrape from before and one from after, and be
evaluated while it does, every 6 minutes here."""


def at(hour: float, minutes: float, down: bool) -> Pause:
    start, minutes = round(hour * TILE), min(minutes, DOWN) if down else minutes
    return Pause(start, start + round(minutes * TILE / 60), down)


def regular_pauses() -> dict[Model, list[Pause]]:
    """Pauses of 10 minutes to 6 hours, two of them where a period begins.

    A pause of the rules and one of everything alternate; what the one models begin with, the others do not.
    """
    lengths = ((4, 10), (15.3, 110), (58.4, 50), (85.6, 360), (120.7, 10), (146.2, 65))
    both = [(model, down) for down in (False, True) for model in MODELS]
    return {
        replace(model, name=f"{model.name}, {'all down' if down else 'rules only'} first"): [
            at(hour, minutes, down != bool(number % 2)) for number, (hour, minutes) in enumerate(lengths)
        ]
        for model, down in (both if THOROUGH else both[::3])
    }


DAYS = 4
"""Days with random pauses."""


def random_pauses(seed: int) -> dict[Model, list[Pause]]:
    """Return a pause of 4 minutes to 6 hours on each of three days, and now and then a missed evaluation.

    One of the two models has a server that restarts meanwhile.
    """
    random = np.random.default_rng(seed)
    until = DAYS * 24 * TILE
    long = [
        at(24 * day + random.uniform(2, 16), random.uniform(4, 360), bool(random.integers(2)))
        for day in range(DAYS - 1)
    ]
    missed = random.choice(until // EVALUATION, 40, replace=False) * EVALUATION
    pauses = long + [Pause(int(tick), int(tick) + EVERY) for tick in missed if tick > TILE]
    restart = int(np.random.default_rng(seed).integers(TILE, until - TILE))
    twice = (
        Replica("a", (Life(0, restart, 10**6), Life(restart + 2, LENGTH))),
        Replica("b", (Life(0, LENGTH),), phase=0),
    )
    outages = Model(f"outages, random {seed}", OUTAGES, WHOLE, seed)
    restarts = Model(f"restarts, random {seed}", ((5.0, 0.02),), twice, seed)
    return dict.fromkeys((outages, restarts), pauses)


def test_pauses_leave_no_hole_in_any_window(tmp_path: Path) -> None:
    """Whenever rules pause or miss an evaluation, and servers restart: every window stays within 1 %."""
    pauses_of = regular_pauses()
    for seed in range(1, 9) if THOROUGH else [1]:
        pauses_of |= random_pauses(seed)

    check(pauses_of, tmp_path)


def test_jittered_scrapes_do_not_raise_the_sum(tmp_path: Path) -> None:
    """A minute of failures every seven, scraped up to 5 s early or late, some never: within 0.3 % of all."""
    scrape, length, start = 30, 10 * 3600, 2 * 3600
    random = np.random.default_rng(5)
    failed = np.where(np.arange(length) % 437 < 60, random.poisson(2, length), 0).cumsum()
    scraped = ["_"] * length
    for due in range(10, length, scrape):
        if random.random() > 0.01:
            at = due + int(random.integers(-5, 6))
            scraped[at] = str(1000 + failed[at])
    labels = 'model="m", version="1", instance="a"'
    series = {
        f'{triton.REQUEST_FAILURE}{{{labels}, reason="BACKEND"}}': " ".join(scraped),
        f"{triton.REQUEST_SUCCESS}{{{labels}}}": " ".join("_" if mark == "_" else "1" for mark in scraped),
    }
    # Quiet moments, so that no failure waits for its scrape.
    first, last = (next(at for at in range(end, 0, -60) if at % 437 > 150) for end in (start, length - 60))
    asked = [(f'{names.SLI_EVENTS_SUM}{{{names.EVENT}="error"}}', float(at)) for at in (first, last)]
    recorded = recording_rules_for(recording(Options(scrape_interval_seconds=scrape)), names.SLI_EVENTS_SUM)
    answers = evaluated(
        promtools()[-1],
        tmp_path,
        rule_file({"sum": recorded}),
        series,
        asked,
        interval=1,
        evaluation=60,
    )
    before, after = (answer[0][1] for answer in answers)
    assert pytest.approx(failed[last] - failed[first], rel=0.003) == after - before


EVENING = Scenario(
    "a busy time, a quiet one at 0.8 %, and no rule is evaluated for 10 min about the change",
    ((120, 60_000, 0), (120, 60, 0.008)),
    (),
    "nothing",
    true_ratio=57.6 / 7_207_200,
    paused=((115, 125),),
)


def test_a_pause_pages_nobody_and_hides_nothing() -> None:
    """Ten minutes without rules in a busy time cause no later page; an outage over a restart pages once."""
    chosen = [EVENING, *(pause for pause in PAUSES if pause.expected == "page")]
    assert len(chosen) == 2
    for scenario, outcome in zip(chosen, run("tritonwatch", chosen, every=2 * STEP), strict=True):
        assert len(scenario.incidents) == len(outcome.pages), scenario.name
        assert pytest.approx(true_budget(scenario), abs=0.05) == outcome.budget, scenario.name


def test_the_first_evaluation_is_known_after_the_indicator_has_changed(tmp_path: Path) -> None:
    """What was recorded of the objective's other indicator is not recorded as a second series."""
    record = names.RULES_SINCE
    changed = Objective.model_validate(
        {"name": "up", "target": 0.99, "indicator": "readiness", "window": "7d"}
    )
    rule = next(rule for rule in recording(Options(), changed) if rule["record"] == record)
    before = {f'{record}{{slo="up", indicator="errors"}}': "7x9 stale _x30"}
    paused = {PAUSED: "1x9 0x30"}

    [answer] = evaluated(
        promtools()[-1],
        tmp_path,
        rule_file({"slo": pausable([rule])}),
        before | paused,
        [(record, 25 * 60.0)],
        interval=60,
        evaluation=60,
    )

    assert [7.0] == [value for _, value in answer]


def test_a_window_that_begins_in_a_pause_is_there_and_exact_after_another(tmp_path: Path) -> None:
    """Two pauses of 20 minutes, six hours apart: no evaluation of the slow group is needed, nor made use of."""
    scrape, first, second, rate, until = 60, 60, 415, 1000, 460
    [text] = [
        artifact.text
        for artifact in artifacts([OBJECTIVE], Options(scrape_interval_seconds=scrape))
        if artifact.name == "slo-errors.yml"
    ]
    every = [rule for group in yaml.safe_load(text)["groups"] for rule in at_own_interval(group, scrape)]
    labels = 'model="m", version="1"'
    series = {
        f"{triton.REQUEST_SUCCESS}{{{labels}}}": f"0+{rate}x{until}",
        f'{triton.REQUEST_FAILURE}{{{labels}, reason="BACKEND"}}': f"0x{until}",
        PAUSED: f"0x{first - 1} 1x19 0x{second - first - 21} 1x19 0x{until - second - 20}",
    }
    window = names.sli_events("6h")
    minutes = range(second + 20, second + 40)
    answers = evaluated(
        promtools()[-1],
        tmp_path,
        rule_file(
            {"slo": pausable(recording_rules_for([rule for rule in every if "record" in rule], window))}
        ),
        series,
        [(f'{window}{{{names.EVENT}="total"}} * 6 * 3600', at * 60) for at in minutes],
        interval=scrape,
        evaluation=scrape,
    )

    for minute, answer in zip(minutes, answers, strict=True):
        assert [pytest.approx(6 * 60 * rate, rel=0.005)] == [value for _, value in answer], minute
