"""Measure how fast a month of a thousand objectives is replayed."""

from __future__ import annotations

import time

import numpy as np

from triton_slo.backtest.generated_policy import replayed
from triton_slo.backtest.history import History
from triton_slo.backtest.policy_run import run_policy
from triton_slo.objective.model import Objective

SERIES, STEPS = 1000, 30 * 1440
TARGET = 0.999


def month() -> History:
    """Make a month of minutes: Poisson traffic with a daily rhythm, rare failures, an incident in every tenth."""
    random = np.random.default_rng(1)
    rhythm = 600 + 500 * np.sin(np.arange(STEPS) / 1440 * 2 * np.pi)
    total = random.poisson(rhythm, (SERIES, STEPS)).astype(float)
    bad = random.binomial(total.astype(int), 0.0003).astype(float)
    for row in range(0, SERIES, 10):
        start = random.integers(0, STEPS - 60)
        bad[row, start : start + 45] = total[row, start : start + 45] * random.uniform(0.02, 1)
    keys = tuple(("errors", f"m{row}", "1") for row in range(SERIES))
    return History(keys, 60.0 * np.arange(1, STEPS + 1), bad, total)


def test_a_month_of_a_thousand_objectives() -> None:
    """A month of minutes of a thousand groups is replayed within a minute."""
    history = month()
    policy = replayed(Objective(name="errors", target=TARGET, indicator="errors")).policy
    began = time.perf_counter()
    alerts = len(run_policy(history, policy, [TARGET] * SERIES))
    seconds = time.perf_counter() - began
    print(f"{SERIES} objectives x 30 days in {seconds:.1f} s, {alerts} alerts")

    assert seconds < 60
