"""Test that latency pages from estimates are those of the true distribution, and no others."""

from __future__ import annotations

import pytest

from slo.slo_estimates import MADE, SIMULATED, Scenario, reactions
from support.thorough import THOROUGH

LATER = 3.0
"""Minutes that a page may wait for the estimate to burn beyond its error."""


@pytest.mark.real
@pytest.mark.parametrize(
    ("scenarios", "scale"),
    [(SIMULATED if THOROUGH else SIMULATED[::3], 0.1), (MADE if THOROUGH else MADE[:2], 1.0)],
    ids=["simulated", "made"],
)
def test_an_estimate_pages_when_the_truth_does(scenarios: tuple[Scenario, ...], scale: float) -> None:
    """No page is missed or false; one comes at most minutes after the one of an exact source."""
    measured = reactions(scenarios, scale)
    for scenario in scenarios:
        true, estimated = (measured[scenario.model, kind] for kind in ("true", "estimated"))
        print(scenario.name, true, estimated)
        assert scenario.expected == true.kind == estimated.kind, scenario.name
        if true.page is not None and estimated.page is not None:
            assert estimated.page <= true.page + LATER, scenario.name
