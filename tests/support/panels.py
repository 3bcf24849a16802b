"""Query a real Prometheus for a panel the way Grafana does: variables resolved, macros replaced."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import requests

from triton_dashboards.generate import dashboards
from triton_dashboards.grafana import dashboard_model
from triton_slo.artifact import Options

Json = dict[str, Any]
MODELS: Mapping[str, Json] = {
    dashboard.uid: dashboard_model(dashboard) for dashboard in dashboards(Options())
}
"""The dashboards of the product as Grafana reads them, by uid."""
_REFERENCE = re.compile(r"\$\{([a-zA-Z_]\w*)(?::(\w+))?\}|\$([a-zA-Z_]\w*)")
_LEGEND = re.compile(r"\{\{\s*(\w+)\s*\}\}")


@dataclass
class Answer:
    """What came back for one query."""

    panel: str
    target: Json
    expr: str
    series: list[Json]
    warnings: list[str] = field(default_factory=list)
    infos: list[str] = field(default_factory=list)

    def legends(self) -> list[str]:
        """Return the name of each series as the panel's legend shows it."""
        template = self.target["legendFormat"]
        return [
            _LEGEND.sub(lambda match, curve=curve: curve["metric"].get(match[1], ""), template)  # type: ignore[misc]
            for curve in self.series
        ]

    def last(self) -> list[float]:
        """Return the newest value of each series."""
        return [float((curve.get("values") or [curve["value"]])[-1][1]) for curve in self.series]

    def value(self, **labels: str) -> float:
        """Return the newest value of the one series with these labels."""
        values = [
            number
            for curve, number in zip(self.series, self.last(), strict=True)
            if all(curve["metric"].get(key) == value for key, value in labels.items())
        ]
        assert len(values) == 1, f"{self.panel}: {len(values)} series with {labels}: {self.expr}"
        return values[0]


@dataclass(frozen=True)
class Grafana:
    """A stand-in for the browser: one Prometheus, a pinned now, the last hour in view."""

    url: str
    now: int
    seconds: int = 3600
    step: int = 15
    scrape_seconds: int = 15

    @property
    def macros(self) -> dict[str, str]:
        """What Grafana puts for its own variables: $__rate_interval is four scrapes, or a step and a scrape."""
        rate = max(self.step + self.scrape_seconds, 4 * self.scrape_seconds)
        return {
            "__rate_interval": f"{rate}s",
            "__interval": f"{self.step}s",
            "__range": f"{self.seconds}s",
            "__range_s": f"{self.seconds}",
        }

    def get(self, path: str, **parameters: Any) -> Json:
        """Ask the HTTP API; raises AssertionError with Prometheus' own words."""
        answer = requests.get(f"{self.url}/api/v1/{path}", params=parameters, timeout=30).json()
        assert answer["status"] == "success", f"{answer.get('error')}: {parameters}"
        return dict(answer)

    def values(self, variable: Json, chosen: Mapping[str, str]) -> list[str]:
        """Return the values that a variable offers."""
        matched = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"])
        assert matched, variable["definition"]
        answer = self.get(
            f"label/{matched[2]}/values",
            **{
                "match[]": fill(matched[1], chosen, self.macros),
                "start": self.now - self.seconds,
                "end": self.now,
            },
        )
        return list(answer["data"])

    def choose(self, model: Json, wanted: Mapping[str, str]) -> dict[str, str]:
        """Resolve a dashboard's variables in their order: what is wanted, else All, else the first."""
        chosen = {"datasource": "prometheus"}
        for variable in model["templating"]["list"]:
            if variable["type"] != "query":
                continue
            name = variable["name"]
            offered = self.values(variable, chosen)
            if name in wanted:
                assert wanted[name] in offered, f"{name} does not offer {wanted[name]}: {offered}"
                chosen[name] = wanted[name]
            elif variable["includeAll"]:
                chosen[name] = variable.get("allValue") or "(" + "|".join(map(_escaped, offered)) + ")"
            else:
                assert offered, f"{name} offers nothing"
                chosen[name] = offered[0]
        return chosen

    def ask(self, panel: Json, target: Json, chosen: Mapping[str, str]) -> Answer:
        """Run a panel's query, instant or over the range in view."""
        step = self._step(panel)
        expr = fill(target["expr"], chosen, replace(self, step=step).macros)
        if target["instant"]:
            answer = self.get("query", query=expr, time=self.now)
        else:
            answer = self.get(
                "query_range", query=expr, start=self.now - self.seconds, end=self.now, step=step
            )
        return Answer(
            panel["title"],
            target,
            expr,
            answer["data"]["result"],
            answer.get("warnings", []),
            answer.get("infos", []),
        )

    def _step(self, panel: Json) -> int:
        """Return the step of a panel; its shortest one applies unless it has its own range or the view is short."""
        interval = panel.get("interval", "")
        shortest = int(interval[:-1]) * 60 if interval.endswith("m") and "timeFrom" not in panel else 0
        for_points = int(self.seconds / panel.get("maxDataPoints", self.seconds))
        return max(self.step, for_points, shortest if 10 * shortest <= self.seconds else 0)

    def exemplars(self, target: Json, chosen: Mapping[str, str]) -> list[Json]:
        """Return the answer to the graph's exemplar query."""
        expr = fill(target["expr"], chosen, self.macros)
        span = {"start": self.now - self.seconds, "end": self.now}
        return list(self.get("query_exemplars", query=expr, **span)["data"])

    def open(self, model: Json, wanted: Mapping[str, str]) -> View:
        """Open a dashboard: resolve its variables and ask everything, collapsed rows too."""
        chosen = self.choose(model, wanted)
        answers = tuple(
            (panel, self.ask(panel, target, chosen)) for panel in panels(model) for target in panel["targets"]
        )
        return View(model["uid"], chosen, answers)

    def marks(self, model: Json, chosen: Mapping[str, str]) -> Iterator[Answer]:
        """Ask the dashboard's annotations; their titles stand for legends."""
        for annotation in model["annotations"]["list"]:
            if "target" in annotation:
                target = annotation["target"] | {"instant": False, "legendFormat": annotation["titleFormat"]}
                yield self.ask({"title": annotation["name"]}, target, chosen)


@dataclass(frozen=True)
class View:
    """A dashboard with its variables chosen, and what each of its queries answered."""

    uid: str
    chosen: Mapping[str, str]
    answers: tuple[tuple[Json, Answer], ...]

    def panel(self, title: str) -> list[Answer]:
        """Answers of the panel with a title."""
        answers = [answer for panel, answer in self.answers if panel["title"] == title]
        assert answers, f"{self.uid} has no panel {title!r}"
        return answers

    def nameless(self) -> list[tuple[str, str, list[str]]]:
        """Panels (uid, title, names) in whose legend two series carry one name, or one carries a blank."""
        shown: dict[str, list[str]] = {}
        for panel, answer in self.answers:
            if panel["type"] in ("timeseries", "state-timeline", "bargauge"):
                shown.setdefault(panel["title"], []).extend(answer.legends())
        return [
            (self.uid, title, sorted(names))
            for title, names in shown.items()
            if len(names) != len(set(names))
            or any(not name.strip() or ("__auto" in name and len(names) > 1) for name in names)
        ]


def _escaped(value: str) -> str:
    """Escape a chosen value for a regular expression in quotes, as Grafana's Prometheus data source does."""
    return re.sub(r"[\\^$*+?.()|[\]{}]", r"\\\\\g<0>", value)


MACROS: Mapping[str, str] = Grafana("", 0).macros
"""Grafana's own variables over an hour of 15-second scrapes."""


def fill(text: str, chosen: Mapping[str, str], macros: Mapping[str, str] = MACROS) -> str:
    """Put values for variables; fails on one that is not defined."""
    values = {**macros, **chosen}
    return _REFERENCE.sub(lambda match: values[match[1] or match[3]], text)


def panels(model: Json) -> Iterator[Json]:
    """Every panel that asks something, those in collapsed rows too."""
    for panel in model["panels"]:
        yield from (member for member in (panel, *panel.get("panels", ())) if member.get("targets"))
