"""Panels as plugins of Perses (https://perses.dev), and what Perses cannot draw in words."""

from __future__ import annotations

import re
from typing import Any

from triton_dashboards.values import (
    Column,
    Display,
    Heatmap,
    LabelColumn,
    Link,
    Panel,
    Stat,
    StateTimeline,
    Style,
    Table,
    TimeSeries,
)

Json = dict[str, Any]

_UNITS = {
    "s": "seconds",
    "ms": "milliseconds",
    "µs": "microseconds",
    "bytes": "bytes",
    "Bps": "bytes/sec",
    "percentunit": "percent-decimal",
    "reqps": "requests/sec",
    "count:tok/s": "counts/sec",
    "celsius": "celsius",
    "dateTimeFromNow": "relative-time",
    "short": "decimal",
    "locale": "decimal",
}
_UNIT_WORDS = {"watt": "W", "joule": "J", "hertz": "Hz"}
"""Units that Perses does not have, and their words on an axis or in a heading."""
_DATE_UNITS = ("relative-time",)
_SHORTENED_UNITS = ("decimal", "bytes", "bytes/sec", "counts/sec", "requests/sec")
_COLORS = {
    "gray": "#808080",
    "silver": "#c0c0c0",
    "green": "#73bf69",
    "light-green": "#96d98d",
    "orange": "#ff9830",
    "red": "#f2495c",
    "dark-red": "#c4162a",
    "blue": "#5794f2",
    "purple": "#b877d9",
    "semi-dark-blue": "#3274d9",
    "yellow": "#fade2a",
}
"""Grafana's colours; those of text and of nothing are left to Perses."""
_CALCULATIONS = {"mean": "mean", "max": "max", "lastNotNull": "last-number"}
_FIELD = re.compile(r"\$\{__data\.fields\.(\w+):percentencode\}")


def plugin(panel: Panel, project: str) -> Json:
    """Return the plugin that draws a panel."""
    match panel:
        case Stat():
            return _plugin("StatChart", _stat(panel))
        case TimeSeries():
            return _plugin("TimeSeriesChart", _time_series(panel))
        case Table():
            return _plugin("Table", _table(panel, project))
        case StateTimeline():
            legend = {"position": "bottom", "mode": "list"}
            return _plugin("StatusHistoryChart", {"legend": legend, "mappings": _mappings(panel.display)})
        case Heatmap():
            axis = {"format": _format(panel.display), "min": 0}
            return _plugin("TimeSeriesChart", {"legend": {"position": "right"}, "yAxis": axis})
    raise TypeError(f"no such panel in Perses: {type(panel).__name__}")


def remark(panel: Panel) -> str:
    """Return how Perses draws a panel otherwise than Grafana, as a paragraph of its description."""
    if isinstance(panel, Heatmap):
        return (
            "\n\nIn Perses: lines of how many were at most as long as each of the buckets, because its heatmap "
            "reads native histograms only."
        )
    if isinstance(panel, TimeSeries) and panel.over:
        return f"\n\nIn Perses: over the range of the dashboard, where you can choose {panel.over}."
    return ""


def url(link: Link, project: str, single: tuple[str, ...] = (), keys: tuple[LabelColumn, ...] = ()) -> str:
    """Return where a link leads; of the carried variables those with one value (`single`), as they are then.

    `keys` are the columns of the table whose cells contain the link.
    """
    address = link.url
    if link.dashboard:
        chosen = {name: f"${name}" for name in link.carried if name in single} | dict(link.chosen)
        parameters = "&".join(f"var-{name}={value}" for name, value in chosen.items())
        address = f"/projects/{project}/dashboards/{link.dashboard}{'?' if parameters else ''}{parameters}"
    labels = {key.name: key.label for key in keys}
    return _FIELD.sub(lambda match: f'${{__data.fields["{labels[match[1]]}"]}}', address)


def _plugin(kind: str, spec: Json) -> Json:
    return {"kind": kind, "spec": spec}


def _format(display: Display) -> Json:
    unit = _UNITS.get(display.unit, "decimal")
    decimals = {} if display.decimals is None or unit in _DATE_UNITS else {"decimalPlaces": display.decimals}
    return (
        {"unit": unit}
        | decimals
        | ({"shortValues": True} if unit in _SHORTENED_UNITS and not decimals else {})
    )


def _stat(panel: Stat) -> Json:
    display = panel.display
    return {
        "calculation": "last-number",
        "format": _format(display),
        "thresholds": _thresholds(display),
        "mappings": _mappings(display),
    } | ({"sparkline": {}} if panel.sparkline else {})


def _time_series(panel: TimeSeries) -> Json:
    display = panel.display
    axis: Json = {"format": _format(display)}
    if display.unit in _UNIT_WORDS:
        axis["label"] = _UNIT_WORDS[display.unit]
    if display.minimum is not None and not panel.log:
        axis["min"] = display.minimum
    if display.maximum is not None:
        axis["max"] = display.maximum
    if panel.log:
        axis["logBase"] = 10
    stacked = panel.stacked or panel.bars
    spec: Json = {
        "yAxis": axis,
        "visual": {
            "display": "bar" if panel.bars else "line",
            "lineWidth": 1 if stacked else 2,
            "areaOpacity": 0.6 if panel.bars else 0.4 if panel.stacked else 0,
        }
        | ({"stack": "all"} if stacked else {}),
    }
    if panel.legend != "hidden":
        spec["legend"] = {
            "position": "right" if panel.legend == "right" else "bottom",
            "mode": "table",
            "size": "small",
            "values": [_CALCULATIONS[calculation] for calculation in panel.calcs],
        }
    if panel.limit_line:
        spec["thresholds"] = _thresholds(display)
    styles = [
        _style(style, index)
        for index, query in enumerate(panel.panel_queries)
        for style in display.styles
        if (query.legend.startswith(style.name) if style.prefix else query.legend == style.name)
    ]
    return spec | ({"querySettings": styles} if styles else {})


def _style(style: Style, index: int) -> Json:
    """Return the settings of a query: Perses colours queries, not the series of one by their names."""
    lines: Json = {
        "measured": {},
        "limit": {"lineStyle": "dashed", "areaOpacity": 0},
        "reference": {"areaOpacity": 0},
    }
    return {
        "queryIndex": index,
        "colorMode": "fixed",
        "colorValue": _COLORS[style.color],
        **lines[style.line],
    }


def _table(panel: Table, project: str) -> Json:
    keys = tuple(panel.keys)
    numbered = len(panel.columns) > 1
    values = [
        _column(column, f"value #{index}" if numbered else "value")
        for index, column in enumerate(panel.columns, start=1)
    ]
    columns = [
        *(_key_column(key, keys, project) for key in keys),
        *values,
        {"name": "timestamp", "hide": True},
    ]
    if panel.labels_of:
        columns.append({"name": "value", "hide": True})
    for column in columns:
        if panel.sort_by and column.get("header") == panel.sort_by:
            column["sort"] = "desc" if panel.descending else "asc"
    for column in values:
        # After the sort, which finds its column by the name without a unit.
        column["header"] = column["header"] + column.pop("unit")
    return {
        "density": "compact",
        "enableSorting": True,
        "enableFiltering": True,
        "columnSettings": columns,
    } | ({"transforms": [{"kind": "MergeSeries", "spec": {}}]} if numbered else {})


def _key_column(key: LabelColumn, keys: tuple[LabelColumn, ...], project: str) -> Json:
    column: Json = {"name": key.label, "header": key.name}
    if key.width:
        column["width"] = key.width
    if key.link:
        address = url(key.link, project, keys=keys)
        column["dataLink"] = {"url": address, "title": key.link.title, "openNewTab": bool(key.link.url)}
    if key.colors:
        column["cellSettings"] = [
            {"condition": {"kind": "Value", "spec": {"value": word}}, "textColor": _COLORS[color]}
            for word, color in key.colors.items()
        ]
    return column


def _column(column: Column, name: str) -> Json:
    display = column.display
    unit = f" ({_UNIT_WORDS[display.unit]})" if display.unit in _UNIT_WORDS else ""
    made: Json = {"name": name, "header": column.name, "unit": unit, "format": _format(display)}
    if column.width:
        made["width"] = column.width
    # The first condition that is true decides.
    cells: list[Json] = [
        {"condition": {"kind": "Value", "spec": {"value": str(value)}}, "text": word}
        | _text_color(column, color)
        for value, (word, color) in display.words.items()
    ]
    if column.colored:
        cells += [
            {"condition": {"kind": "Range", "spec": {} if step.value is None else {"min": step.value}}}
            | _text_color(column, step.color)
            for step in reversed(display.thresholds)
        ]
    cells = [cell for cell in cells if "text" in cell or "textColor" in cell]
    return made | ({"cellSettings": cells} if cells else {})


def _text_color(column: Column, color: str) -> Json:
    return {"textColor": _COLORS[color]} if column.colored and color in _COLORS else {}


def _thresholds(display: Display) -> Json:
    base, *steps = display.thresholds
    default = {"defaultColor": _COLORS[base.color]} if base.color in _COLORS else {}
    return default | {
        "mode": "absolute",
        "steps": [
            {"value": step.value, "color": _COLORS[step.color]} for step in steps if step.color in _COLORS
        ],
    }


def _mappings(display: Display) -> list[Json]:
    """Return words for values, and for a division by no traffic."""
    words = [
        {"kind": "Value", "spec": {"value": str(value), "result": _result(word, color)}}
        for value, (word, color) in display.words.items()
    ]
    return [*words, {"kind": "Misc", "spec": {"value": "NaN", "result": _result(display.no_value, "text")}}]


def _result(word: str, color: str) -> Json:
    return {"value": word} | ({"color": _COLORS[color]} if color in _COLORS else {})
