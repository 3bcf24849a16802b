"""Test our own lint on all dashboards together, and that each of its rules finds its mistake."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from promql_parser import parse as promql

from dashboards.dashboard_lint import lint
from support.panels import MACROS, MODELS, fill, panels

EVERY = list(MODELS.values())


def _first(model: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(panel for panel in panels(model) if panel["type"] == kind)


def test_nothing_is_found_on_the_dashboards_we_ship() -> None:
    """No rule is broken, and none is switched off."""
    assert [] == [str(problem) for problem in lint(EVERY)]


BREAKS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "not 1 to 40": lambda m: m.update(uid="with a blank"),
    "editable": lambda m: m.update(editable=True),
    "older than 41": lambda m: m.update(schemaVersion=12),
    "__inputs": lambda m: m.update(__inputs=[]),
    "$nobody is not defined": lambda m: _first(m, "stat")["targets"][0].update(expr="up{a='$nobody'}"),
    "not used by any": lambda m: m["templating"]["list"].append(
        m["templating"]["list"][1] | {"name": "spare"}
    ),
    "lacks a label": lambda m: m["templating"]["list"][1].update(label=""),
    "given twice": lambda m: m["panels"][2].update(id=m["panels"][1]["id"]),
    "two panels are called": lambda m: m["panels"][2].update(title=m["panels"][1]["title"]),
    "leaves the grid": lambda m: m["panels"][1]["gridPos"].update(w=30),
    "lies over": lambda m: m["panels"][1]["gridPos"].update(m["panels"][2]["gridPos"]),
    "of a kind": lambda m: m["panels"][1].update(type="graph"),
    "lacks a title": lambda m: m["panels"][1].update(description=""),
    "name its metric": lambda m: m["panels"][1].update(description="Something."),
    "has no unit": lambda m: m["panels"][1]["fieldConfig"]["defaults"].pop("unit"),
    "when there is no value": lambda m: m["panels"][1]["fieldConfig"]["defaults"].pop("noValue"),
    "null base": lambda m: m["panels"][1]["fieldConfig"]["defaults"]["thresholds"]["steps"][0].update(
        value="null"
    ),
    "is not seen": lambda m: _first(m, "stat")["fieldConfig"]["defaults"]["thresholds"]["steps"][0].update(
        color="transparent"
    ),
    "showLegend": lambda m: _first(m, "timeseries")["options"]["legend"].pop("showLegend"),
    "displayMode": lambda m: _first(m, "table")["fieldConfig"]["defaults"]["custom"].update(displayMode="x"),
    "is not the variable": lambda m: m["panels"][1].update(datasource={"uid": "Prometheus"}),
    "two of one refId": lambda m: _first(m, "table")["targets"][1].update(refId="A"),
    "fixed range": lambda m: _first(m, "stat")["targets"][0].update(
        expr="sum(rate(nv_inference_count{}[5m]))"
    ),
    "without rate": lambda m: _first(m, "stat")["targets"][0].update(expr="sum(nv_inference_count{})"),
    "exemplars of a series": lambda m: _first(m, "timeseries")["targets"][0].update(exemplar=True),
    "in exactly one query": lambda m: _first(m, "timeseries")["targets"][0].update(
        expr="sum(rate(triton_model_request_duration_seconds_bucket{}[$__rate_interval]))"
    ),
    "only a graph over time": lambda m: _first(m, "stat")["targets"][0].update(exemplar=True),
    "loses ${__url_time_range}": lambda m: _first(m, "stat")["fieldConfig"]["defaults"].update(
        links=[{"title": "Elsewhere", "url": "/d/triton-slo?${datasource:queryparam}"}]
    ),
    "loses ${datasource:queryparam}": lambda m: _first(m, "table")["fieldConfig"]["overrides"].append(
        {"properties": [{"id": "links", "value": [{"url": "/d/triton-slo?${__url_time_range}"}]}]}
    ),
    "keeps time and variables": lambda m: m["links"][0].update(includeVars=False),
    "is not instant": lambda m: _first(m, "table")["targets"][0].update(instant=False),
}


@pytest.mark.parametrize("printed", BREAKS)
def test_each_rule_finds_its_mistake(printed: str) -> None:
    """A dashboard broken on purpose is reported, in words that name the mistake."""
    broken = copy.deepcopy(EVERY[0])
    BREAKS[printed](broken)

    assert any(printed in str(problem) for problem in lint([broken]))


def test_same_uid_twice_is_found_over_all_files() -> None:
    """Two files with one uid lock Grafana's provisioning, so the lint checks all files together."""
    assert any("two dashboards" in str(problem) for problem in lint([EVERY[0], EVERY[0]]))


def test_every_query_is_promql() -> None:
    """Each expression parses by an independent parser once Grafana's macros are replaced."""
    for model in EVERY:
        names = {variable["name"] for variable in model["templating"]["list"]}
        chosen = dict.fromkeys(names, "x") | MACROS
        for panel in panels(model):
            for target in panel["targets"]:
                assert promql(fill(target["expr"], chosen)) is not None
