"""What holds for every test."""

from __future__ import annotations

import gc
import os
import signal
import sys
from functools import partial

import pytest
import yaml
from hypothesis import settings

# jsonschema would import it, for a check of formats that no test asks for: its grammars take two seconds.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]

# The same reader in C: tests read megabytes of what is generated.
yaml.safe_load = partial(yaml.load, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))

# Hypothesis and the test modules keep millions of objects alive, which a collection would visit again and again.
gc.set_threshold(50_000, 20, 20)

# Go's collector takes a fifth of the work of Prometheus otherwise, and the search for idle cores some more.
os.environ |= {"GOGC": "400", "GOMAXPROCS": "1"}

# A shell that starts the tests in the background lets SIGINT be ignored, and every process of a test inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes is the machine's affair: speed belongs to tests/bench.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

LONGEST = (
    "alerts/test_bridge_real.py",
    "docs/test_recipes_real.py",
    "compose/test_demo.py",
    "exporters/test_state_truth_real.py",
    "compose/test_soak.py",
    "exporters/test_govern_traces_real.py",
    "slo/test_rollouts_live.py",
    "compose/test_mounted_stack.py",
    "exporters/test_distributions_real.py",
    "alerts/test_load_failures_real.py",
    "docs/test_start_real.py",
    "slo/test_queue_full_live.py",
    "slo/test_gateways_real.py",
    "exporters/test_restart_real.py",
    "dashboards/test_panels_demo.py",
    "alerts/test_explicit_failures_real.py",
    "slo/test_pauses.py",
    "slo/test_calendar_periods.py",
    "slo/test_backtest_rules.py",
    "slo/test_scenarios_of_estimates.py",
)
"""Files of half a minute or more, by `pytest --durations`: first those that mostly wait for servers,
beside which the others work, so that no worker is left with one."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the longest files begin, then those that start real servers, then the others."""
    real = {item.path for item in items if item.get_closest_marker("real")}

    def rank(item: pytest.Item) -> int:
        folder_and_file = "/".join(item.path.parts[-2:])
        if folder_and_file in LONGEST:
            return LONGEST.index(folder_and_file)
        return len(LONGEST) + (item.path not in real)

    items.sort(key=rank)
