"""Test the seconds of a readiness objective: those that a version should have served, and no others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml

from support.promtool import evaluated, recording_rules_for, rule_file
from support.tools import promtools
from triton_exporter.catalogue import state
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.generate import artifacts
from triton_slo.objective.reading import read

MINUTE = 60
LENGTH = 480
"""Minutes of each state, for each model."""
STATES = ("ready", "unavailable", "unloaded")

Spell = tuple[str, int]
"""A state, or `gone` for no series at all, and for how many minutes."""

STORIES: dict[str, tuple[Spell, ...]] = {
    "broken, then unloaded for hours": (("ready", 54), ("unavailable", 6), ("unloaded", 380), ("ready", 40)),
    "appears late and is not ready at first": (("gone", 60), ("unavailable", 3), ("ready", 417)),
    "not ready when the rules begin": (("unavailable", 3), ("ready", 477)),
    "comes and goes": (("ready", 30), ("gone", 45), ("unavailable", 5), ("gone", 380), ("ready", 20)),
    "broken and gone": (("ready", 60), ("unavailable", 10), ("gone", 410)),
    "always there": (("ready", 200), ("unavailable", 40), ("ready", 240)),
}


@pytest.mark.real
@pytest.mark.parametrize("tool", promtools(), ids=str)
def test_only_seconds_in_which_a_version_should_serve_count(tool: Path, tmp_path: Path) -> None:
    """A version that appears, is unloaded or goes keeps the seconds that it had, the bad ones and all."""
    [objective] = read(
        [("o.yaml", "{name: readiness, target: 99%, window: 7d, indicator: readiness}")]
    ).objectives
    [rules] = [
        made.text
        for made in artifacts([objective], Options(scrape_interval_seconds=MINUTE))
        if made.name == "slo-readiness.yml"
    ]
    every = [rule for group in yaml.safe_load(rules)["groups"] for rule in group["rules"] if "record" in rule]
    groups = rule_file({"readiness": recording_rules_for(every, names.sli_events("7d"))})
    series = {name: values for model, history in STORIES.items() for name, values in _series(model, history)}
    wanted = {
        (model, event): sum(minutes for spell, minutes in history if spell in spells)
        for model, history in STORIES.items()
        for event, spells in ((names.ERROR, {"unavailable"}), (names.TOTAL, {"unavailable", "ready"}))
    }
    week = 7 * 86_400 / MINUTE
    asked = [
        (f'{week:g} * {names.sli_events("7d")}{{model="{model}", event="{event}"}}', LENGTH * MINUTE)
        for model, event in wanted
    ]
    answers = evaluated(tool, tmp_path, groups, series, asked, interval=MINUTE, evaluation=MINUTE)
    recorded = {key: round(answer[0][1], 1) for key, answer in zip(wanted, answers, strict=True)}

    # A spell may be recorded a minute longer or shorter; windows round by a part of a percent.
    assert {key: pytest.approx(minutes, rel=0.01, abs=2) for key, minutes in wanted.items()} == recorded


def _series(model: str, history: Sequence[Spell]) -> Iterator[tuple[str, str]]:
    minutes = [spell for spell, length in history for _ in range(length)]
    labels = f'instance="a", model="{model}", version="1"'
    yield f"{state.MODEL_READY}{{{labels}}}", _values(minutes, "ready")
    for name in STATES:
        yield f'{state.MODEL_STATE}{{{labels}, state="{name}"}}', _values(minutes, name)
    yield f'{state.MODEL_EXPECTED}{{instance="a", model="{model}", version=""}}', _values(minutes, *STATES)


def _values(minutes: Sequence[str], *true: str) -> str:
    """Return a gauge that is 1 in these states and absent while the version is gone."""
    return " ".join("stale" if spell == "gone" else f"{int(spell in true)}" for spell in minutes)
