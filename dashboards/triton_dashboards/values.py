"""The words and units of panels, then the values that dashboards are made of, without the format of Grafana."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from triton_exporter.catalogue import METRICS, Metric
from triton_exporter.catalogue.external import headroom
from triton_exporter.exposition.parse import without_strings
from triton_slo import bridge_series
from triton_slo.signals import Signal

MetricNames = Metric | str | Sequence[Metric | str]


def metrics_of(exprs: Iterable[str]) -> tuple[Metric | str, ...]:
    """Return the metrics that expressions read, in order: those of the catalogues, and recorded series."""
    words = (word for expr in exprs for word in _WORD.findall(without_strings(expr)))
    return tuple(
        dict.fromkeys(_FAMILIES.get(word, word) for word in words if word in _FAMILIES or ":" in word)
    )


_WORD = re.compile(r"(?<![\w:$])[a-zA-Z_:][\w:]*")
_FAMILIES = {
    name: metric
    for metric in (*METRICS, *headroom.METRICS, *bridge_series.METRICS)
    for name in (metric.name, metric.bucket, metric.sum, metric.count)
}


def fires(signal: Signal) -> str:
    """Name the alert on the same figure and its limit, which such a panel draws."""
    condition = f"fires {signal.threshold.condition}" if signal.enabled else "is disabled"
    exceptions = f" For some models: {'; '.join(signal.exceptions)}." if signal.exceptions else ""
    return f"`{signal.alert}` {condition}.{exceptions}"


def _metric_line(metric: Metric | str) -> str:
    """Return a metric with its meaning, switch and caveat."""
    if isinstance(metric, str):
        return f"`{metric}`: recorded by the generated rules."
    parts = [f"`{metric}`: {metric.help}"]
    if metric.since:
        parts.append(f"Since Triton {metric.since}.")
    if metric.flag:
        parts.append(f"Needs `{metric.flag}`.")
    if metric.caveat:
        parts.append(metric.caveat)
    return " ".join(parts)


Color = Literal[
    "gray",
    "silver",
    "green",
    "light-green",
    "orange",
    "red",
    "dark-red",
    "blue",
    "purple",
    "text",
    "transparent",
    "semi-dark-blue",
    "yellow",
]


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL query of a panel; `legend` uses only labels that survive the expression's aggregation."""

    expr: str
    legend: str = ""
    instant: bool = False
    exemplar: bool = False


Queries = str | Mapping[str, str] | Sequence[Query]
"""One expression, expressions by their legends, or queries."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """A colour for values from `value` upwards; None is the base colour, of all lower values."""

    color: Color
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Style:
    """Style of the series with a name, or with a name that begins so (`prefix`).

    A `limit` is a dashed line that the tooltip names; it takes no line of the legend, which shows three. A
    `reference` is a thin line, to compare the measured ones with.
    """

    name: str
    color: Color
    line: Literal["measured", "limit", "reference"] = "measured"
    prefix: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """A link from a value to a dashboard, or to a page outside Grafana, which opens in a new tab."""

    title: str
    url: str
    outside: bool = True


@dataclass(frozen=True, slots=True)
class Display:
    """Display of a panel's values: unit, limits, thresholds, words for values, text for no value."""

    unit: str = "short"
    decimals: int | None = None
    minimum: float | None = None
    maximum: float | None = None
    thresholds: tuple[Threshold, ...] = (Threshold("blue"),)
    words: Mapping[int, tuple[str, Color]] = field(default_factory=dict)
    no_value: str = "No data"
    styles: tuple[Style, ...] = ()
    links: tuple[Link, ...] = ()
    shade: Color | None = None
    """Draw every series in shades of one colour, where all of them mean the same: a failure is never green."""

    def when_empty(self, text: str) -> Display:
        return replace(self, no_value=text)


@dataclass(frozen=True, slots=True)
class Panel:
    """A title, the question that the panel answers, and its size on a grid of 24 columns.

    The description lists the metrics of the queries, or those that `reads` names instead, where not all of them
    matter to a reader.
    """

    title: str
    lead: str
    reads: MetricNames | None = field(default=None, kw_only=True)
    width: int = field(default=12, kw_only=True)
    height: int = field(default=9, kw_only=True)

    @property
    def panel_queries(self) -> Sequence[Query]:
        raise NotImplementedError

    @property
    def description(self) -> str:
        shown = metrics_of(query.expr for query in self.panel_queries) if self.reads is None else self.reads
        metrics = (shown,) if isinstance(shown, str | Metric) else shown
        return "\n\n".join((self.lead, *map(_metric_line, metrics)))


@dataclass(frozen=True, slots=True)
class Figure(Panel):
    """A panel whose queries share one display."""

    queries: Queries
    display: Display

    @property
    def panel_queries(self) -> Sequence[Query]:
        if isinstance(self.queries, str):
            return [Query(self.queries)]
        if isinstance(self.queries, Mapping):
            return [Query(expr, legend) for legend, expr in self.queries.items()]
        return self.queries


@dataclass(frozen=True, slots=True)
class Stat(Figure):
    """One number that answers a question; the newest value, coloured by its threshold."""

    width: int = field(default=3, kw_only=True)
    height: int = field(default=4, kw_only=True)
    sparkline: bool = field(default=True, kw_only=True)


@dataclass(frozen=True, slots=True)
class TimeSeries(Figure):
    """Lines over time; stacked, as bars, as steps or with dashed thresholds on request.

    A legend below the graph shows three series and scrolls; where there are always more, put it at the `right`.
    `over` is the panel's own time range, such as 30d, instead of the dashboard's. `every` is the shortest step.
    """

    stacked: bool = field(default=False, kw_only=True)
    limit_line: bool = field(default=False, kw_only=True)
    bars: bool = field(default=False, kw_only=True)
    step: bool = field(default=False, kw_only=True)
    legend: Literal["table", "right"] = field(default="table", kw_only=True)
    calcs: Sequence[str] = field(default=("mean", "max", "lastNotNull"), kw_only=True)
    log: bool = field(default=False, kw_only=True)
    lowest_first: bool = field(default=False, kw_only=True)
    over: str = field(default="", kw_only=True)
    every: str = field(default="", kw_only=True)


@dataclass(frozen=True, slots=True)
class StateTimeline(Figure):
    """Bands of state over time, one line for each series."""

    width: int = field(default=24, kw_only=True)
    height: int = field(default=8, kw_only=True)


@dataclass(frozen=True, slots=True)
class LabelColumn:
    """A column of a table with the values of a label: its heading, and the links and colours of the values."""

    label: str
    heading: str = ""
    link: Link | None = None
    width: int = 0
    colors: Mapping[str, Color] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.heading or self.label.capitalize()


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table with the values of a query by the table's keys: its heading and display."""

    name: str
    expr: str
    display: Display = field(default_factory=Display)
    colored: bool = False
    width: int = 0


@dataclass(frozen=True, slots=True)
class Table(Panel):
    """One line for each set of labels (`keys`), which come first, and one query a column, joined on them.

    Each query keeps no other label. A table of labels alone has no columns and asks `labels_of`.
    """

    keys: Sequence[LabelColumn]
    columns: Sequence[Column] = ()
    labels_of: str = field(default="", kw_only=True)
    sort_by: str = field(default="", kw_only=True)
    descending: bool = field(default=True, kw_only=True)
    width: int = field(default=24, kw_only=True)
    no_value: str = field(default="–", kw_only=True)

    @property
    def panel_queries(self) -> Sequence[Query]:
        exprs = [self.labels_of] if self.labels_of else [column.expr for column in self.columns]
        return [Query(expr, instant=True) for expr in exprs]


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of the values of the label of its name; All matches everything, also a label that is absent."""

    name: str
    label: str
    selector: str
    multi: bool = True
    all_value: str = ".*"


@dataclass(frozen=True, slots=True)
class Annotation:
    """Marks on every graph where an expression has a value; formats use its labels."""

    name: str
    expr: str
    color: str
    title: str
    text: str
    tags: tuple[str, ...] = ()
    enabled: bool = True


@dataclass(frozen=True, slots=True)
class Menu:
    """A menu of the dashboards with a tag that keeps time range and variables."""

    title: str
    tag: str


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one heading; a collapsed row sends no query until it is opened."""

    title: str
    panels: tuple[Panel, ...]
    collapsed: bool = False


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One question and the rows that answer it, from symptoms to details."""

    uid: str
    title: str
    description: str
    tags: tuple[str, ...]
    variables: tuple[Variable, ...]
    annotations: tuple[Annotation, ...]
    links: tuple[Menu | Link, ...]
    rows: tuple[Row, ...]
    time_from: str = "now-6h"

    @property
    def panels(self) -> Sequence[Panel]:
        """All panels, those in collapsed rows too."""
        return [panel for row in self.rows for panel in row.panels]
