"""The view of one model: the series that the variables of its dashboard select."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from triton_dashboards import displays
from triton_dashboards.objectives import Objectives
from triton_dashboards.query import BoardScope, RawTraffic, quote_for_grafana, scope
from triton_dashboards.values import (
    Display,
    Query,
    Threshold,
)
from triton_exporter.catalogue import Metric
from triton_exporter.catalogue.state import QUANTILES
from triton_slo.alert_settings import Tuning
from triton_slo.artifact import Options
from triton_slo.indicators import Indicator
from triton_slo.names import SLO
from triton_slo.signals import Signal

S = TypeVar("S", bound=Signal)


@dataclass(frozen=True, slots=True)
class View:
    """Series of one model: of all its versions (`model`), or of those that the variables choose (`chosen`)."""

    model: BoardScope
    chosen: BoardScope
    objectives: Objectives
    servers: BoardScope
    name: str = ""
    """The model's name; empty in the template, where it is a variable."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """Limits that the objectives of this model promise, by kind of indicator; empty in the template."""
    tuning: Tuning = field(default_factory=Tuning)

    def signal(self, signal: S) -> S:
        """Return a signal with the threshold that applies to this model."""
        return signal.tuned(self.tuning, self.name)

    def limit(self, indicator: type[Indicator]) -> float | None:
        """Return what this model's objective promises, in the unit of the indicator's graphs; None if unknown."""
        return self.limits.get(indicator.name())

    @property
    def raw(self) -> RawTraffic:
        return RawTraffic(self.chosen)


def template_view(options: Options) -> View:
    """Return the view of the template, whose model is a variable."""
    servers = ("cluster", "job", "instance")
    return View(
        model=scope(options.selector, *servers, "model", exact=("model",)),
        chosen=scope(options.selector, *servers, "model", "version", exact=("model",)),
        objectives=Objectives(scope("", "model", exact=("model",)), options.time_scale),
        servers=scope(options.selector, *servers),
        tuning=options.tuning,
    )


def quantiles(raw: RawTraffic, metric: Metric) -> tuple[Query, ...]:
    """Return the usual quantiles of a duration, with its exemplars once: they belong to no quantile."""
    return tuple(
        Query(raw.quantile(level, metric=metric), f"p{level * 100:g}", exemplar=level == QUANTILES[-1])
        for level in QUANTILES
    )


def with_limit(display: Display, limit: float | None) -> Display:
    """Return a display with the objective's own limit in red, if it is known."""
    if limit is None:
        return display
    return replace(display, thresholds=(display.thresholds[0], Threshold("red", limit)))


def with_limit_line(display: Display) -> Display:
    """Return a display for a graph with the series of `limit_queries`."""
    return replace(display, styles=(*display.styles, displays.DASHED_LIMIT))


def limit_queries(view: View, indicator: type[Indicator]) -> tuple[Query, ...]:
    """Return the limit of the model's objectives as a series of its own, in the indicator's unit.

    Grafana's axis contains every series, but no threshold that is far from them.
    """
    if view.name:
        limit = view.limit(indicator)
        return () if limit is None else (Query(f"vector({limit:g})", "limit"),)
    return (Query(view.objectives.promised(indicator), f"limit of {{{{{SLO}}}}}"),)


def model_view(name: str, options: Options) -> View:
    """Return the view of one model by name, for a dashboard of its own."""
    servers = ("cluster", "job", "instance")
    matcher = f"model={quote_for_grafana(name)}"
    extra = ", ".join(part for part in (matcher, options.selector) if part)
    return View(
        model=scope(extra, *servers),
        chosen=scope(extra, *servers, "version"),
        objectives=Objectives(BoardScope((matcher,)), options.time_scale),
        servers=scope(options.selector, *servers),
        name=name,
        tuning=options.tuning,
    )
