"""The values that dashboards are made of; nothing here knows how Grafana writes them down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Json = dict[str, Any]

Color = Literal[
    "gray",
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
    table: bool = False
    heatmap: bool = False
    exemplar: bool = False


@dataclass(frozen=True, slots=True)
class Threshold:
    """A colour from a value on; None is the base, below every other."""

    color: Color
    value: float | None = None

    def to_json_data(self) -> Json:
        """As the schema has it: the base is null, not the text "null" of grafanalib."""
        return {"color": self.color, "value": self.value}


@dataclass(frozen=True, slots=True)
class FieldOverride:
    """Properties of one field, found by its name or by a regular expression over names."""

    name: str
    properties: Mapping[str, Any]
    regex: bool = False

    def to_json_data(self) -> Json:
        """As the schema has it."""
        return {
            "matcher": {"id": "byRegexp" if self.regex else "byName", "options": self.name},
            "properties": [{"id": key, "value": value} for key, value in self.properties.items()],
        }


@dataclass(frozen=True, slots=True)
class Link:
    """A link out of a panel or a value; keep time and variables with `links.to`."""

    title: str
    url: str
    new_tab: bool = False

    def to_json_data(self) -> Json:
        """As the schema has it."""
        return {"title": self.title, "url": self.url, "targetBlank": self.new_tab}


@dataclass(frozen=True, slots=True)
class Display:
    """How values of a panel read: unit, limits, thresholds, words for values, text for no value."""

    unit: str = "short"
    decimals: int | None = None
    minimum: float | None = None
    maximum: float | None = None
    thresholds: tuple[Threshold, ...] = (Threshold("blue"),)
    words: Mapping[int, tuple[str, Color]] = field(default_factory=dict)
    no_value: str = "No data"
    overrides: tuple[FieldOverride, ...] = ()
    links: tuple[Link, ...] = ()
    shade: Color | None = None
    """Draw every series in shades of one colour, where all of them mean the same: a failure is never green."""

    def when_empty(self, text: str) -> Display:
        """Return the same with another text for no value."""
        return replace(self, no_value=text)


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel with its size on the 24-column grid; `body` is grafanalib's, corrected when written."""

    body: Any
    width: int = 12
    height: int = 8

    @property
    def title(self) -> str:
        return str(self.body.title)


@dataclass(frozen=True, slots=True)
class Variable:
    """A dashboard variable filled from a query; All matches everything, also a label that is absent."""

    name: str
    label: str
    query: str
    multi: bool = True
    all_value: str = ".*"
    description: str = ""
    regex: str = ""


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
class Row:
    """A line of panels under one heading; a collapsed one asks nothing until it is opened."""

    title: str
    panels: tuple[Panel, ...]
    collapsed: bool = False
    repeat: str = ""


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One question and the rows that answer it, from symptoms to details."""

    uid: str
    title: str
    description: str
    tags: tuple[str, ...]
    variables: tuple[Variable, ...]
    annotations: tuple[Annotation, ...]
    links: tuple[Json, ...]
    rows: tuple[Row, ...]
    time_from: str = "now-6h"
