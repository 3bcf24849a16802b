"""The replay of our own policy fires when the generated rules fire in a real rule engine."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
import yaml

from support.tools import promtools
from triton_exporter.catalogue import triton
from triton_slo import conventions as c
from triton_slo.artifact import Options
from triton_slo.backtest.history import History
from triton_slo.backtest.ours import promise
from triton_slo.backtest.policy import SLOTH, Policy
from triton_slo.backtest.replay import replay
from triton_slo.generate import artifacts
from triton_slo.objective import Objective

ERRORS = Objective(name="errors", target=0.999, indicator="errors")
OPTIONS = Options(scrape_interval_seconds=15)
CLEAN, AFTER = 120, 240
"""Minutes before and after the incident."""


@dataclass(frozen=True)
class Scenario:
    """Requests each minute, and which share of them failed in each minute of the incident."""

    rate: int
    shares: Sequence[float]

    @property
    def failures(self) -> list[int]:
        bad = [round(share * self.rate) for share in self.shares]
        return [0] * CLEAN + bad + [0] * AFTER


SCENARIOS = {
    "3 min total outage": Scenario(600, [1.0] * 3),
    "bursts: 1 bad minute in 10": Scenario(600, ([0.2] + [0.0] * 9) * 12),
    "2 h at 1%": Scenario(600, [0.01] * 120),
}


def series(name: str, labels: str, increments: Sequence[int]) -> dict[str, str]:
    """A counter as promtool writes it, with one term for each run of equal increments."""
    terms, value = ["0"], 0
    for increment, run in groupby(increments):
        count = len(list(run))
        terms.append(f"{value + increment}+{increment}x{count - 1}")
        value += increment * count
    return {"series": f"{name}{{{labels}}}", "values": " ".join(terms)}


def measured(scenario: Scenario, directory: Path) -> dict[str, tuple[int, int, int]]:
    """Minutes at which each tier first and last fired in promtool, and how many minutes it fired."""
    rules = []
    for artifact in artifacts([ERRORS], OPTIONS):
        if artifact.part == "rules":
            (directory / artifact.name).write_text(artifact.text)
            rules.append(artifact.name)
    failures = scenario.failures
    labels = 'model="m", version="1"'
    firing = f'ALERTS{{alertstate="firing", alertname="{c.BURN_ALERTS["errors"]}"}}'
    span = f"[{len(failures)}m:1m]"
    questions = (
        f"min by (tier) (min_over_time(timestamp({firing}){span})) / 60",
        f"max by (tier) (max_over_time(timestamp({firing}){span})) / 60",
        f"sum by (tier) (count_over_time({firing}{span}))",
    )
    test = {
        "rule_files": rules,
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    series(str(triton.REQUEST_SUCCESS), labels, [scenario.rate - bad for bad in failures]),
                    series(str(triton.REQUEST_FAILURE), f'{labels}, reason="BACKEND"', failures),
                ],
                # Nothing is expected, so promtool says what it got.
                "promql_expr_test": [
                    {
                        "expr": question,
                        "eval_time": f"{len(failures)}m",
                        "exp_samples": [{"labels": "x", "value": 0}],
                    }
                    for question in questions
                ],
            }
        ],
    }
    (directory / "test.yml").write_text(yaml.safe_dump(test))
    run = subprocess.run(
        [promtools()[0], "test", "rules", "test.yml"],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    answers = re.findall(r"got:(.*)", run.stdout + run.stderr)
    assert 3 == len(answers), run.stdout + run.stderr
    found = [
        {tier: int(float(value)) for tier, value in re.findall(r'{tier="(\w+)"} ([\d.E+]+)', answer)}
        for answer in answers
    ]
    return {tier: (found[0][tier], found[1][tier], found[2][tier]) for tier in found[0]}


def replayed(scenario: Scenario) -> dict[str, tuple[int, int, int]]:
    """The same minutes from the replay; promtool knows no inhibition, so neither does it here."""
    failures = np.array([scenario.failures], dtype=float)
    minutes = np.arange(1, failures.shape[1] + 1)
    history = History(
        (("errors", "m", "1"),), 60.0 * minutes, failures, np.full(failures.shape, scenario.rate)
    )
    found: dict[str, list[tuple[int, int]]] = {}
    known = promise(ERRORS, OPTIONS)
    for episode in replay(history, Policy("ours", known.policy.alerts), [known.target]):
        ended = episode.ended or 60.0 * (len(minutes) + 1)
        found.setdefault(episode.alert, []).append((int(episode.started / 60), int(ended / 60) - 1))
    return {
        tier: (spans[0][0], spans[-1][1], sum(last - first + 1 for first, last in spans))
        for tier, spans in found.items()
    }


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_replay_fires_when_the_generated_rules_fire(name: str, tmp_path: Path) -> None:
    """Every tier's first minute, last minute and number of minutes firing agree within two minutes."""
    scenario = SCENARIOS[name]
    real, ours = measured(scenario, tmp_path), replayed(scenario)

    assert real
    assert set(real) == set(ours)
    for tier, minutes in real.items():
        assert pytest.approx(minutes, abs=2) == ours[tier]


def test_noise_after_incidents_raises_no_more_tickets_than_sloths_shape() -> None:
    """With rare failures all the time, remnants in long windows do not make tickets come and go for days."""
    random, models, steps = np.random.default_rng(3), 40, 10 * 1440
    rhythm = 600 + 500 * np.sin(np.arange(steps) / 1440 * 2 * np.pi)
    total = random.poisson(rhythm, (models, steps)).astype(float)
    bad = random.binomial(total.astype(int), 0.0003).astype(float)
    for row, start in enumerate(random.integers(3 * 1440, 6 * 1440, models // 2)):
        bad[row, start : start + 45] = total[row, start : start + 45] * 0.5
    keys = tuple(("errors", f"m{row}", "1") for row in range(models))
    history = History(keys, 60.0 * np.arange(1, steps + 1), bad, total)

    def raised(policy: Policy, severity: str) -> list[str]:
        found = replay(history, policy, [0.999] * models)
        return [episode.key[1] for episode in found if episode.severity == severity]

    ours = promise(ERRORS, OPTIONS).policy
    assert {f"m{row}" for row in range(models // 2)} == set(raised(ours, "page"))
    assert len(raised(ours, "ticket")) <= len(raised(SLOTH, "ticket"))
    # One incident is one page. At 100 requests a minute, noise on the remnant of an hour may add one in ten.
    assert len(raised(ours, "page")) <= models // 2 + 2


def test_slow_burning_at_low_traffic_raises_a_ticket() -> None:
    """A recovery that was seen before an incident holds no ticket back: a day at burn 5, 10 a minute."""
    random, models, steps = np.random.default_rng(5), 20, 6 * 1440
    total = random.poisson(10, (models, steps)).astype(float)
    share = np.zeros(steps)
    share[4 * 1440 : 5 * 1440] = 0.005
    bad = random.binomial(total.astype(int), share).astype(float)
    keys = tuple(("errors", f"m{row}", "1") for row in range(models))
    history = History(keys, 60.0 * np.arange(1, steps + 1), bad, total)

    found = replay(history, promise(ERRORS, OPTIONS).policy, [0.999] * models)
    assert set(keys) == {episode.key for episode in found}
