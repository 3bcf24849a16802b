"""Test the cost of the rules: how often they read the counters, how far back, and what they record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from support.promtool import evaluated
from support.tools import promtools
from triton_exporter.catalogue import triton
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.generate import artifacts
from triton_slo.objective.model import Objective

OBJECTIVE = Objective(name="e", target=0.999, indicator="errors")
SERIES = 43
"""Recorded series of a healthy model version, the slow group's among them."""


def rules() -> str:
    [text] = [artifact.text for artifact in artifacts([OBJECTIVE], Options()) if artifact.name == "slo-e.yml"]
    return text


def groups() -> list[list[dict[str, Any]]]:
    return [group["rules"] for group in yaml.safe_load(rules())["groups"]]


def test_a_window_reads_the_counter_of_successes_once() -> None:
    """Reading counters is most of what an evaluation costs."""
    often, _ = groups()
    windows = [rule for rule in often if rule.get("record", "").startswith(names.sli_events(""))]
    from_counters = [rule["expr"] for rule in windows if str(triton.REQUEST_SUCCESS) in rule["expr"]]

    assert 6 == len(from_counters)
    for expr in from_counters:
        assert 1 == expr.count(str(triton.REQUEST_SUCCESS))
        assert 2 == expr.count(str(triton.REQUEST_FAILURE))


def test_only_the_slow_group_reads_a_day_of_every_group() -> None:
    """A day of records is read every few minutes; at each evaluation only since when the sums run."""
    often, seldom = groups()

    assert [names.SLI_EVENTS_SINCE] == [rule["record"] for rule in often if "[1d" in rule["expr"]]
    assert any("[1d" in rule["expr"] for rule in seldom)


@pytest.mark.real
def test_a_healthy_group_has_few_series(tmp_path: Path) -> None:
    """What only exists after a pause, for a new group or while budget burns costs a healthy group nothing."""
    group = 'model="m", version="1"'
    series = {
        f"{triton.REQUEST_SUCCESS}{{{group}}}": "0+100x420",
        f'{triton.REQUEST_FAILURE}{{{group}, reason="BACKEND"}}': "0x420",
    }
    query = f'count ({{{names.SLO}="e", model="m"}})'

    [[(_, count)]] = evaluated(
        promtools()[-1], tmp_path, rules(), series, [(query, 7 * 3600)], interval=60, evaluation=60
    )

    assert SERIES >= count
