"""Test a few of the proof's scenarios; tests/bench/bench_slo_proof.py runs all of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slo.slo_scenarios import FACTS, OWN, STEP, run
from slo.slo_table import late, true_budget
from support.thorough import THOROUGH

pytestmark = pytest.mark.real

CHOSEN = {
    "3 min total outage": 1,
    "10 requests an hour, one fails": 0,
    "one of two models vanishes": 1,
    "idle for 30 min, then healthy": 0,
    "a replica joins with a history of failures": 0,
}


def test_pages_come_once_in_time_and_end() -> None:
    """One page an incident, within two minutes of a total outage, over 12 minutes after, none where none is due."""
    scenarios = [
        replace(fact, length=fact.minutes if THOROUGH else min(fact.minutes, 300))
        for fact in FACTS + OWN
        if fact.name in CHOSEN
    ]

    for scenario, outcome in zip(scenarios, run("tritonwatch", scenarios, every=2 * STEP), strict=True):
        assert CHOSEN[scenario.name] == len(outcome.pages), scenario.name
        assert 0 == late(scenario, outcome), scenario.name
        if scenario.expected == "page":
            for (start, end), (first, last) in zip(scenario.incidents, outcome.pages, strict=True):
                assert first <= start + 2
                # The short window forgets the incident after five minutes; the page is kept for six more.
                assert last < end + 12
        if (true := true_budget(scenario)) is not None:
            assert outcome.budget is not None
            assert abs(true - outcome.budget) < 0.01


def test_the_harness_sees_what_sloth_misses() -> None:
    """The same scenarios distinguish engines: Sloth's shape pages for one failure and not for a lost model."""
    names = ("10 requests an hour, one fails", "one of two models vanishes")
    scenarios = [fact for fact in FACTS if fact.name in names]
    one_fails, vanishes = run("Sloth", scenarios, every=2 * STEP)

    assert len(one_fails.pages) > 0
    assert () == vanishes.pages
