"""Measure how fast a month of a thousand objectives is replayed, against a replay as a rule engine would do it.

The peer walks every step and sums every window anew, in plain Python, as rules are evaluated; it is run on a
small part and its time is scaled to the whole, which flatters it (a longer history only adds steps).
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from triton_slo.backtest.generated_policy import replayed
from triton_slo.backtest.history import History
from triton_slo.backtest.policy import SLOTH, Missing, Policy, pyrra
from triton_slo.backtest.policy_run import run_policy
from triton_slo.burn.condition_tree import All, Burn, Compare, Condition, Either
from triton_slo.objective.model import Objective

SERIES, STEPS = 1000, 30 * 1440
PEER_STEPS = 600
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


def step_by_step(history: History, policy: Policy) -> float:
    """Seconds that a part of one series takes when each window is summed at each step."""
    bad, total = (matrix[0].tolist() for matrix in (history.bad, history.total))
    first = STEPS - PEER_STEPS
    began = time.perf_counter()
    for at in range(first, STEPS):
        for alert in policy.alerts:
            for burn, limit in burns(alert.condition):
                steps = int(burn.window.seconds / 60)
                failed, events = sum(bad[at + 1 - steps : at + 1]), sum(total[at + 1 - steps : at + 1])
                _ = events > 0 and failed > limit * (1 - TARGET) * events
    return time.perf_counter() - began


def burns(condition: Condition | Missing) -> Iterator[tuple[Burn, float]]:
    """Each burn rate that a condition of pairs of windows compares, and with what."""
    if isinstance(condition, All | Either):
        for part in condition.parts:
            yield from burns(part)
    else:
        assert isinstance(condition, Compare)
        assert isinstance(condition.quantity, Burn)
        yield condition.quantity, condition.limit


def test_replay_against_step_by_step() -> None:
    """The replay is at least a hundred times as fast as the step-by-step evaluation of Sloth's alerts."""
    history = month()
    ours = replayed(Objective(name="errors", target=TARGET, indicator="errors")).policy
    seconds = {}
    for policy in (ours, SLOTH, pyrra(TARGET)):
        began = time.perf_counter()
        actual = len(run_policy(history, policy, [TARGET] * SERIES))
        seconds[policy.name] = time.perf_counter() - began
        print(
            f"{policy.name}: {SERIES} objectives x 30 days in {seconds[policy.name]:.1f} s, {actual} alerts"
        )
    peer = step_by_step(history, SLOTH) / PEER_STEPS * STEPS * SERIES
    print(f"all three policies: {sum(seconds.values()):.1f} s")
    print(f"step by step (scaled up): {peer:.0f} s; ratio {peer / seconds['sloth']:.0f}")

    assert peer / seconds["sloth"] > 100
