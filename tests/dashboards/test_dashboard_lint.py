"""Test our own lint on all dashboards together."""

from __future__ import annotations

from promql_parser import parse as promql

from dashboards.dashboard_lint import lint
from support.panels import MACROS, MODELS, fill, panels

EVERY = list(MODELS.values())


def test_nothing_is_found_on_the_dashboards_we_ship() -> None:
    """No rule is broken, and none is switched off."""
    assert [] == [str(problem) for problem in lint(EVERY)]


def test_every_query_is_promql() -> None:
    """Each expression parses by an independent parser once Grafana's macros are replaced."""
    for model in EVERY:
        names = {variable["name"] for variable in model["templating"]["list"]}
        chosen = dict.fromkeys(names, "x") | MACROS
        for panel in panels(model):
            for target in panel["targets"]:
                assert promql(fill(target["expr"], chosen)) is not None
