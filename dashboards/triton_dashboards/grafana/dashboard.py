"""The dashboard model: variables, annotations, links, and panels put on the grid."""

from __future__ import annotations

import json
from collections.abc import Sequence

from triton_dashboards.grafana import library
from triton_dashboards.grafana.library import DATASOURCE, Json, core
from triton_dashboards.grafana.panels import body
from triton_dashboards.values import Annotation, Dashboard, Link, Menu, Row, Variable


def variable_model(variable: Variable) -> Json:
    """Return a variable as the schema has it, All chosen where there is one."""
    query = f"label_values({variable.selector}, {variable.name})"
    template = core.Template(
        name=variable.name,
        label=variable.label,
        query=query,
        dataSource=DATASOURCE,
        type="query",
        includeAll=variable.multi,
        multi=variable.multi,
        allValue=variable.all_value if variable.multi else None,
        refresh=2,
    )
    raw = {key: value for key, value in library.encode(template).items() if key not in _TEMPLATE_DEAD}
    return (
        {key: value for key, value in raw.items() if value is not None}
        | {
            "definition": query,
            "query": {
                "qryType": 1,
                "query": query,
                "refId": "PrometheusVariableQueryEditor-VariableQuery",
            },
        }
        | ({"current": {"selected": True, "text": ["All"], "value": ["$__all"]}} if variable.multi else {})
    )


_TEMPLATE_DEAD = frozenset(
    {
        "useTags",
        "tagsQuery",
        "tagValuesQuery",
        "auto",
        "auto_min",
        "auto_count",
        "current",
    }
)


def datasource_variable() -> Json:
    """Return the variable that every panel takes its data source from."""
    return {
        "name": "datasource",
        "label": "Data source",
        "description": "A Prometheus that scrapes the exporter and loads the generated rules.",
        "type": "datasource",
        "query": "prometheus",
        "hide": 0,
        "includeAll": False,
        "multi": False,
        "options": [],
        "refresh": 1,
        "regex": "",
    }


def annotation_model(annotation: Annotation) -> Json:
    """Return an annotation as Grafana's Prometheus data source reads it."""
    return {
        "name": annotation.name,
        "datasource": DATASOURCE,
        "enable": annotation.enabled,
        "hide": False,
        "iconColor": annotation.color,
        "target": {"expr": annotation.expr, "interval": "60s", "refId": "Anno"},
        "titleFormat": annotation.title,
        "textFormat": annotation.text,
        "tagKeys": ",".join(annotation.tags),
        "useValueForTime": False,
    }


def link_model(link: Menu | Link) -> Json:
    """Return a menu of dashboards, or a link to a page outside Grafana, at the top of a dashboard."""
    made = (
        core.DashboardLink(
            title=link.title,
            tags=[link.tag],
            type="dashboards",
            asDropdown=True,
            includeVars=True,
            keepTime=True,
            icon="external link",
        )
        if isinstance(link, Menu)
        else core.DashboardLink(
            title=link.title,
            type="link",
            uri=link.url,
            icon="external link",
            keepTime=False,
            targetBlank=True,
        )
    )
    model: Json = made.to_json_data()
    return model


def dashboard_model(dashboard: Dashboard) -> Json:
    """Write a dashboard as Grafana's classic JSON: the form that 12 and 13 both take from files and API."""
    base = core.Dashboard(
        title=dashboard.title,
        uid=dashboard.uid,
        description=dashboard.description,
        tags=list(dashboard.tags),
        timezone="browser",
        editable=False,
        graphTooltip=core.GRAPH_TOOLTIP_MODE_SHARED_CROSSHAIR,
        refresh="30s",
        time=core.Time(dashboard.time_from, "now"),
        schemaVersion=library.SCHEMA_VERSION,
        links=[link_model(link) for link in dashboard.links],
    )
    raw = library.encode(base)
    model = {key: raw[key] for key in _DASHBOARD_KEYS}
    return model | {
        "annotations": {
            "list": [_BUILT_IN_ANNOTATION, *(annotation_model(a) for a in dashboard.annotations)]
        },
        "templating": {"list": [datasource_variable(), *(variable_model(v) for v in dashboard.variables)]},
        "timepicker": {"refresh_intervals": ["5s", "10s", "30s", "1m", "5m", "15m", "30m", "1h"]},
        "panels": _placed(dashboard.rows),
    }


_DASHBOARD_KEYS = (
    "description",
    "editable",
    "graphTooltip",
    "links",
    "refresh",
    "schemaVersion",
    "tags",
    "time",
    "timezone",
    "title",
    "uid",
)

_BUILT_IN_ANNOTATION: Json = {
    "builtIn": 1,
    "datasource": {"type": "grafana", "uid": "-- Grafana --"},
    "enable": True,
    "hide": True,
    "iconColor": "rgba(0, 211, 255, 1)",
    "name": "Annotations & Alerts",
    "type": "dashboard",
}

COLUMNS = 24
"""Width of Grafana's grid."""


def _placed(rows: Sequence[Row]) -> list[Json]:
    """Give every panel an id and a place: left to right, a new line when the 24 columns are full."""
    placed: list[Json] = []
    y = 0
    next_id = 1
    for row in rows:
        header: Json = {
            "id": next_id,
            "type": "row",
            "title": row.title,
            "collapsed": row.collapsed,
            "panels": [],
            "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1},
        }
        if row.repeat:
            header["repeat"] = row.repeat
        next_id += 1
        inside: list[Json] = []
        x, line_y, line_height = 0, y + 1, 0
        for panel in row.panels:
            if x + panel.width > COLUMNS:
                x, line_y, line_height = 0, line_y + line_height, 0
            place = {"x": x, "y": line_y, "w": panel.width, "h": panel.height}
            inside.append(library.panel_model(body(panel)) | {"id": next_id, "gridPos": place})
            next_id += 1
            x += panel.width
            line_height = max(line_height, panel.height)
        if row.title:
            placed.append(header | {"panels": inside if row.collapsed else []})
        placed.extend([] if row.collapsed else inside)
        y = y + 1 if row.collapsed else line_y + line_height
    return placed


def dashboard_text(dashboard: Dashboard) -> str:
    """Return the dashboard as bytes that never change for the same input: Grafana sees a change by checksum."""
    return json.dumps(dashboard_model(dashboard), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
