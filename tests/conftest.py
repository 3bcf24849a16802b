"""Configure pytest, Hypothesis and the environment of every test."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from hypothesis import HealthCheck, settings

from support.thorough import THOROUGH

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# jsonschema imports these for checks of formats that no test uses; they take each worker a tenth of a second, the
# grammars of the last one two.
for _unused in ("isoduration", "rfc3986_validator", "rfc3987_syntax"):
    sys.modules[_unused] = None  # type: ignore[assignment]

# Tests parse megabytes of generated YAML: the loader in C is ten times faster than the one in Python.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
yaml.safe_load, yaml.safe_load_all = (
    partial(yaml.load, Loader=_LOADER),
    partial(yaml.load_all, Loader=_LOADER),
)

# Hypothesis and the test modules create millions of objects that live until the end. Garbage collection would visit
# them again and again, so it is off while they are created (see pytest_collection_finish) and rare afterwards.
gc.set_threshold(50_000, 20, 20)
gc.disable()

# With Go's defaults a Prometheus spends a fifth of its CPU time on garbage collection, and more on its scheduler.
# The memory limit is soft: beyond it the collector runs more often. Numpy, which each model of a Triton loads, would
# start threads, of which none has anything to do: a fifth of a Triton's CPU time.
os.environ |= {"GOGC": "1600", "GOMEMLIMIT": "400MiB", "GOMAXPROCS": "1", "OPENBLAS_NUM_THREADS": "1"}

# argparse searches the folders of translations for each of its texts, unless the language is C.
os.environ["LANGUAGE"] = "C"

# A shell that starts the tests in the background ignores SIGINT, and every process that a test starts would, too.
signal.signal(signal.SIGINT, signal.default_int_handler)

# What takes long depends on the machine; tests/bench measures speed.
settings.register_profile(
    "untimed",
    deadline=None,
    max_examples=1000 if THOROUGH else 25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("untimed")

LONGEST_FILES = (
    "alerts/bridge/test_bridge_real.py",
    "alerts/test_one_page_real.py",
    "slo/advise/test_advise_real.py",
    "slo/rules/test_rollouts_real.py",
    "slo/rules/test_rules_played.py",
    "exporters/distribution/test_distributions_real.py",
    "slo/advise/test_fit.py",
    "exporters/lifecycle/test_state_truth_real.py",
    "alerts/bridge/test_bridge_evidence_real.py",
    "dashboards/test_panels_real.py",
    "slo/report/test_report.py",
    "exporters/distribution/test_decomposition.py",
    "docs/test_commands_real.py",
    "compose/test_wheel.py",
    "alerts/test_load_failures_real.py",
    "exporters/processes/test_processes_real.py",
    "dashboards/test_panels_demo.py",
    "compose/web/test_web_pages.py",
    "alerts/test_alert_rules.py",
    "compose/web/test_web_browser.py",
    "alerts/test_explicit_failures_real.py",
    "alerts/test_paging.py",
    "exporters/lifecycle/test_restart_real.py",
    "exporters/lifecycle/test_readiness_real.py",
    "docs/test_recipes_real.py",
    "exporters/tracing/test_traces.py",
    "slo/advise/test_watch_real.py",
    "compose/test_mounted_stack.py",
    "exporters/app/test_metrics_only_real.py",
    "alerts/bridge/test_bridge_why.py",
    "compose/test_demo.py",
    "slo/indicators/test_tokens_real.py",
)
"""Files that take half a minute or more in `make test`, the longest first: the last one to end would run alone."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Run Chromium; skip the test where there is none."""
    from support.browser import running_chromium  # Playwright, which few tests need

    with running_chromium() as running:
        yield running


def pytest_collection_modifyitems(items: list[pytest.Item], config: pytest.Config) -> None:
    """Leave out what only `make test-all` runs; run the longest files first, and those that start servers next."""
    left_out = [] if THOROUGH else [item for item in items if item.get_closest_marker("thorough")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
    paths = [Path(__file__).parent / file for file in LONGEST_FILES]
    assert [] == [path for path in paths if not path.exists()]
    real = {item.path for item in items if item.get_closest_marker("real")}
    places = {path: place for place, path in enumerate(paths)}
    items.sort(key=lambda item: places.get(item.path, len(paths) + (item.path not in real)))


def pytest_collection_finish() -> None:
    """Exempt the objects of modules from garbage collection: they exist until the tests end."""
    gc.freeze()
    gc.enable()
