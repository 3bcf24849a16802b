"""Lint dashboard models for what Grafana and dashboard-linter accept silently, or reject.

The rules are those of grafana/dashboard-linter and of the mixins, and mistakes of panels that no program reports:
see docs/dashboards.md. Nothing is excluded.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from triton_exporter.catalogue import METRICS, state
from triton_exporter.catalogue.external import headroom
from triton_exporter.common.problem import Problem
from triton_slo import bridge_series

Json = Mapping[str, Any]
_COLUMNS = 24
_KINDS = ("stat", "timeseries", "table", "state-timeline", "bargauge", "text")
_MACROS = {
    "__all",
    "__rate_interval",
    "__interval",
    "__range",
    "__url_time_range",
    "__data",
    "__value",
    "datasource",
}
_REFERENCE = re.compile(r"\$\{([a-zA-Z_]\w*)[^}]*\}|\$([a-zA-Z_]\w*)")
_FIXED_RANGE = re.compile(r"\b(?:rate|irate|increase)\([^()]*\[(?!\$__)\w+\]")
_COUNTERS = {
    name
    for metric in (*METRICS, *headroom.METRICS, *bridge_series.METRICS)
    for name in ((metric.name,) if metric.kind == "counter" else (metric.bucket, metric.count, metric.sum))
    if metric.kind in ("counter", "histogram")
}
_USED_RIGHT = re.compile(r"(?:rate|irate|increase|resets|changes)\(\s*([a-zA-Z_:][\w:]*)")


def lint(models: Sequence[Json]) -> list[Problem]:
    """Check dashboards that will be in one Grafana; return their mistakes."""
    problems = [*_apart(models)]
    for model in models:
        for rule in _RULES:
            problems += [Problem(str(model["uid"]), reason) for reason in rule(model)]
    return problems


def panels(model: Json) -> Iterator[Json]:
    """Every panel, rows and what is inside collapsed rows too."""
    for panel in model["panels"]:
        yield panel
        yield from panel.get("panels", ())


def _asking(model: Json) -> Iterator[Json]:
    return (panel for panel in panels(model) if panel["type"] not in ("row", "text"))


def _apart(models: Sequence[Json]) -> Iterator[Problem]:
    for key in ("uid", "title"):
        counted = Counter(str(model[key]) for model in models)
        for value in (value for value, count in counted.items() if count > 1):
            yield Problem(
                value, f"two dashboards have this {key}: Grafana would stop provisioning all of them"
            )


def _identity(model: Json) -> Iterator[str]:
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", model["uid"]):
        yield "uid is not 1 to 40 letters, digits, _ or -"
    if model["editable"] or model.get("id") is not None or "version" in model:
        yield "is editable, or carries an id or a version: a pushed file must own itself"
    if not model["description"] or not model["tags"] or model["schemaVersion"] < 41:
        yield "lacks a description or tags, or its schema is older than 41"
    if "__inputs" in model:
        yield "__inputs only work in the import dialog"


def _variables(model: Json) -> Iterator[str]:
    listed = model["templating"]["list"]
    if not listed or listed[0]["name"] != "datasource" or listed[0]["query"] != "prometheus":
        yield "the first variable is not the Prometheus data source"
    defined = {variable["name"] for variable in listed}
    texts = [str(panel) for panel in panels(model)] + [str(model["annotations"]), str(model["links"])]
    used = {a or b for text in (*texts, str(listed)) for a, b in _REFERENCE.findall(text)}
    for name in sorted(used - defined - _MACROS):
        yield f"${name} is not defined"
    for name in sorted(defined - {a or b for text in texts for a, b in _REFERENCE.findall(text)}):
        yield f"variable {name} is not used by any panel"
    for variable in listed[1:]:
        if not variable.get("label") or variable["refresh"] != 2:
            yield f"variable {variable['name']} lacks a label, or is not refreshed with the time range"


def _grid(model: Json) -> Iterator[str]:
    ids = Counter(panel["id"] for panel in panels(model))
    titles = Counter(panel["title"] for panel in _asking(model))
    yield from (f"panel id {key} is given twice" for key, count in ids.items() if count > 1)
    yield from (f"two panels are called {title!r}" for title, count in titles.items() if count > 1)
    taken: set[tuple[int, int]] = set()
    for panel in model["panels"]:
        place = panel["gridPos"]
        if place["x"] < 0 or place["x"] + place["w"] > _COLUMNS or place["h"] < 1:
            yield f"{panel['title']!r} leaves the grid of {_COLUMNS} columns"
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        if cells & taken:
            yield f"{panel['title']!r} lies over another panel"
        taken |= cells


def _words(model: Json) -> Iterator[str]:
    for panel in _asking(model):
        defaults = panel["fieldConfig"]["defaults"]
        if panel["type"] not in _KINDS:
            yield f"{panel['title']!r} is of a kind ({panel['type']}) that is not drawn well by 12 and 13"
        if not panel.get("title") or not panel.get("description"):
            yield f"{panel.get('title')!r} lacks a title or a description"
        elif "`" not in panel["description"]:
            yield f"{panel['title']!r} does not name its metric"
        if "unit" not in defaults and panel["type"] != "table":
            yield f"{panel['title']!r} has no unit"
        if "noValue" not in defaults:
            yield f"{panel['title']!r} says nothing when there is no value"


def _silent(model: Json) -> Iterator[str]:
    """Things that Grafana ignores without a word."""
    for panel in _asking(model):
        title = panel["title"]
        steps = panel["fieldConfig"]["defaults"].get("thresholds", {}).get("steps", [])
        if not steps or steps[0]["value"] is not None:
            yield f"{title!r}: the first threshold has no null base, so none of them works"
        if panel["type"] == "stat" and any(step["color"] == "transparent" for step in steps):
            yield f"{title!r}: a number in a transparent colour is not seen"
        if [step["value"] for step in steps[1:]] != sorted(step["value"] for step in steps[1:]):
            yield f"{title!r}: thresholds are not ascending"
        if (
            panel["type"] in ("timeseries", "state-timeline")
            and "showLegend" not in panel["options"]["legend"]
        ):
            yield f"{title!r}: a legend without showLegend is hidden"
        if panel["type"] == "table" and "displayMode" in panel["fieldConfig"]["defaults"].get("custom", {}):
            yield f"{title!r}: displayMode moved into cellOptions"
        if panel["datasource"]["uid"] != "${datasource}":
            yield f"{title!r}: the data source is not the variable"


def _queries(model: Json) -> Iterator[str]:
    for panel in _asking(model):
        title = panel["title"]
        references = Counter(target["refId"] for target in panel["targets"])
        if not panel["targets"] or max(references.values()) > 1:
            yield f"{title!r}: no query, or two of one refId"
        for target in panel["targets"]:
            expr = target["expr"]
            if target["datasource"]["uid"] != "${datasource}":
                yield f"{title!r}: a query does not take the data source from the variable"
            if _FIXED_RANGE.search(expr):
                yield f"{title!r}: a rate over a fixed range; use $__rate_interval"
            for name in sorted(_bare(expr)):
                yield f"{title!r}: counter {name} is shown without rate or increase"
            if panel["type"] == "table" and not (target["instant"] and target.get("format") == "table"):
                yield f"{title!r}: a table's query is not instant"


def _exemplars(model: Json) -> Iterator[str]:
    """Check that a graph of quantiles queries exemplars once, and other graphs none."""
    for panel in _asking(model):
        offered = [
            target for target in panel["targets"] if any(name in target["expr"] for name in _WITH_EXEMPLARS)
        ]
        asked = [target for target in panel["targets"] if target.get("exemplar")]
        if any(target not in offered for target in asked):
            yield f"{panel['title']!r}: exemplars of a series that has none"
        if panel["type"] == "timeseries" and len(asked) != bool(offered):
            yield f"{panel['title']!r}: a graph of latencies asks for exemplars in exactly one query"
        if panel["type"] != "timeseries" and asked:
            yield f"{panel['title']!r}: only a graph over time shows exemplars"


def _links(model: Json) -> Iterator[str]:
    """Check that a link keeps the time range and the data source."""
    for panel in _asking(model):
        for url in _addresses(panel):
            lacking = [variable for variable in _CARRIED if variable not in url]
            if url.startswith("/d/") and lacking:
                yield f"{panel['title']!r}: a link to {url.partition('?')[0]} loses {' and '.join(lacking)}"
    menus = [link for link in model["links"] if link["type"] == "dashboards"]
    if not menus or not all(link["keepTime"] and link["includeVars"] for link in menus):
        yield "no menu of sibling dashboards that keeps time and variables"


_CARRIED = ("${__url_time_range}", "${datasource:queryparam}")


def _addresses(panel: Json) -> Iterator[str]:
    """Where a panel's links lead: its own, and those of single columns or series."""
    config = panel["fieldConfig"]
    columns = (entry for override in config["overrides"] for entry in override["properties"])
    given = [config["defaults"].get("links", ())]
    given += [entry["value"] for entry in columns if entry["id"] == "links"]
    yield from (link["url"] for links in (*given, panel.get("links", ())) for link in links)


_WITH_EXEMPLARS = (state.REQUEST_DURATION.bucket, state.QUEUE_DURATION.bucket)
"""What the exporter writes with the ids of the traces that it was made from."""


def _bare(expr: str) -> set[str]:
    """Counters that an expression reads other than through rate, increase, resets or changes."""
    read = Counter(name for name in re.findall(r"[a-zA-Z_:][\w:]*(?=\{)", expr) if name in _COUNTERS)
    right = Counter(_USED_RIGHT.findall(expr))
    return {name for name, count in read.items() if count > right[name]} - _SHOWN_AS_TOTALS


_SHOWN_AS_TOTALS = {
    metric.name
    for metric in METRICS
    if metric.kind == "counter"
    and any(word in metric.name for word in ("ecc_errors", "remapped_rows", "xid_errors"))
}
"""Counters of faults since the card's reset, where the total is of interest."""

_RULES: tuple[Callable[[Json], Iterator[str]], ...] = (
    _identity,
    _variables,
    _grid,
    _words,
    _silent,
    _queries,
    _exemplars,
    _links,
)
