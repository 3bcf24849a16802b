"""Test the layer that corrects grafanalib, the only module that imports it."""

from __future__ import annotations

from support.panels import Json, panels
from triton_dashboards.generate import dashboards
from triton_dashboards.grafana import body, dashboard_model, encode, panel_model
from triton_dashboards.values import Display, Query, Stat, Threshold
from triton_slo.artifact import Options


def test_layer_drops_keys_that_grafana_takes_for_angular() -> None:
    """Grafana 13 treats some keys of grafanalib as those of an Angular panel; the layer removes them."""
    panel = body(Stat("A", "B", [Query("up")], Display(thresholds=(Threshold("green"), Threshold("red", 1)))))
    raw, model = encode(panel), panel_model(panel)

    assert {"editable", "error", "span"} <= set(raw)
    assert set() == {"editable", "error", "height", "span", "minSpan", "cacheTimeout"} & set(model)
    assert [None, 1] == [step["value"] for step in model["fieldConfig"]["defaults"]["thresholds"]["steps"]]


def _model(title: str, kind: str = "") -> Json:
    shown = (panel for dashboard in dashboards(Options()) for panel in panels(dashboard_model(dashboard)))
    return next(drawn for drawn in shown if title == drawn["title"] and kind in drawn["type"])


def test_a_legend_begins_with_the_worst() -> None:
    """The highest failed share comes first, and the lowest budget."""
    assert _model("Failed by model")["options"]["legend"]["sortDesc"]
    assert not _model("Budget left", "timeseries")["options"]["legend"]["sortDesc"]


def test_no_value_has_no_colour_of_health() -> None:
    """A word such as "No traffic" is neither green nor blue: no value reads in the colour of text."""
    mappings = _model("Failed")["fieldConfig"]["defaults"]["mappings"]

    assert {"match": "null+nan", "result": {"text": "No traffic", "color": "text", "index": 0}} == (
        mappings[-1]["options"]
    )
