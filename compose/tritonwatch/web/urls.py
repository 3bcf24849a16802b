"""Addresses of the pages and of other servers, and their parameters as a request has them.

Names of models are values of a query, never a part of a path. An invalid parameter is answered with 400, in the same
words on pages and in JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request

from triton_exporter.common.moments import parse_moment
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
    return address("/objective", {names.SLO: row.slo, **row.group, TIME: at})


def model_url(model: str, at: str = "") -> str:
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


class ParameterError(HTTPException):
    """A parameter with an invalid value or an unknown name; the reason names the valid ones."""

    def __init__(self, name: str, reason: object) -> None:
        super().__init__(400, f"{name[:40]}: {reason}")
        self.name = name


def asked_time(request: Request) -> float | None:
    """Return the Unix time in the address; None for now. A text that is not a time is answered with 400."""
    text = request.query_params.get(TIME, "").strip()
    if not text:
        return None
    try:
        return parse_moment(text)
    except ValueError as error:
        raise ParameterError(TIME, error) from None


def asked_choice(request: Request, name: str, choices: Sequence[str], usual: str) -> str:
    """Return the choice in the address, else the usual one. Any other text is answered with 400."""
    text = request.query_params.get(name, "").strip() or usual
    if text and text not in choices:
        raise ParameterError(
            name, f"{text[:40]!r} is not one of {', '.join(choices)}; write for example {name}={choices[0]}"
        )
    return text


def refuse_others(request: Request, *names: str) -> None:
    """Answer 400 to a parameter that a script misspelt: without it, the answer would be to a wider question."""
    for name in request.query_params:
        if name not in names:
            path, known = request.url.path, ", ".join(sorted(names))
            raise ParameterError(name, f"{path} has no such parameter; it takes {known}")
