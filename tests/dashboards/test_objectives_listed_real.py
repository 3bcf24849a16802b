"""The Objectives dashboard lists and counts the groups that `tritonwatch status` lists and counts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support import history
from support.history import END
from support.panels import Grafana, Json, panels
from triton_dashboards.boards import slo
from triton_dashboards.grafana.dashboard import dashboard_model
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.prometheus import Access, Prometheus
from triton_slo.verdict.group_status import SELECTOR, GroupStatus, group_statuses

pytestmark = pytest.mark.real

MODEL = dashboard_model(slo.dashboard(Options()))
EVERYTHING = dict.fromkeys(("slo", "model", "version"), ".*")
GONE = END - 900.0
GROUPS: dict[tuple[str, str], dict[str, float]] = {
    ("served", "1"): {names.PERIOD_BURN_RATE: 0.2, names.CURRENT_BURN_RATE: 0.5, names.BURNING: 0},
    # The last failures were four minutes ago: those of the last three minutes do not show them.
    ("burning", "1"): {names.PERIOD_BURN_RATE: 0.2, names.CURRENT_BURN_RATE: 1.16, names.BURNING: 0},
    ("idle", "1"): {},
    ("retired", "1"): {names.LAST_SEEN: GONE, names.RETIRED: GONE},
    ("retired-with-events", "1"): {
        names.LAST_SEEN: GONE,
        names.RETIRED: GONE,
        names.PERIOD_BURN_RATE: 0.2,
    },
    ("served-again", "1"): {names.LAST_SEEN: GONE, names.RETIRED: GONE - 60, names.UNKNOWN: 1},
    ("replaced", ""): {names.LAST_SEEN: GONE},
    ("replaced", "2"): {},
    ("missed-before", ""): {names.PERIOD_BURN_RATE: 1.0},
    ("missed-before", "2"): {},
    ("never-loaded", ""): {},
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Groups of one objective, and two objectives without any listed group."""
    rows = []

    def record(name: str, labels: dict[str, str], value: float) -> None:
        rows.append((name, labels, [(END - 60.0 + 15 * step, value) for step in range(5)]))

    def recorded(objective: str, model: str, version: str, values: dict[str, float]) -> None:
        labels = {names.SLO: objective, names.INDICATOR: "errors", "model": model}
        labels |= {"version": version} if version else {}
        plain = {names.LAST_SEEN: float(END), names.OBJECTIVE_RATIO: 0.99}
        for name, value in (plain | values).items():
            reason = {names.REASON: "vanished"} if name == names.UNKNOWN else {}
            record(name, labels | reason, value)
        if names.PERIOD_BURN_RATE in values:
            record(names.PERIOD_BUDGET_REMAINING, labels, 1 - values[names.PERIOD_BURN_RATE])

    for (model, version), values in GROUPS.items():
        recorded("errors", model, version, values)
    recorded("retired-alone", "retired", "1", GROUPS["retired", "1"])
    for objective in ("errors", "retired-alone", "new"):
        record(names.INFO, {names.SLO: objective, names.INDICATOR: "errors"}, 1)
    with history.serve(history.openmetrics(rows), tmp_path_factory.mktemp("prometheus")) as served:
        yield served


@pytest.fixture(scope="module")
def statuses(url: str) -> tuple[GroupStatus, ...]:
    with Prometheus(Access(url)) as prometheus:
        return group_statuses(prometheus.instant(SELECTOR, END))


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
    assert unknown == {("errors", "served-again"), ("retired-alone", ""), ("new", "")}
    assert float(tile["value"][1]) == len(unknown)
