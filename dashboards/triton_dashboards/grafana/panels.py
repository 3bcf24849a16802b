"""Panels: one function a kind, each with the settings that make it readable in Grafana 12 and 13.

A panel is its title, the question that it answers (`lead`), its queries and how values read. Queries are an
expression, or legends with their expressions. The description lists the metrics of the queries, or those that
`reads` names instead, where not all of them matter to a reader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from triton_dashboards.about import Sources, about, metrics_of
from triton_dashboards.grafana import library
from triton_dashboards.grafana.library import DATASOURCE, Json
from triton_dashboards.grafana.values import Display, Panel, Query
from triton_exporter.catalogue import Metric

Queries = str | Mapping[str, str] | Sequence[Query]


def stat(
    title: str,
    lead: str,
    queries: Queries,
    display: Display,
    *,
    reads: Sources | None = None,
    width: int = 3,
    height: int = 4,
    sparkline: bool = True,
    text: Literal["auto", "value", "value_and_name", "name"] = "auto",
    background: bool = False,
) -> Panel:
    """One number that answers a question at a glance; the newest value, coloured by its threshold."""
    body = library.core.Stat(
        **_common(title, lead, reads, _queries(queries)),
        thresholds=list(display.thresholds),
        color={"mode": "thresholds"},
        colorMode="background" if background else "value",
        graphMode="area" if sparkline else "none",
        reduceCalc="lastNotNull",
        textMode=text,
        noValue=display.no_value,
        format=display.unit,
        decimals=display.decimals,
        mappings=_mappings(display),
        overrides=list(display.overrides),
        extraJson={
            "fieldConfig": {"defaults": _limits(display)},
            "options": {
                "wideLayout": False,
                "showPercentChange": False,
                "percentChangeColorMode": "standard",
            },
        },
    )
    return Panel(body, width, height)


def timeseries(
    title: str,
    lead: str,
    queries: Queries,
    display: Display,
    *,
    reads: Sources | None = None,
    width: int = 12,
    height: int = 9,
    stacked: bool = False,
    limit_line: bool = False,
    bars: bool = False,
    step: bool = False,
    legend: Literal["table", "right", "list", "hidden"] = "table",
    calcs: Sequence[str] = ("mean", "max", "lastNotNull"),
    log: bool = False,
    lowest_first: bool = False,
    over: str = "",
    every: str = "",
) -> Panel:
    """Lines over time, stacked bars of events, or the parts of a whole stacked; thresholds dashed on request.

    A legend below the graph shows three series and scrolls; where there are always more, put it at the `right`.
    `over` is a range of its own (30d), whatever the dashboard shows. A step is not shorter than `every`.
    """
    body = library.core.TimeSeries(
        **_common(title, lead, reads, _queries(queries)),
        thresholds=list(display.thresholds),
        thresholdsStyleMode="dashed" if limit_line else "off",
        unit=display.unit,
        valueDecimals=display.decimals,
        mappings=_mappings(display),
        overrides=list(display.overrides),
        drawStyle="bars" if bars else "line",
        lineInterpolation="stepAfter" if step else "linear",
        lineWidth=1 if bars or stacked else 2,
        fillOpacity=60 if bars else 40 if stacked else 8,
        gradientMode="none" if stacked or bars else "opacity",
        showPoints="never" if not bars else "auto",
        scaleDistributionType="log" if log else "linear",
        scaleDistributionLog=10,
        stacking={"mode": "normal" if stacked or bars else "none", "group": "A"},
        tooltipMode="multi",
        tooltipSort="desc",
        timeFrom=over or None,
        interval=every or None,
        extraJson={
            "fieldConfig": {
                "defaults": _limits(display) | {"custom": {"axisSoftMax": _soft_maximum(display)}}
            },
            "options": {"legend": _legend(legend, calcs, descending=not lowest_first)},
        },
    )
    return Panel(body, width, height)


def table(
    title: str,
    lead: str,
    queries: Queries,
    display: Display,
    *,
    reads: Sources | None = None,
    width: int = 24,
    height: int = 9,
    transformations: Sequence[Json] = (),
    sort_by: str = "",
    descending: bool = True,
) -> Panel:
    """Rows with columns; each query gives one column, joined by the transformations."""
    asked = [Query(query.expr, query.legend, instant=True, table=True) for query in _queries(queries)]
    body = library.core.Table(
        **_common(title, lead, reads, asked),
        thresholds=list(display.thresholds),
        unit=display.unit,
        filterable=True,
        overrides=list(display.overrides),
        sortBy=[library.core.TableSortByField(displayName=sort_by, desc=descending)] if sort_by else [],
        transformations=list(transformations),
        extraJson={
            "fieldConfig": {
                "defaults": _limits(display)
                | {
                    "decimals": display.decimals,
                    "mappings": _mappings(display),
                    "color": {"mode": "thresholds"},
                }
            },
            "options": {
                "cellHeight": "sm",
                "frameIndex": 0,
            },
        },
    )
    return Panel(body, width, height)


def state_timeline(
    title: str,
    lead: str,
    queries: Queries,
    display: Display,
    *,
    reads: Sources | None = None,
    width: int = 24,
    height: int = 8,
) -> Panel:
    """Bands of state over time, one line for each series."""
    body = library.core.StateTimeline(
        **_common(title, lead, reads, _queries(queries)),
        thresholds=list(display.thresholds),
        mappings=_mappings(display),
        overrides=list(display.overrides),
        showValue="auto",
        fillOpacity=80,
        tooltipMode="single",
        extraJson={
            "fieldConfig": {"defaults": _limits(display) | {"unit": display.unit}},
            "options": {
                "perPage": 20,
                "legend": {"showLegend": True, "displayMode": "list", "placement": "bottom", "calcs": []},
                "tooltip": {"mode": "single", "sort": "none", "hideZeros": False},
            },
        },
    )
    return Panel(body, width, height)


def heatmap(
    title: str,
    lead: str,
    queries: Queries,
    display: Display,
    *,
    reads: Sources | None = None,
    width: int = 12,
    height: int = 9,
) -> Panel:
    """How a distribution moves: time across, buckets up, colour for how many."""
    asked = [Query(query.expr, "{{le}}", heatmap=True) for query in _queries(queries)]
    body = library.Heatmap(
        **_common(title, lead, reads, asked),
        thresholds=list(display.thresholds),
        extraJson={
            "fieldConfig": {
                "defaults": {
                    "custom": {
                        "hideFrom": {"tooltip": False, "viz": False, "legend": False},
                        "scaleDistribution": {"type": "linear"},
                    },
                    "noValue": display.no_value,
                },
                "overrides": [],
            },
            "options": {
                "calculate": False,
                "cellGap": 1,
                "color": {
                    "exponent": 0.5,
                    "fill": "dark-orange",
                    "mode": "scheme",
                    "reverse": False,
                    "scale": "exponential",
                    "scheme": "Blues",
                    "steps": 64,
                },
                "exemplars": {"color": "rgba(255,0,255,0.7)"},
                "filterValues": {"le": 1e-9},
                "legend": {"show": True},
                "showValue": "never",
                "rowsFrame": {"layout": "auto"},
                "tooltip": {"mode": "single", "showColorScale": False, "yHistogram": True},
                "yAxis": {"axisPlacement": "left", "reverse": False, "unit": display.unit},
            },
        },
    )
    return Panel(body, width, height)


def text(title: str, markdown: str, *, width: int = 24, height: int = 3) -> Panel:
    """A few words in Markdown."""
    return Panel(library.core.Text(title=title, content=markdown, transparent=not title), width, height)


def _queries(queries: Queries) -> Sequence[Query]:
    if isinstance(queries, str):
        return [Query(queries)]
    if isinstance(queries, Mapping):
        return [Query(expr, legend) for legend, expr in queries.items()]
    return queries


def _common(title: str, lead: str, reads: Sources | None, queries: Sequence[Query]) -> Json:
    shown = metrics_of(query.expr for query in queries) if reads is None else reads
    return {
        "title": title,
        "description": about(lead, *((shown,) if isinstance(shown, str | Metric) else shown)),
        "dataSource": DATASOURCE,
        "maxDataPoints": None,
        "targets": [_target(query, chr(ord("A") + index)) for index, query in enumerate(queries)],
    }


def _target(query: Query, reference: str) -> library.Target:
    target = library.Target(
        expr=query.expr,
        legendFormat=query.legend,
        refId=reference,
        instant=query.instant,
        format="heatmap"
        if query.heatmap
        else "table"
        if query.table
        else library.core.TIME_SERIES_TARGET_FORMAT,
    )
    target.exemplar = query.exemplar
    return target


def _limits(display: Display) -> Json:
    limits: Json = {"noValue": display.no_value, "links": [link.to_json_data() for link in display.links]}
    if display.minimum is not None:
        limits["min"] = display.minimum
    if display.maximum is not None:
        limits["max"] = display.maximum
    if display.shade:
        limits["color"] = {"mode": "shades", "fixedColor": display.shade}
    return limits


def _soft_maximum(display: Display) -> float | None:
    """Where an axis ends at least: around zeros alone Grafana draws one up to 10,000 %, or with equal labels."""
    if display.maximum is not None:
        return None
    if display.unit == "percentunit":
        return 0.01
    return 5 if display.decimals == 0 else None


def _mappings(display: Display) -> list[Json]:
    """Words for values, and for a division by no traffic, which PromQL gives as NaN."""
    words = {
        str(value): {"text": word, "color": color, "index": index}
        for index, (value, (word, color)) in enumerate(display.words.items())
    }
    no_number = {
        "match": "null+nan",
        "result": {"text": display.no_value, "color": "text", "index": len(words)},
    }
    return [
        *([{"type": "value", "options": words}] if words else []),
        {"type": "special", "options": no_number},
    ]


def _legend(display: str, calcs: Sequence[str], *, descending: bool) -> Json:
    if display == "hidden":
        return {"showLegend": False, "displayMode": "list", "placement": "bottom", "calcs": []}
    as_table = display in ("table", "right")
    return {
        "showLegend": True,
        "displayMode": "table" if as_table else display,
        "placement": "right" if display == "right" else "bottom",
        "calcs": list(calcs) if as_table else [],
    } | ({"sortBy": "Last *", "sortDesc": descending} if as_table and "lastNotNull" in calcs else {})
