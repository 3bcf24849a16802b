"""The resource `Dashboard` of Perses: variables, panels, rows of the grid, links."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from triton_dashboards.perses.plugins import Json, plugin, remark, url
from triton_dashboards.values import Dashboard, Figure, Menu, Panel, Row, TimeSeries, Variable

_DATASOURCE = "$datasource"


def resource(dashboard: Dashboard, siblings: Sequence[Dashboard], project: str) -> Json:
    """Write a dashboard as a resource of a project; a menu becomes links to those of its tag among `siblings`."""
    single = tuple(variable.name for variable in dashboard.variables if not variable.multi)
    names = _panel_names(dashboard.panels)
    panels = dict(zip(names, (_panel(panel, project, single) for panel in dashboard.panels), strict=True))
    layouts, placed = [], iter(names)
    for row in dashboard.rows:
        layouts.append(_grid_json(row, [next(placed) for _ in row.panels]))
    return {
        "kind": "Dashboard",
        "metadata": {"name": dashboard.uid, "project": project},
        "spec": {
            "display": {"name": dashboard.title, "description": dashboard.description},
            "duration": dashboard.time_from.removeprefix("now-"),
            "refreshInterval": "30s",
            "variables": [_datasource(), *(_variable(variable) for variable in dashboard.variables)],
            "panels": panels,
            "layouts": layouts,
            "links": _link_json(dashboard, siblings, project),
        },
    }


def resource_text(dashboard: Dashboard, siblings: Sequence[Dashboard], project: str) -> str:
    """Return the resource as JSON, which `percli apply` reads."""
    return json.dumps(resource(dashboard, siblings, project), indent=2, ensure_ascii=False) + "\n"


def _panel_names(panels: Sequence[Panel]) -> list[str]:
    """Return names of panels after their titles; the second of a title ends in 2."""
    names: list[str] = []
    for panel in panels:
        name = re.sub(r"[^a-z0-9]+", "-", panel.title.lower()).strip("-")
        count = sum(other == name or re.fullmatch(rf"{name}-\d+", other) is not None for other in names)
        names.append(f"{name}-{count + 1}" if count else name)
    return names


def _panel(panel: Panel, project: str, single: tuple[str, ...]) -> Json:
    spec: Json = {
        "display": {"name": panel.title, "description": panel.description + remark(panel)},
        "plugin": plugin(panel, project),
        "queries": [
            _query_json(query.expr, query.legend, query.instant, panel) for query in panel.panel_queries
        ],
    }
    if isinstance(panel, Figure) and panel.display.links:
        spec["links"] = [
            {"name": link.title, "url": url(link, project, single), "renderVariables": True}
            for link in panel.display.links
        ]
    return {"kind": "Panel", "spec": spec}


def _query_json(expr: str, legend: str, instant: bool, panel: Panel) -> Json:
    spec: Json = {"datasource": _DATASOURCE, "query": expr}
    if legend:
        spec["seriesNameFormat"] = legend
    if instant:
        spec["instant"] = True
    if isinstance(panel, TimeSeries) and panel.every:
        spec["minStep"] = panel.every
    return {
        "kind": "TimeSeriesQuery",
        "spec": {"plugin": {"kind": "PrometheusTimeSeriesQuery", "spec": spec}},
    }


def _grid_json(row: Row, names: Sequence[str]) -> Json:
    items = []
    x = y = height = 0
    for panel, name in zip(row.panels, names, strict=True):
        if x + panel.width > 24:
            x, y, height = 0, y + height, 0
        content = {"$ref": f"#/spec/panels/{name}"}
        items.append({"x": x, "y": y, "width": panel.width, "height": panel.height, "content": content})
        x, height = x + panel.width, max(height, panel.height)
    spec: Json = {"display": {"title": row.title, "collapse": {"open": not row.collapsed}}, "items": items}
    return {"kind": "Grid", "spec": spec | ({"repeatVariable": row.repeat} if row.repeat else {})}


def _datasource() -> Json:
    return {
        "kind": "ListVariable",
        "spec": {
            "name": "datasource",
            "display": {"name": "Data source", "hidden": False},
            "allowAllValue": False,
            "allowMultiple": False,
            "plugin": {
                "kind": "DatasourceVariable",
                "spec": {"datasourcePluginKind": "PrometheusDatasource"},
            },
        },
    }


def _variable(variable: Variable) -> Json:
    asked = {"datasource": _DATASOURCE, "labelName": variable.name, "matchers": [variable.selector]}
    spec: Json = {
        "name": variable.name,
        "display": {"name": variable.label, "hidden": False},
        "allowAllValue": variable.multi,
        "allowMultiple": variable.multi,
        "sort": "alphabetical-asc",
        "plugin": {"kind": "PrometheusLabelValuesVariable", "spec": asked},
    }
    if variable.multi:
        spec["defaultValue"] = "$__all"
    if variable.multi and variable.all_value:
        spec["customAllValue"] = variable.all_value
    return {"kind": "ListVariable", "spec": spec}


def _link_json(dashboard: Dashboard, siblings: Sequence[Dashboard], project: str) -> list[Json]:
    made: list[Json] = []
    for link in dashboard.links:
        if isinstance(link, Menu):
            made += [
                {"name": board.title, "url": f"/projects/{project}/dashboards/{board.uid}"}
                for board in siblings
                if link.tag in board.tags and board.uid != dashboard.uid
            ]
        else:
            made.append({"name": link.title, "url": link.url, "targetBlank": True, "renderVariables": True})
    return made
