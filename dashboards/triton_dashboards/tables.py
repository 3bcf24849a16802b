"""Tables with one line a model, server or objective and one query a column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from triton_dashboards.about import Sources
from triton_dashboards.grafana.panels import table
from triton_dashboards.grafana.values import Display, FieldOverride, Link, Panel, Query, Threshold


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its heading, the query that fills it by the table's keys, and how its values read."""

    name: str
    expr: str
    display: Display = field(default_factory=Display)
    colored: bool = False
    width: int = 0

    def override(self) -> FieldOverride:
        """Unit, limits and colour of this column only."""
        properties: dict[str, Any] = {
            "unit": self.display.unit,
            "thresholds": {
                "mode": "absolute",
                "steps": [threshold.to_json_data() for threshold in self.display.thresholds],
            },
        }
        if self.display.decimals is not None:
            properties["decimals"] = self.display.decimals
        words = {
            str(value): {"text": word, "color": color, "index": index}
            for index, (value, (word, color)) in enumerate(self.display.words.items())
        }
        # A cell without a value would take the colour of the lowest threshold: red, for a budget.
        nothing = {"match": "null", "result": {"text": "–", "color": "text", "index": len(words)}}
        properties["mappings"] = [
            *([{"type": "value", "options": words}] if words else []),
            {"type": "special", "options": nothing},
        ]
        if self.colored:
            properties["custom.cellOptions"] = {"type": "color-text"}
        if self.width:
            properties["custom.width"] = self.width
        if self.display.links:
            properties["links"] = [link.to_json_data() for link in self.display.links]
        return FieldOverride(self.name, properties)


def linked(column: str, link: Link, width: int = 0) -> FieldOverride:
    """Return a column whose values lead somewhere."""
    properties: dict[str, Any] = {"links": [link.to_json_data()]}
    return FieldOverride(column, properties | ({"custom.width": width} if width else {}))


def columns(
    title: str,
    lead: str,
    keys: str | Sequence[str],
    shown: Sequence[Column],
    *,
    reads: Sources | None = None,
    key_name: str = "",
    headings: Mapping[str, str] | None = None,
    key_override: FieldOverride | None = None,
    extra_overrides: Sequence[FieldOverride] = (),
    sort_by: str = "",
    descending: bool = True,
    width: int = 24,
    height: int = 9,
    no_value: str = "–",
) -> Panel:
    """Join the columns on their keys (labels), which come first; each query keeps no other label."""
    labels = [keys] if isinstance(keys, str) else list(keys)
    renamed = {label: label.capitalize() for label in labels} | dict(headings or {})
    if key_name:
        renamed[labels[0]] = key_name
    # Grafana names the column of a lone query "Value", and numbers them by query where there are more.
    values = (
        {f"Value #{chr(ord('A') + index)}": column.name for index, column in enumerate(shown)}
        if len(shown) > 1
        else {"Value": shown[0].name}
    )
    order = {name: index for index, name in enumerate([*labels, *values])}
    return table(
        title,
        lead,
        [Query(column.expr) for column in shown],
        Display(
            "short",
            thresholds=(Threshold("text"),),
            no_value=no_value,
            overrides=(
                *((key_override,) if key_override else ()),
                *extra_overrides,
                *(column.override() for column in shown),
            ),
        ),
        reads=reads,
        width=width,
        height=height,
        transformations=[
            {"id": "merge", "options": {}},
            {
                "id": "organize",
                "options": {
                    "excludeByName": {"Time": True},
                    "indexByName": order,
                    "renameByName": renamed | values,
                },
            },
        ],
        sort_by=sort_by,
        descending=descending,
    )
