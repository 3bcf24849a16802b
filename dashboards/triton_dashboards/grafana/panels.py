"""Panels as Grafana 12 and 13 read them, each kind with the settings that make it readable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from triton_dashboards.grafana import library
from triton_dashboards.grafana.library import DATASOURCE, Json
from triton_dashboards.values import (
    Column,
    Display,
    Figure,
    LabelColumn,
    Link,
    Panel,
    Query,
    Stat,
    StateTimeline,
    Style,
    Table,
    Threshold,
    TimeSeries,
)


def body(panel: Panel) -> Any:
    """Return grafanalib's panel, which `library.panel_model` corrects when it is written."""
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
    return library.core.Stat(
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
    return library.core.TimeSeries(
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
    return library.core.StateTimeline(
        **_figure(panel),
        showValue="auto",
        fillOpacity=80,
        tooltipMode="single",
        extraJson={
            "fieldConfig": {"defaults": _value_settings(panel.display) | {"unit": panel.display.unit}},
            "options": {
                "perPage": _lines_per_page(panel),
                "legend": {"showLegend": True, "displayMode": "list", "placement": "bottom", "calcs": []},
                "tooltip": {"mode": "single", "sort": "none", "hideZeros": False},
            },
        },
    )


def _lines_per_page(panel: StateTimeline) -> int:
    """Return how many lines fit on a page: 20 pixels each; Grafana has 38 pixels for a unit of height."""
    return (38 * panel.height - 100) // 20


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
    return library.core.Table(
        **_common(panel, _query_targets(panel, "table")),
        thresholds=[_threshold_step(Threshold("text"))],
        unit="short",
        filterable=True,
        overrides=[_override("byName", name, has) for name, has in overrides.items() if has],
        sortBy=[library.core.TableSortByField(displayName=panel.sort_by, desc=panel.descending)]
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
    return _common(panel, _query_targets(panel)) | {
        "thresholds": [_threshold_step(threshold) for threshold in display.thresholds],
        "mappings": _mappings(display),
        "overrides": [_style(style) for style in display.styles],
    }


def _common(panel: Panel, targets: Sequence[library.Target]) -> Json:
    return {
        "title": panel.title,
        "description": panel.description,
        "dataSource": DATASOURCE,
        "maxDataPoints": None,
        "targets": targets,
    }


def _query_targets(panel: Panel, form: str = library.core.TIME_SERIES_TARGET_FORMAT) -> list[library.Target]:
    return [_query_target(query, index, form) for index, query in enumerate(panel.panel_queries)]


def _query_target(query: Query, index: int, form: str) -> library.Target:
    target = library.Target(
        expr=query.expr,
        legendFormat=query.legend,
        refId=chr(ord("A") + index),
        instant=query.instant,
        format=form,
    )
    target.exemplar = query.exemplar
    return target


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
    if panel.legend == "hidden":
        return {"showLegend": False, "displayMode": "list", "placement": "bottom", "calcs": []}
    return {
        "showLegend": True,
        "displayMode": "table",
        "placement": "right" if panel.legend == "right" else "bottom",
        "calcs": list(panel.calcs),
    } | ({"sortBy": "Last *", "sortDesc": not panel.lowest_first} if "lastNotNull" in panel.calcs else {})
