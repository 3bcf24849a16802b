"""Test our budget against the truth: a fleet simulated event by event, read through scrapes by the rules.

The maths under test are the recording rules themselves, evaluated by promtool. Everything is a sixth of its
nominal length: an hour is 10 minutes, the period of 7 days is 28 hours, scraped every 15 s.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from slo import simulator
from slo.simulator import BEFORE, LENGTH, SCRAPE, TICK, TILE, Life, Model, Replica
from support.promtool import Answer, evaluated, recording_rules_for, rule_file
from support.thorough import examples
from support.tools import promtools
from triton_exporter.common.duration import parse_seconds
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.generate import artifacts
from triton_slo.objective.model import Objective

pytestmark = pytest.mark.real

TARGET = 0.99
OBJECTIVE = Objective.model_validate(
    {"name": "errors", "target": TARGET, "indicator": "errors", "window": "7d"}
)
SCALE = TILE * TICK / parse_seconds("1h")
EVALUATION = 60
ROUNDING = 0.01
"""Events: what printing and adding floats may lose."""


def rules() -> str:
    """Return the generated rules that the budget needs, without other windows and alerts."""
    options = Options(scrape_interval_seconds=SCRAPE, time_scale=SCALE)
    (text,) = (
        artifact.text for artifact in artifacts([OBJECTIVE], options) if artifact.name == "slo-errors.yml"
    )
    recording = [
        rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"] if "record" in rule
    ]
    return rule_file({"budget": recording_rules_for(recording, names.PERIOD_BUDGET_REMAINING)})


def recorded(models: Sequence[Model], folder: Path) -> dict[str, tuple[float, float, float | None]]:
    """Model -> failures, requests and budget left (None without requests) over the period, as the rules record."""
    events, budget = names.sli_events("7d"), names.PERIOD_BUDGET_REMAINING
    error, total = (f'{events}{{{names.EVENT}="{event}"}}' for event in (names.ERROR, names.TOTAL))
    series = {name: values for model in models for name, values in model.series()}
    asked = [(what, LENGTH * TICK) for what in (error, total, budget)]
    answers = evaluated(promtools()[-1], folder, rules(), series, asked, interval=TICK, evaluation=EVALUATION)
    failed, every, left = (_by_model(answer) for answer in answers)
    seconds = simulator.PERIOD * TICK
    return {name: (failed[name] * seconds, every[name] * seconds, left.get(name)) for name in failed}


def _by_model(answer: Answer) -> dict[str, float]:
    by_model = {labels["model"]: value for labels, value in answer}
    assert len(by_model) == len(answer), answer
    return by_model


def check(models: Sequence[Model], folder: Path) -> None:
    """Events within what broken-off scrapes hide, and the budget within what that leaves of the ratio."""
    amounts = recorded(models, folder)
    for model in models:
        (failed, every), (less_failed, less) = model.truth(), model.allowance()
        got_failed, got, left = amounts[model.name]
        assert pytest.approx(failed, abs=less_failed + ROUNDING) == got_failed, model
        assert pytest.approx(every, abs=less + ROUNDING) == got, model
        if left is None:
            assert got < 1e-9, model
        elif every > less + ROUNDING:
            # f/n moves by at most (df + f/n * dn) / (n - dn).
            ratio = failed / every
            wrong = (less_failed + ROUNDING + ratio * (less + ROUNDING)) / (every - less - ROUNDING)
            assert pytest.approx(1 - ratio / (1 - TARGET), abs=wrong / (1 - TARGET)) == left, model


WHOLE = Life(0, LENGTH)
MIDDLE = BEFORE + simulator.PERIOD // 2
UNEVEN = ((0.05, 0.5), (50.0, 0.001), (0.0, 0.0), (20.0, 0.02), (1.0, 0.0))
EVEN = ((5.0, 0.02),)


HIDDEN = {
    0.002: (
        Model("even", EVEN, (Replica("a", (WHOLE,)),), 1),
        Model("uneven", UNEVEN * 3, (Replica("a", (WHOLE,)), Replica("b", (WHOLE,), phase=0)), 2),
        Model("forgiven", ((5.0, 0.9), *((5.0, 0.001),) * 17), (Replica("a", (WHOLE,)),), 3),
    ),
    0.005: (
        Model("restarts", EVEN, (Replica("a", (Life(0, MIDDLE, 70_000), Life(MIDDLE + 7, LENGTH))),), 4),
        Model("joins", EVEN, (Replica("a", (WHOLE,)), Replica("b", (Life(MIDDLE, LENGTH, 10**6),))), 5),
        Model("leaves", UNEVEN, (Replica("a", (WHOLE,)), Replica("b", (Life(0, MIDDLE, 10**6),))), 6),
        Model("gap", EVEN, (Replica("a", (WHOLE,), ((MIDDLE + 5, MIDDLE + 30),)),), 7),
    ),
}
"""The share of a model's events that its scrapes may hide -> models."""


def test_scrapes_hide_little_of_the_chosen_models() -> None:
    """Uneven traffic, restarts, replicas that join with a history or leave, a gap: at most 0.5 % of the events."""
    for worst, models in HIDDEN.items():
        for model in models:
            _, every = model.truth()
            _, hidden = model.allowance()
            assert hidden < worst * every, (
                f"{model.name}: {hidden} of {every} requests may hide, so this shows little"
            )


ticks = st.integers(BEFORE - TILE, LENGTH - TILE)


@st.composite
def replicas(draw: st.DrawFn, instance: str) -> Replica:
    """One that lasts throughout, joins, leaves, or restarts up to three times; its scrapes fail now and then."""
    cuts = sorted(draw(st.lists(ticks, max_size=4, unique=True)))
    start, *cuts = cuts if draw(st.booleans()) and cuts else [0, *cuts]
    *cuts, end = cuts if draw(st.booleans()) and cuts else [*cuts, LENGTH]
    lives, past = [], draw(st.integers(0, 10**6))
    for cut in (*cuts, end):
        lives.append(Life(start, cut, past))
        # A process that is back at once, or takes its time: its counters begin at 0.
        start, past = cut + draw(st.integers(0, 100)), 0
    gaps = draw(st.lists(st.tuples(ticks, st.integers(1, 2 * TILE)), max_size=2))
    phase = draw(simulator.phases())
    return Replica(
        instance,
        tuple(life for life in lives if life.start < life.end),
        tuple((at, at + length) for at, length in gaps),
        phase,
    )


@st.composite
def fleets(draw: st.DrawFn) -> tuple[Model, ...]:
    """Six models at a time: promtool's start costs more than a model."""
    return tuple(
        Model(
            f"m{number}",
            draw(simulator.stretches),
            tuple(draw(replicas(f"i{which}")) for which in range(draw(st.integers(1, 3)))),
            draw(st.integers(0, 2**32 - 1)),
        )
        for number in range(6)
    )


QUIET = Model("quiet", ((0.0, 0.0),), (Replica("a", (WHOLE,)),), 8)


@examples(0, thorough=8)
@given(fleet=fleets())
@example(fleet=(QUIET,))
def test_budget_of_any_fleet(fleet: tuple[Model, ...], tmp_path: Path) -> None:
    """For any history of a fleet, the budget differs from the truth by no more than its scrapes hide.

    The chosen models run with it: the rules cost the same for all.
    """
    check([*(model for models in HIDDEN.values() for model in models), *fleet], tmp_path)
