"""Run 31 scenarios on our rules, Sloth's shape and Pyrra's; writes docs/slo-proof.md.

bench_beside_sloth.py compares Sloth's shape with what the real Sloth generates.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from slo.slo_scenarios import FACTS, OWN, PAUSES, run
from slo.slo_table import ENGINES, late, table, true_budget
from support.tools import ROOT

LATER = {"total outage at one request a minute": 5, "ramp from 0 to 5 % in 2 h": 1}
"""Minutes after Sloth: it pages for the first failure, ours for the fifth; a ramp is 0.4 % over its threshold when
Sloth pages, and our long windows miss 0.8 % of the first failures that a server ever counts."""


@pytest.mark.timeout(3600)
def test_no_engine_is_better() -> None:
    """No alert is missed, false or late after its incident, and none is later than Sloth's except where listed."""
    scenarios = FACTS + OWN
    with ThreadPoolExecutor() as pool:
        played, stopped = (
            {engine: pool.submit(run, engine, part) for engine in ENGINES} for part in (scenarios, PAUSES)
        )
        outcomes = {engine: future.result() for engine, future in played.items()}
        paused = {engine: future.result() for engine, future in stopped.items()}
    text = table(scenarios, outcomes, PAUSES, paused)
    (ROOT / "docs" / "slo-proof.md").write_text(text)

    for scenario, ours, sloth in zip(scenarios, outcomes["tritonwatch"], outcomes["Sloth"], strict=True):
        if scenario.expected == "nothing":
            assert () == ours.pages + ours.tickets, scenario.name
        elif scenario.expected == "page":
            assert len(scenario.incidents) == len(ours.pages), scenario.name
            assert ours.pages[0][0] <= sloth.pages[0][0] + LATER.get(scenario.name, 0), scenario.name
            # Tickets are evaluated every four minutes.
            assert late(scenario, ours) <= 1, scenario.name
        elif scenario.expected in ("ticket", "unknown"):
            assert ours.pages or ours.tickets, scenario.name
        if (true := true_budget(scenario)) is not None:
            assert abs(true - (ours.budget or 0)) < 0.01, scenario.name
