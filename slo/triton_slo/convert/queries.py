"""PromQL of others, made to contain `{{window}}` where the range goes, and the labels of what it gives."""

from __future__ import annotations

import re

import promql_parser
from promql_parser import AggregateExpr, BinaryExpr, ParenExpr, VectorSelector

from triton_slo.expression import is_number, labels
from triton_slo.indicators.custom import WINDOW
from triton_slo.promql import quote

_TEMPLATE = re.compile(r"\{\{\s*\.?window\s*\}\}|\$\{?__(?:rate_interval|interval|range)\}?|\$\{?window\}?")
_ACTION = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_RANGE = re.compile(
    r"""(?P<kept>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`|\#[^\n]*)|\[\s*(?P<range>\d[0-9a-z]*)\s*\]"""
)
_OPERATORS = {
    "MatchOp.Equal": "=",
    "MatchOp.NotEqual": "!=",
    "MatchOp.Re": "=~",
    "MatchOp.NotRe": "!~",
}
_MAX_CHARACTERS = 4000
"""The parser recurses: nested deeply enough, a query ends the whole process."""
STEP = "1m"
"""Resolution of subqueries."""


class QueryError(ValueError):
    """A query cannot be carried over; the message has the reason."""


def windowed(query: str) -> str | None:
    """Return the query with `{{window}}` for its placeholder or its ranges; None where it has neither.

    Raises QueryError on other templates, on ranges of several lengths, and on what is not PromQL.
    """
    text = _TEMPLATE.sub("{{window}}", query.strip())
    left = [action for action in _ACTION.findall(text) if action != WINDOW]
    if left:
        raise QueryError(f"the template {left[0]} is not known; only the window may be a template")
    if WINDOW not in text:
        ranges = {match["range"] for match in _RANGE.finditer(text) if match["range"]}
        if len(ranges) > 1:
            raise QueryError(f"it reads ranges of several lengths ({', '.join(sorted(ranges))})")
        text = _RANGE.sub(lambda match: match["kept"] or f"[{WINDOW}]", text)
    parsed(text)
    return text if WINDOW in text else None


def parsed(query: str) -> object:
    """Return the syntax tree of a query that may contain `{{window}}`. Raises QueryError on what is not PromQL."""
    if len(query) > _MAX_CHARACTERS:
        raise QueryError(f"longer than {_MAX_CHARACTERS} characters")
    try:
        return promql_parser.parse(query.replace(WINDOW, "5m"))
    except ValueError as error:
        raise QueryError(f"not PromQL: {error}") from None


def rated(query: str) -> tuple[str, bool]:
    """Return events per second of a query for a counter without a range; False where it had to be a subquery.

    A sum of counters becomes a sum of rates: the rate of a sum would take one process's restart for a reset.
    """
    try:
        inner = _rated(parsed(query))
    except RecursionError:
        inner = None
    if inner is not None:
        return inner, True
    return f"rate(({query.strip()})[{WINDOW}:{STEP}])", False


def _rated(node: object) -> str | None:
    match node:
        case ParenExpr():
            inner = _rated(node.expr)
            return inner and f"({inner})"
        case VectorSelector() if _simple(node):
            return f"rate({_quoted_selector(node)}[{WINDOW}])"
        case AggregateExpr() if str(node.op) == "sum":
            inner = _rated(node.expr)
            return inner and f"sum {node.modifier or ''} ({inner})".replace("  ", " ")
        case BinaryExpr() if str(node.op) in ("+", "-"):
            left, right = _rated(node.lhs), _rated(node.rhs)
            return left and right and f"{left} {node.op} {node.modifier or ''} {right}".replace("  ", " ")
    return None


def _simple(node: VectorSelector) -> bool:
    return node.offset is None and node.at is None and not node.matchers.or_matchers


def _quoted_selector(node: VectorSelector) -> str:
    """Return the selector in our own quoting: the parser's text leaves quotes inside values bare."""
    matchers = [
        f"{matcher.name}{_OPERATORS[str(matcher.op)]}{quote(matcher.value)}"
        for matcher in node.matchers.matchers
    ]
    return f"{node.name or ''}{{{', '.join(matchers)}}}" if matchers else str(node.name)


def averaged(query: str) -> str:
    """Return the mean over the window of what a query without a range shows, evaluated every minute."""
    node = parsed(query)
    if isinstance(node, VectorSelector) and _simple(node):
        return f"avg_over_time({_quoted_selector(node)}[{WINDOW}])"
    return f"avg_over_time(({query.strip()})[{WINDOW}:{STEP}])"


def group_labels(*queries: str) -> tuple[str, ...] | None:
    """Return the labels that the results of all queries have; None where that is not known before they run."""
    try:
        label_sets = [labels(node) for node in map(parsed, queries) if not is_number(node)]
    except RecursionError:
        return None
    if not label_sets or None in label_sets:
        return None
    shared = frozenset.intersection(*(names for names in label_sets if names is not None))
    first = [label for label in ("model", "version") if label in shared]
    return (*first, *sorted(shared - set(first)))
