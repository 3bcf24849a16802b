"""What holds for every test."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from functools import partial
from itertools import chain, zip_longest
from typing import TYPE_CHECKING

import pytest
import yaml
from hypothesis import settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# jsonschema would import it, for a check of formats that no test asks for: its grammars take two seconds.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]

# The same reader in C: tests read megabytes of what is generated.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
yaml.safe_load, yaml.safe_load_all = (
    partial(yaml.load, Loader=_LOADER),
    partial(yaml.load_all, Loader=_LOADER),
)

# Hypothesis and the test modules keep millions of objects alive, which a collection would visit again and again:
# there is none until they are made, and few afterwards.
gc.set_threshold(50_000, 20, 20)
gc.disable()

# With Go's defaults Prometheus spends a fifth of its work on garbage, and some more on looking for idle cores.
# The limit of memory is soft: beyond it the collector runs more often.
os.environ |= {"GOGC": "1600", "GOMEMLIMIT": "400MiB", "GOMAXPROCS": "1"}

# argparse would search the folders of translations for each of its texts.
os.environ["LANGUAGE"] = "C"

# A shell that starts the tests in the background lets SIGINT be ignored, and every process of a test inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes is the machine's affair: speed belongs to tests/bench.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

WAITING = (
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
    "slo/test_counted_by_all_real.py",
    "docs/test_commands_real.py",
    "dashboards/test_panels_real.py",
    "compose/test_web_browser.py",
    "compose/test_web_pages.py",
    "exporters/test_uncounted_real.py",
    "slo/test_corrections_real.py",
    "exporters/test_index_shapes_real.py",
    "alerts/test_runbook_commands_real.py",
)
"""Files of half a minute or more that mostly wait for servers, by `pytest --durations`."""

COMPUTING = (
    "slo/test_calendar_periods.py",
    "slo/test_pauses.py",
    "slo/test_scenarios_of_estimates.py",
    "slo/test_rules_shipped.py",
    "alerts/test_alert_rules.py",
    "slo/test_backtest_rules.py",
    "alerts/test_alert_noise.py",
    "slo/test_unknown_bad.py",
    "slo/test_budget_simulator.py",
    "slo/test_retired.py",
    "slo/test_exclusions.py",
    "slo/test_objectives_check.py",
    "alerts/test_alert_settings.py",
    "slo/test_pages_on_estimates.py",
    "slo/test_new_bucket.py",
    "slo/test_rolling_restart.py",
    "slo/test_scenarios.py",
)
"""Files in which promtool works for five seconds or more."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, or the test is skipped."""
    from support.browser import browsing  # Playwright, which few tests need

    with browsing() as running:
        yield running


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the longest files begin, then those that start real servers, and a file that computes between any two.

    While some workers wait for servers the others so use the cores, and no long file is left for the end.
    """
    real = {_file(item) for item in items if item.get_closest_marker("real")}
    files = dict.fromkeys(map(_file, items))
    waiting = [*WAITING, *(file for file in files if file in real and file not in (*WAITING, *COMPUTING))]
    computing = [*COMPUTING, *(file for file in files if file not in real)]
    pairs = zip_longest(waiting, computing)
    rank = {file: place for place, file in enumerate(chain.from_iterable(pairs)) if file}
    items.sort(key=lambda item: rank[_file(item)])


def pytest_collection_finish() -> None:
    """Exempt what the modules made from garbage collection: it lives as long as the tests do."""
    gc.freeze()
    gc.enable()


def _file(item: pytest.Item) -> str:
    """Folder and name, which the lists give."""
    return "/".join(item.path.parts[-2:])
