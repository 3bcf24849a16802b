"""PromQL of others as counters: `sum by (model) (rate(x{...}[{{.window}}]))` is the counter `x{...}`, by model."""

from __future__ import annotations

import re
from dataclasses import dataclass

import promql_parser
from promql_parser import (
    AggModifierType,
    AggregateExpr,
    BinaryExpr,
    Call,
    MatrixSelector,
    NumberLiteral,
    ParenExpr,
    VectorSelector,
)

from triton_slo.promql import quote

_TEMPLATE = re.compile(r"\{\{\s*\.?window\s*\}\}|\$\{?__(?:rate_interval|interval|range)\}?|\$\{?window\}?")
_ACTION = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_OPERATORS = {
    "MatchOp.Equal": "=",
    "MatchOp.NotEqual": "!=",
    "MatchOp.Re": "=~",
    "MatchOp.NotRe": "!~",
}
_MAX_CHARACTERS = 4000
"""The parser recurses: nested deeply enough, a query ends the whole process."""
_WINDOW = "5m"


class QueryError(ValueError):
    """A query cannot be carried over; the message has the reason."""


@dataclass(frozen=True, slots=True)
class Counter:
    """A counter of each server, and the labels by which a query summed it; none: all together."""

    text: str
    group_by: tuple[str, ...]


def counter(query: str) -> Counter:
    """Return the counter under the sum and the rate of a query. Raises QueryError on anything else."""
    text = _TEMPLATE.sub(_WINDOW, query.strip())
    if left := _ACTION.findall(text):
        raise QueryError(f"the template {left[0]} is not known; only the window may be a template")
    if len(text) > _MAX_CHARACTERS:
        raise QueryError(f"longer than {_MAX_CHARACTERS} characters")
    try:
        return _summed(_bare(promql_parser.parse(text)))
    except ValueError as error:
        raise error if isinstance(error, QueryError) else QueryError(f"not PromQL: {error}") from None


def _summed(node: object) -> Counter:
    labels: tuple[str, ...] = ()
    if isinstance(node, BinaryExpr) and str(node.op) == "or" and _is_zero(node.rhs):
        return _summed(_bare(node.lhs))  # rules take what is absent for 0
    if isinstance(node, BinaryExpr) and str(node.op) == "-":
        return _difference(_summed(_bare(node.lhs)), _summed(_bare(node.rhs)))
    if isinstance(node, AggregateExpr):
        if str(node.op) != "sum":
            raise QueryError(f"{node.op} is not a sum of events")
        if node.modifier is not None and node.modifier.type != AggModifierType.By:
            raise QueryError("it sums without labels: write by which labels instead")
        labels = tuple(node.modifier.labels) if node.modifier is not None else ()
        node = _bare(node.expr)
    return Counter(_counted(node), labels)


def failures(good: str, total: str) -> Counter:
    """Return the counter of what is in `total` and not in `good`. Raises QueryError where that is not one."""
    return _difference(counter(total), counter(good))


def one_grouping(failed: Counter, every: Counter) -> tuple[str, ...]:
    """Return the labels by which both queries sum. Raises QueryError where they differ."""
    if set(failed.group_by) != set(every.group_by):
        one, other = (", ".join(counted.group_by) or "nothing" for counted in (failed, every))
        raise QueryError(f"failed events are summed by {one}, and all events by {other}")
    return every.group_by


def _difference(whole: Counter, part: Counter) -> Counter:
    one_grouping(part, whole)
    name, of = (text.partition("{")[0] for text in (part.text, whole.text))
    if name == of:
        return Counter(f"{whole.text} unless {part.text}", whole.group_by)
    if name.endswith("_bucket") and of.endswith("_count") and name[:-7] == of[:-6]:
        return Counter(f"{whole.text} - ignoring (le) {part.text}", whole.group_by)
    raise QueryError(
        f"{name} is not known to be a part of {of}, and the difference of two counters is none, since either may "
        "restart: count the failed events instead"
    )


def _is_zero(node: object) -> bool:
    node = _bare(node)
    if isinstance(node, Call) and node.func.name == "vector":
        node = node.args[0]
    return isinstance(node, NumberLiteral) and node.val == 0


def _bare(node: object) -> object:
    while isinstance(node, ParenExpr):
        node = node.expr
    return node


def _counted(node: object) -> str:
    match _bare(node):
        case Call(func=func, args=args) if func.name in ("rate", "increase", "irate"):
            inner = args[0]
            if isinstance(inner, MatrixSelector):
                return _selector(inner.vector_selector)
            raise QueryError("a subquery is not a counter")
        case VectorSelector() as selector:
            return _selector(selector)
        case BinaryExpr(op=op, lhs=lhs, rhs=rhs) if str(op) == "or":
            return f"{_counted(lhs)} or {_counted(rhs)}"
        case BinaryExpr(op=op):
            raise QueryError(f"a counter is needed, and `{op}` of two is none: rules count each event once")
        case AggregateExpr(op=op):
            raise QueryError(f"{op} within a sum is not a counter")
        case Call(func=func):
            raise QueryError(f"{func.name}() is not a counter")
    raise QueryError("it is not a counter")


def _selector(node: VectorSelector) -> str:
    """Return the selector in our own quoting: the parser's text leaves quotes inside values bare."""
    if node.offset is not None or node.at is not None or node.matchers.or_matchers:
        raise QueryError("a selector with an offset is not a counter of now")
    matchers = [
        f"{matcher.name}{_OPERATORS[str(matcher.op)]}{quote(matcher.value)}"
        for matcher in node.matchers.matchers
    ]
    return f"{node.name or ''}{{{', '.join(matchers)}}}" if matchers else str(node.name)
