"""Dashboards as Grafana 12 and 13 read them: grafanalib corrected, then panels, then the dashboard with its grid.

This is the only module that imports grafanalib. Version 0.7.1 writes several things that Grafana ignores silently: a
threshold base of "null" in quotes, legends without showLegend, tables in the form of Grafana 7, Angular heatmaps. Every
panel is built by grafanalib and leaves through `panel_model`, which corrects those and keeps only the keys that the
dashboard schema knows. What cannot be corrected is subclassed here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from grafanalib import core  # type: ignore[import-untyped]
from grafanalib._gen import DashboardEncoder  # type: ignore[import-untyped]

from triton_dashboards.values import (
    Annotation,
    Column,
    Dashboard,
    Display,
    Figure,
    LabelColumn,
    Link,
    Menu,
    Panel,
    Row,
    Stat,
    StateTimeline,
    Style,
    Table,
    Threshold,
    TimeSeries,
    Variable,
)

Json = dict[str, Any]

SCHEMA_VERSION = 41
"""Dashboard model version: Grafana 12.4 and 13.2 read it without a migration that changes it."""
PLUGIN_VERSION = "12.4.0"
"""Version from which the migrations of a panel have nothing to change."""
DATASOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}


def encode(thing: Any) -> Json:
    """Turn a grafanalib object into plain JSON values, which its own to_json_data does not."""
    plain: Json = json.loads(json.dumps(thing, cls=DashboardEncoder))
    return plain


class Target(core.Target):  # type: ignore[misc]
    """A Prometheus query without grafanalib's Graphite keys and fixed steps, with exemplars on request."""

    exemplar = False

    def to_json_data(self) -> Json:
        body: Json = {
            "datasource": DATASOURCE,
            "editorMode": "code",
            "expr": self.expr,
            "instant": self.instant,
            "range": not self.instant,
            "legendFormat": self.legendFormat or "__auto",
            "refId": self.refId,
        }
        if self.format != core.TIME_SERIES_TARGET_FORMAT:
            body["format"] = self.format
        if self.exemplar:
            body["exemplar"] = True
        return body


_PANEL_KEYS = frozenset(
    {
        "type",
        "title",
        "description",
        "datasource",
        "fieldConfig",
        "interval",
        "links",
        "maxDataPoints",
        "options",
        "targets",
        "timeFrom",
        "transformations",
        "pluginVersion",
    }
)
"""Keys of a panel in @grafana/schema; Grafana 13 takes any other for a sign of Angular."""


def panel_model(body: Any) -> Json:
    """Write a grafanalib panel as Grafana 12 and 13 read it."""
    raw = encode(body)
    model = {
        key: value for key, value in raw.items() if key in _PANEL_KEYS and value not in (None, [], False)
    }
    model["pluginVersion"] = PLUGIN_VERSION
    config = model["fieldConfig"]
    config.setdefault("overrides", [])
    custom = config["defaults"].get("custom", {})
    if "displayMode" in custom:
        # Ignored since schema 38: the style of a table cell moved into cellOptions.
        custom["cellOptions"] = {"type": custom.pop("displayMode")}
        custom["inspect"] = False
    if custom.get("scaleDistribution", {}).get("type") == "linear":
        custom["scaleDistribution"].pop("log", None)
    for key in [key for key, value in custom.items() if value is None]:
        del custom[key]
    if model["type"] == "timeseries":
        model["options"]["tooltip"].setdefault("hideZeros", False)
    config["defaults"] = {
        key: value for key, value in config["defaults"].items() if value not in (None, [], {})
    }
    return model


def body(panel: Panel) -> Any:
    """Return grafanalib's panel, which `panel_model` corrects when it is written."""
    match panel:
        case Stat():
            return _stat(panel)
        case TimeSeries():
            return _timeseries(panel)
        case Table():
            return _table(panel)
        case StateTimeline():
            return _state_timeline(panel)
    raise TypeError(f"no such panel in Grafana: {type(panel).__name__}")


def _stat(panel: Stat) -> Any:
    return core.Stat(
        **_figure(panel),
        color={"mode": "thresholds"},
        colorMode="value",
        graphMode="area" if panel.sparkline else "none",
        reduceCalc="lastNotNull",
        textMode="auto",
        noValue=panel.display.no_value,
        format=panel.display.unit,
        decimals=panel.display.decimals,
        extraJson={
            "fieldConfig": {"defaults": _value_settings(panel.display)},
            "options": {
                "wideLayout": False,
                "showPercentChange": False,
                "percentChangeColorMode": "standard",
            },
        },
    )


def _timeseries(panel: TimeSeries) -> Any:
    bars, stacked, display = panel.bars, panel.stacked, panel.display
    return core.TimeSeries(
        **_figure(panel),
        thresholdsStyleMode="dashed" if panel.limit_line else "off",
        unit=display.unit,
        valueDecimals=display.decimals,
        drawStyle="bars" if bars else "line",
        lineInterpolation="stepAfter" if panel.step else "linear",
        lineWidth=1 if bars or stacked else 2,
        # Filled areas under thirty lines would hide the lines.
        fillOpacity=60 if bars else 40 if stacked else 0,
        gradientMode="none",
        showPoints="never" if not bars else "auto",
        scaleDistributionType="log" if panel.log else "linear",
        scaleDistributionLog=10,
        stacking={"mode": "normal" if stacked or bars else "none", "group": "A"},
        tooltipMode="multi",
        tooltipSort="desc",
        timeFrom=panel.over or None,
        interval=panel.every or None,
        extraJson={
            "fieldConfig": {
                "defaults": _value_settings(display) | {"custom": {"axisSoftMax": _soft_maximum(panel)}}
            },
            "options": {"legend": _legend(panel)},
        },
    )


def _state_timeline(panel: StateTimeline) -> Any:
    return core.StateTimeline(
        **_figure(panel),
        showValue="auto",
        fillOpacity=80,
        tooltipMode="single",
        extraJson={
            "fieldConfig": {"defaults": _value_settings(panel.display) | {"unit": panel.display.unit}},
            "options": {
                # Lines that fit on a page, of 20 pixels each; Grafana has 38 pixels for a unit of height.
                "perPage": (38 * panel.height - 100) // 20,
                "legend": {"showLegend": True, "displayMode": "list", "placement": "bottom", "calcs": []},
                "tooltip": {"mode": "single", "sort": "none", "hideZeros": False},
            },
        },
    )


def _table(panel: Table) -> Any:
    # Grafana names the column of a lone query "Value", and numbers them by query where there are more.
    numbered = len(panel.columns) > 1
    values = {
        f"Value #{chr(ord('A') + index)}" if numbered else "Value": column.name
        for index, column in enumerate(panel.columns)
    }
    labels = [key.label for key in panel.keys]
    overrides = {key.name: _key_override(key) for key in panel.keys} | {
        column.name: _column(column) for column in panel.columns
    }
    organized = {
        "excludeByName": {"Time": True} | ({} if values else {"Value": True}),
        "indexByName": {name: index for index, name in enumerate([*labels, *values])},
        "renameByName": {key.label: key.name for key in panel.keys} | values,
    }
    return core.Table(
        **_common(panel, "table"),
        thresholds=[_threshold_step(Threshold("text"))],
        unit="short",
        filterable=True,
        overrides=[_override("byName", name, has) for name, has in overrides.items() if has],
        sortBy=[core.TableSortByField(displayName=panel.sort_by, desc=panel.descending)]
        if panel.sort_by
        else [],
        transformations=[{"id": "merge", "options": {}}, {"id": "organize", "options": organized}],
        extraJson={
            "fieldConfig": {
                "defaults": {
                    "noValue": panel.no_value,
                    "mappings": _mappings(Display(no_value=panel.no_value)),
                    "color": {"mode": "thresholds"},
                }
            },
            "options": {"cellHeight": "sm", "frameIndex": 0},
        },
    )


def _key_override(key: LabelColumn) -> Json:
    """Return the links, width and colours of the column of a label."""
    properties: Json = {}
    if key.link:
        properties["links"] = [_link_json(key.link)]
    if key.width:
        properties["custom.width"] = key.width
    if key.colors:
        properties["custom.cellOptions"] = {"type": "color-text"}
        properties["mappings"] = [_value_mapping({word: (word, color) for word, color in key.colors.items()})]
    return properties


def _column(column: Column) -> Json:
    """Return the unit, limits and colour of the column of a query."""
    display = column.display
    properties: Json = {
        "unit": display.unit,
        "thresholds": {
            "mode": "absolute",
            "steps": [_threshold_step(threshold) for threshold in display.thresholds],
        },
    }
    if display.decimals is not None:
        properties["decimals"] = display.decimals
    # A cell without a value would take the colour of the lowest threshold: red, for a budget.
    nothing = {"match": "null", "result": {"text": "–", "color": "text", "index": len(display.words)}}
    properties["mappings"] = [
        *([_value_mapping(display.words)] if display.words else []),
        {"type": "special", "options": nothing},
    ]
    if column.colored:
        properties["custom.cellOptions"] = {"type": "color-text"}
    if column.width:
        properties["custom.width"] = column.width
    return properties


def _figure(panel: Figure) -> Json:
    display = panel.display
    return _common(panel, core.TIME_SERIES_TARGET_FORMAT) | {
        "thresholds": [_threshold_step(threshold) for threshold in display.thresholds],
        "mappings": _mappings(display),
        "overrides": [_style(style) for style in display.styles],
    }


def _common(panel: Panel, form: str) -> Json:
    targets = []
    for index, query in enumerate(panel.panel_queries):
        target = Target(
            expr=query.expr,
            legendFormat=query.legend,
            refId=chr(ord("A") + index),
            instant=query.instant,
            format=form,
        )
        target.exemplar = query.exemplar
        targets.append(target)
    return {
        "title": panel.title,
        "description": panel.description,
        "dataSource": DATASOURCE,
        "maxDataPoints": None,
        "targets": targets,
    }


def _threshold_step(threshold: Threshold) -> Json:
    """Return a threshold as Grafana's schema has it: the base is null, not the text "null" of grafanalib."""
    return {"color": threshold.color, "value": threshold.value}


def _override(matcher: str, name: str, properties: Json) -> Json:
    return {
        "matcher": {"id": matcher, "options": name},
        "properties": [{"id": key, "value": value} for key, value in properties.items()],
    }


_LINES: dict[str, Json] = {
    "measured": {},
    "limit": {
        "custom.lineStyle": {"fill": "dash", "dash": [8, 8]},
        "custom.fillOpacity": 0,
        "custom.hideFrom": {"legend": True, "tooltip": False, "viz": False},
    },
    "reference": {"custom.lineWidth": 1, "custom.fillOpacity": 0},
}


def _style(style: Style) -> Json:
    properties = _LINES[style.line] | {"color": {"mode": "fixed", "fixedColor": style.color}}
    if style.prefix:
        return _override("byRegexp", f"/^{style.name}/", properties)
    return _override("byName", style.name, properties)


def _link_json(link: Link) -> Json:
    return {"title": link.title, "url": link.url, "targetBlank": link.outside}


def _value_settings(display: Display) -> Json:
    limits: Json = {"noValue": display.no_value, "links": [_link_json(link) for link in display.links]}
    if display.minimum is not None:
        limits["min"] = display.minimum
    if display.maximum is not None:
        limits["max"] = display.maximum
    if display.shade:
        limits["color"] = {"mode": "shades", "fixedColor": display.shade}
    return limits


def _soft_maximum(panel: TimeSeries) -> float | None:
    """Return an axis' least end: it contains the limit that is drawn, and around zeros alone Grafana draws an axis
    up to 10,000 %, or with equal labels.
    """
    display = panel.display
    if display.maximum is not None:
        return None
    if panel.limit_line:
        return max((step.value for step in display.thresholds if step.value is not None), default=None)
    if display.unit == "percentunit":
        return 0.01
    return 5 if display.decimals == 0 else None


def _mappings(display: Display) -> list[Json]:
    """Return words for values, and for a division by no traffic, which PromQL gives as NaN."""
    no_number = {
        "match": "null+nan",
        "result": {"text": display.no_value, "color": "text", "index": len(display.words)},
    }
    return [
        *([_value_mapping(display.words)] if display.words else []),
        {"type": "special", "options": no_number},
    ]


def _value_mapping(words: Mapping[Any, tuple[str, str]]) -> Json:
    return {
        "type": "value",
        "options": {
            str(value): {"text": word, "color": color, "index": index}
            for index, (value, (word, color)) in enumerate(words.items())
        },
    }


def _legend(panel: TimeSeries) -> Json:
    return {
        "showLegend": True,
        "displayMode": "table",
        "placement": "right" if panel.legend == "right" else "bottom",
        "calcs": list(panel.calcs),
    } | ({"sortBy": "Last *", "sortDesc": not panel.lowest_first} if "lastNotNull" in panel.calcs else {})


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
    unknown = {"useTags", "tagsQuery", "tagValuesQuery", "auto", "auto_min", "auto_count", "current"}
    model = {
        key: value for key, value in encode(template).items() if key not in unknown and value is not None
    }
    model["definition"] = query
    model["query"] = {
        "qryType": 1,
        "query": query,
        "refId": "PrometheusVariableQueryEditor-VariableQuery",
    }
    if variable.multi:
        model["current"] = {"selected": True, "text": ["All"], "value": ["$__all"]}
    return model


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
    how: Json = {"type": "link", "keepTime": False, "targetBlank": True}
    if isinstance(link, Menu):
        how = {
            "type": "dashboards",
            "tags": [link.tag],
            "asDropdown": True,
            "includeVars": True,
            "keepTime": True,
        }
    else:
        how["uri"] = link.url
    model: Json = core.DashboardLink(title=link.title, icon="external link", **how).to_json_data()
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
        schemaVersion=SCHEMA_VERSION,
        links=[link_model(link) for link in dashboard.links],
    )
    raw = encode(base)
    return {key: raw[key] for key in _DASHBOARD_KEYS} | {
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
        next_id += 1
        inside: list[Json] = []
        x, line_y, line_height = 0, y + 1, 0
        for panel in row.panels:
            if x + panel.width > COLUMNS:
                x, line_y, line_height = 0, line_y + line_height, 0
            place = {"x": x, "y": line_y, "w": panel.width, "h": panel.height}
            inside.append(panel_model(body(panel)) | {"id": next_id, "gridPos": place})
            next_id += 1
            x += panel.width
            line_height = max(line_height, panel.height)
        if row.collapsed:
            placed.append(header | {"panels": inside})
            y += 1
        else:
            placed += [header, *inside]
            y = line_y + line_height
    return placed


def dashboard_text(dashboard: Dashboard) -> str:
    """Return the dashboard as bytes that never change for the same input: Grafana sees a change by checksum."""
    return json.dumps(dashboard_model(dashboard), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
