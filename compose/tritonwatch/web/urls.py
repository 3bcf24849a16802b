"""Addresses of the pages and of other servers. Names of models are values of a query, never a part of a path."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

from triton_slo import links, names
from triton_slo.group_status import GroupStatus
from triton_slo.promql import regex_of

TIME = "at"
"""Parameter of every page: the time that is shown, as `tritonwatch status --at` reads it."""


LAST = "last"
"""Parameter of pages over time: how much of it is shown, such as 6h, as `--last` of the command line."""


def is_api(path: str) -> bool:
    """Return whether a path is for scripts, whose errors are JSON too."""
    return path.startswith("/api/")


def address(path: str, parameters: Mapping[str, object]) -> str:
    """Return a path with its query; parameters without a value are left out."""
    given = {key: str(value) for key, value in parameters.items() if value not in (None, "", False)}
    return f"{path}?{urlencode(given)}" if given else path


def objective_url(row: GroupStatus, at: str = "") -> str:
    """Return the page of one objective of one group."""
    return address("/objective", {names.SLO: row.slo, **row.group, TIME: at})


def model_url(model: str, at: str = "") -> str:
    """Return the page of a model."""
    return address("/model", {"model": model, TIME: at})


def what_if_url(model: str, slo: str = "") -> str:
    """Return the What if page of one model, and of an objective where one is named."""
    # As people write it there: a comma separates names, a tilde begins a pattern, and `all` are all.
    plain = model == model.strip() and model != "all" and "," not in model and not model.startswith("~")
    models = model if plain else f"~{regex_of([model])}"
    return address("/what-if", {"base": slo, "models": models})


def grafana_url(base: str, dashboard: str, variables: Mapping[str, str]) -> str:
    """Return a dashboard with its variables chosen; empty without a Grafana."""
    chosen = {f"var-{name}": value for name, value in variables.items()}
    return address(links.dashboard_url(base, dashboard), chosen) if base else ""


def prometheus_url(base: str, query: str, span: str = "1d") -> str:
    """Return Prometheus' graph of a query; empty where a browser cannot reach Prometheus."""
    asked = {"g0.expr": query, "g0.tab": "0", "g0.range_input": span}
    return address(f"{base.rstrip('/')}/graph", asked) if base else ""
