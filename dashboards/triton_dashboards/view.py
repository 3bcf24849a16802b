"""One model as a dashboard's variables narrow it."""

from __future__ import annotations

from dataclasses import dataclass

from triton_dashboards.query import Scope, scope
from triton_dashboards.traffic import Raw
from triton_slo.artifact import Options

QUANTILES = (0.5, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class View:
    """One model as the variables narrow it: all its versions (`model`) or the chosen ones (`chosen`)."""

    model: Scope
    chosen: Scope
    objectives: Scope
    servers: Scope

    @property
    def raw(self) -> Raw:
        return Raw(self.chosen)


def view(options: Options) -> View:
    """The view of the template, whose model is a variable."""
    servers = ("cluster", "job", "instance")
    return View(
        model=scope(options.selector, *servers, "model="),
        chosen=scope(options.selector, *servers, "model=", "version"),
        objectives=scope("", "model="),
        servers=scope(options.selector, *servers),
    )
