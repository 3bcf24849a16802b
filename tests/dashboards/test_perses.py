"""Test the dashboards for Perses: every panel and query of Grafana's, in the form of Perses' schemas."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pydantic import ValidationError

from dashboards.perses_model import Resource
from support.panels import Json, panels
from support.tools import ROOT
from triton_dashboards import example, per_model
from triton_dashboards.generate import dashboards
from triton_dashboards.grafana.dashboard import dashboard_model
from triton_dashboards.perses.resource import resource
from triton_dashboards.values import Dashboard, Link
from triton_slo.artifact import Options
from tritonwatch.cli import main

OPTIONS = Options(links=(("Logs", "https://logs.example.org/?q=${model}"),))
OURS = dashboards(OPTIONS)
EVERY = [*OURS, per_model.dashboard(example.FACTS, (), OPTIONS)]
BY_NAME = {board.uid: resource(board, OURS, "triton") for board in EVERY}
each = pytest.mark.parametrize("board", EVERY, ids=lambda board: str(board.uid))


def specs(model: Json) -> list[Json]:
    return [panel["spec"] for panel in model["spec"]["panels"].values()]


def queries(spec: Json) -> list[str]:
    return [query["spec"]["plugin"]["spec"]["query"] for query in spec["queries"]]


@each
def test_perses_accepts_it(board: Dashboard) -> None:
    """No key and no value that the schemas of Perses and its plugins do not know."""
    Resource.model_validate(BY_NAME[board.uid])


@each
def test_a_panel_in_perses_queries_and_shows_what_grafana_does(board: Dashboard) -> None:
    """Titles, questions and queries are those of Grafana's dashboard, in its order."""
    theirs = [(panel["title"], [target["expr"] for target in panel["targets"]]) for panel in _shown(board)]

    assert theirs == [(spec["display"]["name"], queries(spec)) for spec in specs(BY_NAME[board.uid])]


@each
def test_its_rows_are_grafanas(board: Dashboard) -> None:
    """Each row has its heading and is open or closed as in Grafana, and panels have the same size."""
    theirs = [
        (panel["title"], not panel["collapsed"])
        for panel in dashboard_model(board)["panels"]
        if panel["type"] == "row"
    ]
    grids = [grid["spec"] for grid in BY_NAME[board.uid]["spec"]["layouts"]]

    assert theirs == [(grid["display"]["title"], grid["display"]["collapse"]["open"]) for grid in grids]
    assert [(panel["gridPos"]["w"], panel["gridPos"]["h"]) for panel in _shown(board)] == [
        (item["width"], item["height"]) for grid in grids for item in grid["items"]
    ]


@each
def test_its_variables_are_grafanas(board: Dashboard) -> None:
    """Each variable has Grafana's name, label and values, and All matches a label that is absent."""
    theirs = dashboard_model(board)["templating"]["list"]
    ours = [variable["spec"] for variable in BY_NAME[board.uid]["spec"]["variables"]]

    assert [their["name"] for their in theirs] == [our["name"] for our in ours]
    for their, our in zip(theirs[1:], ours[1:], strict=True):
        asked = our["plugin"]["spec"]

        assert their["definition"] == f"label_values({asked['matchers'][0]}, {asked['labelName']})"
        assert their["multi"] == our["allowMultiple"] == our["allowAllValue"]
        assert (their.get("allValue") or None) == our.get("customAllValue")


def _shown(board: Dashboard) -> list[Json]:
    return list(panels(dashboard_model(board)))


def test_a_panel_states_what_perses_cannot_show() -> None:
    """The description of a panel that Perses draws in another way states this."""
    printed = {
        spec["display"]["name"]: spec["display"]["description"]
        for model in BY_NAME.values()
        for spec in specs(model)
    }

    assert "buckets" in printed["First responses"].split("Perses")[1]
    assert "range of the dashboard" in printed["Budget left by month"].split("Perses")[1]


def test_links_lead_to_dashboards_that_exist() -> None:
    """Links of panels, cells and the page stay in the project, and carry a model that is chosen."""
    matches = re.findall(r'"url": "(/[^"]+)"', json.dumps(list(BY_NAME.values())).replace('\\"', "'"))
    names = {urlsplit(url).path.removeprefix("/projects/triton/dashboards/") for url in matches}

    assert names <= set(BY_NAME)
    assert any("?var-model=${__data.fields['model']}" in url for url in matches)
    assert any("triton-slo?var-model=$model" in url for url in matches)


def test_the_page_links_to_its_siblings_and_to_the_operators_pages() -> None:
    """Perses has no menu by tag, so each dashboard names the others."""
    links = {link["name"]: link["url"] for link in BY_NAME["triton-fleet"]["spec"]["links"]}

    assert {"Triton / Model", "Runbooks", "Logs"} <= set(links)
    assert "Triton / Fleet" not in links


def test_the_model_of_the_schema_finds_mistakes() -> None:
    """A key that Perses does not know, and a panel that no layout places, are errors."""
    model = json.loads(json.dumps(BY_NAME["triton-fleet"]))
    model["spec"]["layouts"][0]["spec"]["items"].pop()
    with pytest.raises(ValidationError):
        Resource.model_validate(model)
    model = json.loads(json.dumps(BY_NAME["triton-fleet"]))
    next(iter(model["spec"]["panels"].values()))["spec"]["plugin"]["spec"]["colour"] = "red"
    with pytest.raises(ValidationError):
        Resource.model_validate(model)


def test_write_writes_resources_of_a_project(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`dashboards write --format perses` writes a file a dashboard, for the project asked for."""
    done = main(["dashboards", "write", "--out", str(tmp_path), "--format", "perses", "--project", "ml"])
    made = {path.name: json.loads(path.read_text("utf-8")) for path in tmp_path.glob("*.json")}

    assert 0 == done, capsys.readouterr()
    assert {f"{our.uid}.perses.json" for our in OURS} == set(made)
    assert {"ml"} == {resource["metadata"]["project"] for resource in made.values()}
    assert "/projects/ml/dashboards/triton-model" in json.dumps(made)


def test_committed_resources_are_current() -> None:
    """`make generate` writes dashboards/perses."""
    committed = {
        path.name: json.loads(path.read_text("utf-8"))
        for path in (ROOT / "dashboards" / "perses").glob("*.json")
    }
    current = {f"{dashboard.uid}.perses.json": dashboard for dashboard in dashboards(Options())}

    assert {
        name: resource(board, tuple(current.values()), "triton") for name, board in current.items()
    } == committed


def test_a_link_needs_no_variable_with_several_values() -> None:
    """A chosen All would become a value of its own in the address, so only single values are carried."""
    board = OURS[0]
    [servers_down] = [
        panel for panel in specs(BY_NAME[board.uid]) if panel["display"]["name"] == "Servers down"
    ]

    assert [Link("Servers and exporters").title] == [link["name"] for link in servers_down["links"]]
    assert ["/projects/triton/dashboards/triton-server"] == [link["url"] for link in servers_down["links"]]
