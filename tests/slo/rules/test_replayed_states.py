"""Test a replay of readiness: a sum of states begins with the first evaluation, not an hour before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.history import END, Series, openmetrics, serve
from support.recorded_group import group_labels, recorded_group
from triton_exporter.catalogue import state
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.correction.replayed_history import replayed
from triton_slo.objective.reading import read
from triton_slo.prometheus.client import Prometheus
from triton_slo.prometheus.server_access import Access
from triton_slo.rules.plan import Plan

MINUTE, HOUR = 60, 3600
SINCE = END - 26 * HOUR
"""When the rules were loaded."""
NOT_READY = (SINCE - 40 * MINUTE, SINCE - 10 * MINUTE)


def made() -> Iterator[Series]:
    """Yield a version that was not ready for half an hour shortly before the rules were loaded."""
    scrapes = [float(at) for at in range(END - 30 * HOUR, END + 1, MINUTE)]
    model = {"instance": "a", "model": "m", "version": "1"}
    ready = [(at, float(not NOT_READY[0] < at <= NOT_READY[1])) for at in scrapes]
    yield str(state.MODEL_READY), model, ready
    yield str(state.MODEL_STATE), {**model, "state": "ready"}, ready
    yield str(state.MODEL_STATE), {**model, "state": "unavailable"}, [(at, 1 - value) for at, value in ready]
    yield str(state.MODEL_EXPECTED), {**model, "version": ""}, [(at, 1.0) for at in scrapes]
    group, week = group_labels("readiness", "m"), {"7d": (0.0, 26 / (7 * 24))}
    yield from recorded_group(group, scrapes[-5:], target=0.99, since=float(SINCE), events=week)
    objective = {**group_labels("readiness"), "window": "7d"}
    yield names.INFO, objective, [(at, 1.0) for at in scrapes[-5:]]


@pytest.mark.real
def test_the_hour_before_the_rules_is_in_the_history_of_states(tmp_path: Path) -> None:
    """Half an hour in which the version was not ready is neither lost nor counted twice."""
    [objective] = read(
        [("o.yaml", "{name: readiness, target: 99%, window: 7d, indicator: readiness}")]
    ).objectives
    with serve(openmetrics(made()), tmp_path) as url:
        plan = Plan(objective, Options(scrape_interval_seconds=MINUTE))
        [correction] = replayed(Prometheus(Access(url)), plan, END, END - 3 * HOUR)

    assert pytest.approx(30 * MINUTE, abs=5 * MINUTE) == sum(tile.error for tile in correction.tiles)
    assert SINCE == correction.tiles[-1].end
