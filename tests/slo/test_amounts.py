"""Burn rates and budgets: one notation, wherever they are shown."""

from __future__ import annotations

import re

import pytest

from support.tools import ROOT
from triton_slo.burn.amounts import budget_left, burn_rate


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (1.0, "100.0%"),
        (0.6131, "61.3%"),
        (0.0, "0.0%"),
        (-0.0004, "0.0%"),
        (-0.12, "1.12x spent"),
        (-9.99, "11x spent"),
        (-793.37, "794x spent"),
        (-998.6, "1000x spent"),
    ],
)
def test_a_budget_is_what_is_left_or_how_often_it_is_spent(share: float, words: str) -> None:
    """A model that fails all the time at a thousand times the allowed rate has spent a thousand budgets."""
    assert words == budget_left(share)


@pytest.mark.parametrize(
    ("times", "words"), [(0.0, "0x"), (0.564, "0.564x"), (14.4, "14.4x"), (99.96, "100x"), (1000.4, "1000x")]
)
def test_a_burn_rate_is_times_the_allowed_rate(times: float, words: str) -> None:
    """Never in powers of ten."""
    assert words == burn_rate(times)


def test_nobody_else_writes_a_budget() -> None:
    """No other module formats a share of a budget or a burn rate."""
    forms = re.compile(r"budget_left:\.|burn\w*:\.|:\.\d[fg]\}x|times the allowed rate")
    modules = [path for folder in ("slo", "alerts", "compose") for path in (ROOT / folder).rglob("*.py")]
    match = [path.name for path in modules if forms.search(path.read_text())]
    assert ["amounts.py"] == match
