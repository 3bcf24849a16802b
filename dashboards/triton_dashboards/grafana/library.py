"""grafanalib, corrected: the only module that imports it.

grafanalib 0.7.1 writes several things that Grafana ignores silently: a threshold base of "null" in
quotes, legends without showLegend, tables in the form of Grafana 7, Angular heatmaps. Every panel is built by
grafanalib and leaves through `panel_model`, which corrects those and keeps only the keys that the dashboard
schema of Grafana 12 and 13 knows. What cannot be corrected is subclassed here.
"""

from __future__ import annotations

import json
from typing import Any

from grafanalib import core  # type: ignore[import-untyped]
from grafanalib._gen import DashboardEncoder  # type: ignore[import-untyped]

__all__ = [
    "DATASOURCE",
    "SCHEMA_VERSION",
    "Json",
    "Target",
    "core",
    "encode",
    "panel_model",
]

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
        "repeat",
        "repeatDirection",
        "targets",
        "timeFrom",
        "transformations",
        "transparent",
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
    if model["type"] == "text":
        for key in ("fieldConfig", "targets", "datasource"):
            model.pop(key, None)
        return model
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
