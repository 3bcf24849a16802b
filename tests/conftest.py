"""What holds for every test."""

from __future__ import annotations

import signal
import sys

import pytest
from hypothesis import settings

# jsonschema would import it, for a check of formats that no test asks for: its grammars take two seconds.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]

# A shell that starts the tests in the background lets SIGINT be ignored, and every process of a test inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes is the machine's affair: speed belongs to tests/bench.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

LONGEST = (
    "compose/test_soak.py",
    "alerts/test_bridge_real.py",
    "slo/test_pauses.py",
    "slo/test_rules_shipped.py",
    "slo/test_calendar_periods.py",
    "slo/test_exclusions.py",
    "slo/test_budget_simulator.py",
    "slo/test_backtest_rules.py",
)
"""Files of a minute or more, by `pytest --durations`: they start first, so that no worker is left with one."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the longest files begin, then those that start real servers, then the others."""
    real = {item.path for item in items if item.get_closest_marker("real")}

    def rank(item: pytest.Item) -> int:
        folder_and_file = "/".join(item.path.parts[-2:])
        if folder_and_file in LONGEST:
            return LONGEST.index(folder_and_file)
        return len(LONGEST) + (item.path not in real)

    items.sort(key=rank)
