"""grafanalib stays behind the layer that corrects it."""

from __future__ import annotations

from pathlib import Path

import triton_dashboards
from triton_dashboards.grafana.library import encode, panel_model
from triton_dashboards.grafana.panels import stat
from triton_dashboards.grafana.values import Display, Query, Threshold

PACKAGE = Path(triton_dashboards.__file__).parent


def test_one_module_imports_grafanalib() -> None:
    """The library could be swapped by changing one file."""
    importing = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if "from grafanalib" in path.read_text(encoding="utf-8")
    }

    assert {"grafana/library.py"} == importing


def test_layer_drops_keys_that_grafana_takes_for_angular() -> None:
    """grafanalib writes keys that Grafana 13 takes for an Angular panel; none of them leaves the layer."""
    panel = stat("A", "B", [Query("up")], Display(thresholds=(Threshold("green"), Threshold("red", 1))))
    raw, model = encode(panel.body), panel_model(panel.body)

    assert {"editable", "error", "span"} <= set(raw)
    assert set() == {"editable", "error", "height", "span", "minSpan", "cacheTimeout"} & set(model)
    assert [None, 1] == [step["value"] for step in model["fieldConfig"]["defaults"]["thresholds"]["steps"]]
