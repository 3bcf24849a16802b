"""Test the order of the rows of each table, as Grafana sorts them: an empty cell is before every number."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

import pytest

from support import history
from support.history import END
from support.panels import MODELS, Grafana, Json, panels
from support.recorded_group import group_labels, recorded_group
from triton_dashboards.query import NO_SHARE
from triton_slo import names

TABLES = [
    pytest.param(panel, id=f"{uid}-{panel['title']}")
    for uid, model in MODELS.items()
    for panel in panels(model)
    if panel["type"] == "table"
]


@pytest.fixture(scope="module")
def grafana(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grafana]:
    """Budgets of three models: one overspent, one healthy, one without requests, which has no budget recorded.

    Another objective is a day old: a few of its first requests failed.
    """
    days_ago = [END - 3 * 86_400 - 600.0]
    times = [END - 600 + 15 * step for step in range(41)]
    rows = [*recorded_group(group_labels("errors", "vanished"), times, target=0.99, unknown="vanished")]
    left_of = {"idle": None, "healthy": 0.4, "overspent": -0.2}
    for model, left in left_of.items():
        rows += recorded_group(group_labels("errors", model), [*days_ago, *times], target=0.99, left=left)
        rows.append((names.model_traffic("requests"), {"model": model}, [(at, 1.0) for at in times]))
    day_one = group_labels("new", "healthy", indicator="errors")
    yesterday = [END - 86_400 + 600 * step for step in range(140)]
    new = {"target": 0.999, "budget": 0.001, "left": -999.0, "errors": {"1h": 0.5, "6h": 1.0, "3d": 1.0}}
    rows += recorded_group(day_one, [*yesterday, *times], **new)
    with history.serve(history.openmetrics(rows), tmp_path_factory.mktemp("prometheus")) as url:
        yield Grafana(url, END)


@pytest.mark.real
@pytest.mark.parametrize("uid", ["triton-fleet", "triton-slo"])
def test_day_one_shows_no_budget_of_a_month(grafana: Grafana, uid: str) -> None:
    """One failure among a few requests spends 1000 times what three days later is a month's budget."""
    everything = dict.fromkeys(("cluster", "job", "slo", "model", "version"), ".*")
    panel = next(panel for panel in panels(MODELS[uid]) if panel["title"] == "Least budget left")

    assert -0.2 == grafana.ask(panel, panel["targets"][0], everything).value()


@pytest.mark.real
def test_a_window_is_shown_once_a_tenth_of_it_has_data(grafana: Grafana) -> None:
    """A day is a tenth of three days, and of every shorter window."""
    [table] = [panel for panel in panels(MODELS["triton-slo"]) if panel["title"] == "Objectives"]
    everything = dict.fromkeys(("slo", "model", "version"), ".*")
    renamed = table["transformations"][-1]["options"]["renameByName"]
    shown = {
        renamed[f"Value #{target['refId']}"]
        for target in table["targets"]
        for series in grafana.ask(table, target, everything).series
        if series["metric"].get("slo") == "new" and float(series["value"][1]) != NO_SHARE
    }

    assert {"Target", "Burn 1h", "Burn 6h", "Burn 3d"} == shown


def sorted_models(grafana: Grafana, uid: str, title: str) -> list[str]:
    """Return the models of a table from top to bottom."""
    panel = next(panel for panel in panels(MODELS[uid]) if panel["title"] == title)
    [sort] = panel["options"]["sortBy"]
    renamed = panel["transformations"][-1]["options"]["renameByName"]
    [column] = [key for key, name in renamed.items() if name == sort["displayName"]]
    everything = dict.fromkeys(("cluster", "job", "slo", "model", "version"), ".*")
    cells: dict[str, dict[str, float]] = defaultdict(dict)
    for target in panel["targets"]:
        for series in grafana.ask(panel, target, everything).series:
            cells[series["metric"]["model"]][f"Value #{target['refId']}"] = float(series["value"][1])
    return sorted(cells, key=lambda model: cells[model].get(column, -math.inf), reverse=sort["desc"])


@pytest.mark.real
@pytest.mark.parametrize(
    ("uid", "title", "order"),
    [
        ("triton-slo", "Objectives", ["overspent", "healthy", "idle", "vanished"]),
        ("triton-fleet", "Models", ["overspent", "healthy", "idle"]),
    ],
)
def test_the_emptiest_budget_is_first_and_what_has_none_is_last(
    grafana: Grafana, uid: str, title: str, order: list[str]
) -> None:
    """Models without requests do not hide an overspent one."""
    assert order == sorted_models(grafana, uid, title)


@pytest.mark.parametrize("panel", TABLES)
def test_no_table_begins_with_empty_cells(panel: Json) -> None:
    """A table sorted from low to high by a value has a number in each of its cells, also where there is no data."""
    for sort in panel["options"].get("sortBy", []):
        renamed = panel["transformations"][-1]["options"]["renameByName"]
        [column] = [key for key, name in renamed.items() if name == sort["displayName"]]
        by_value = column.startswith("Value #")

        assert sort["desc"] or not by_value or " or 2 + 0 * " in _expr(panel, column)


def _expr(panel: Json, column: str) -> str:
    return next(target["expr"] for target in panel["targets"] if column == f"Value #{target['refId']}")
