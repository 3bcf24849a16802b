"""Test that the Objectives dashboard lists and counts the same groups as `tritonwatch status`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support import history
from support.history import END
from support.panels import Grafana, Json, panels
from support.recorded_group import group_labels, recorded_group
from triton_dashboards.boards import slo
from triton_dashboards.grafana import dashboard_model
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.group_status import GroupStatus
from triton_slo.prometheus import Prometheus
from triton_slo.server_access import Access
from triton_slo.status import read_status

pytestmark = pytest.mark.real

MODEL = dashboard_model(slo.dashboard(Options()))
EVERYTHING = dict.fromkeys(("slo", "model", "version"), ".*")
GROUPS: dict[str, dict[str, Any]] = {
    "served": {"spent": 0.2, "burn": 0.5, "seen": True},
    "burning": {"spent": 0.2, "burn": 1.16, "seen": True},
    "idle": {"seen": True},
    "unloaded": {"spent": 0.2},
    "vanished": {"spent": 0.2, "unknown": "vanished"},
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield groups of one objective, and an objective without any group."""
    times = [END - 60.0 + 15 * step for step in range(5)]
    rows: list[history.Series] = []
    for model, recorded in GROUPS.items():
        rows += recorded_group(group_labels("errors", model), times, target=0.99, **recorded)
    for objective in ("errors", "new"):
        labels = group_labels(objective, indicator="errors")
        rows.append((names.INFO, labels, [(at, 1.0) for at in times]))
    with history.serve(history.openmetrics(rows), tmp_path_factory.mktemp("prometheus")) as served:
        yield served


@pytest.fixture(scope="module")
def statuses(url: str) -> tuple[GroupStatus, ...]:
    with Prometheus(Access(url)) as prometheus:
        return read_status(prometheus, END)


def answers(url: str, title: str) -> list[Json]:
    """All series that a panel of the dashboard reads."""
    panel = next(panel for panel in panels(MODEL) if panel["title"] == title)
    return [s for target in panel["targets"] for s in Grafana(url, END).ask(panel, target, EVERYTHING).series]


def test_the_table_has_a_row_for_each_group_that_status_lists(
    url: str, statuses: tuple[GroupStatus, ...]
) -> None:
    rows = {
        tuple(series["metric"].get(label, "") for label in (names.SLO, "model", "version"))
        for series in answers(url, "Objectives")
    }

    assert rows == {(row.slo, row.model, row.version) for row in statuses}


def test_a_group_burns_in_the_tile_when_its_status_burns(url: str, statuses: tuple[GroupStatus, ...]) -> None:
    [tile] = answers(url, "Burning now")

    assert [row.model for row in statuses if row.state == "burning"] == ["burning"]
    assert float(tile["value"][1]) == 1


def test_objectives_without_a_listed_group_are_unknown(url: str, statuses: tuple[GroupStatus, ...]) -> None:
    [tile] = answers(url, "Unknown")

    unknown = {(row.slo, row.model) for row in statuses if row.state == "unknown"}
    assert unknown == {("errors", "vanished"), ("new", "")}
    assert float(tile["value"][1]) == len(unknown)
