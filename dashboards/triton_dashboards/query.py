"""PromQL for panels, built over the catalogue: selectors that follow the variables, rates, ratios."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass

from triton_exporter.catalogue import Metric
from triton_slo.promql import quote

RATE = "$__rate_interval"
"""Grafana's window: at least four scrapes, and never shorter than a step of the graph."""


NO_SHARE = 2
"""Value of a share that is not known: above every share, so that its row comes last in ascending order."""


@dataclass(frozen=True, slots=True)
class BoardScope:
    """The matchers that every selector of a dashboard carries: its variables and the fleet's own selector."""

    matchers: tuple[str, ...]

    def __call__(self, metric: Metric | str, *more: str) -> str:
        """Select a series within this scope."""
        return f"{metric}{{{', '.join((*self.matchers, *more))}}}"

    def rate(self, metric: Metric | str, *more: str, offset: str = "") -> str:
        """Return the per-second increase of a counter over Grafana's own window, now or as it was."""
        return f"rate({self(metric, *more)}[{RATE}]{f' offset {offset}' if offset else ''})"

    def increase(self, metric: Metric | str, *more: str) -> str:
        """Return the increase of a counter over Grafana's own window."""
        return f"increase({self(metric, *more)}[{RATE}])"

    def events(self, metric: Metric | str, *by: str) -> str:
        """Return the number of events within Grafana's own window by some labels, without zeros."""
        return f"{total(self.increase(metric), *by)} > 0"


def summed(within: BoardScope, recorded: str, each: Callable[[BoardScope], str], *variables: str) -> str:
    """Return the recorded sum while all variables are All, otherwise `each` of the chosen series.

    Exactly one of the two has series. The recorded sum lacks the labels of the variables, so only All (.*) matches.
    No series has a label `chosen`, so with All its matcher excludes every series of `each`, and none is read.
    """
    chosen = 'chosen!~"' + "".join(f"${name}" for name in variables) + '"'
    return f"{within(recorded)} or {each(BoardScope((*within.matchers, chosen)))}"


def quote_for_grafana(text: str) -> str:
    """Quote a value in which Grafana must not see a variable: it replaces `$name` and `[[name]]` in any query."""
    return quote(text).replace("$", r"\x24").replace("[[", r"\x5b[")


def scope(selector: str, *variables: str, exact: Container[str] = ()) -> BoardScope:
    """Make the scope of a dashboard from names of its variables and extra matchers (`region="eu"`).

    Those of them in `exact` have one value, compared as it is, so that a model's dots and brackets are not a
    regular expression.
    """
    matchers = [f'{name}{"=" if name in exact else "=~"}"${name}"' for name in variables]
    return BoardScope((*matchers, *([selector] if selector else [])))


def total(expr: str, *by: str) -> str:
    """Return a sum by some labels."""
    return f"sum by ({', '.join(by)}) ({expr})" if by else f"sum({expr})"


def ratio(part: str, whole: str) -> str:
    """Return the part of a whole that is not zero: no value, rather than NaN, where nothing happened."""
    return f"{part} / ({whole} > 0)"


def or_zero(expr: str, alive: str) -> str:
    """Return an expression, or zero where it has no series but the thing that would make them answers.

    Never a bare vector(0): with every exporter gone that would draw a healthy zero.
    """
    return f"{expr} or 0 * {alive}"


def or_last(share: str, every: str) -> str:
    """Return a share, and NO_SHARE for the other series of `every`: empty cells would be sorted first."""
    return f"{share} or {NO_SHARE} + 0 * {every}"


def worst(expr: str, count: int = 10, every: str = "10m") -> str:
    """Return the `count` series with the highest maximum in the time range, the same at every point of the graph.

    A plain topk selects again at each point, and draws many more lines. Steps of `every` keep the query cheap; a
    time range that is shorter than one step uses the last minute.
    """
    long, short = (f"max_over_time(({expr})[{span}] @ end())" for span in (f"$__range:{every}", "1m:10s"))
    return f"({expr}) and topk({count}, {long} or {short})"


def emptiest(expr: str, count: int = 10) -> str:
    """Return the `count` series with the lowest values at the end of the time range."""
    return f"({expr}) and bottomk({count}, last_over_time(({expr})[1m:10s] @ end()))"


def quantile(level: float, buckets: str, *by: str) -> str:
    """Return a quantile estimated from histogram buckets.

    Without observations the quantile is NaN, which the comparison turns into no value.
    """
    return f"histogram_quantile({level:g}, {total(buckets, 'le', *by)}) >= 0"
