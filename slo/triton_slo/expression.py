"""Check PromQL that users write: an expression must be valid alone, and where a rule puts it."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import promql_parser
from promql_parser import (
    AggregateExpr,
    BinaryExpr,
    Call,
    Expr,
    MatrixSelector,
    ParenExpr,
    SubqueryExpr,
    UnaryExpr,
    VectorSelector,
)

from triton_slo import names

_MAX_CHARACTERS = 4000
_COMPARISONS = frozenset({">", "<", ">=", "<=", "==", "!="})
_CLOCK = frozenset(
    {"time", "minute", "hour", "day_of_week", "day_of_month", "day_of_year", "days_in_month", "month", "year"}
)


def check(text: str, field: str, wrap: str = "") -> None:
    """Raise ValueError unless a text is PromQL, alone and inside `wrap`, where a rule puts it for `{}`."""
    # The parser recurses: nested deeply enough, it ends the whole process, or takes gigabytes.
    if len(text) > _MAX_CHARACTERS:
        raise ValueError(
            f"{field} is longer than {_MAX_CHARACTERS} characters; record a part of it by a rule"
        )
    try:
        promql_parser.parse(text)
    except ValueError as error:
        raise ValueError(f"{field} is not PromQL: {error}") from None
    if wrap:
        # An expression that is valid alone is refused here only because of its type.
        try:
            promql_parser.parse(wrap.format(text))
        except ValueError:
            raise ValueError(f"{field} gives no series, but a number, a text or a range of samples") from None


WRITE_A_COUNTER = (
    'write the counter itself, such as my_requests_total{code=~"5.."}, without rate, sum and {{window}}'
)


def check_counter(text: str, field: str) -> None:
    """Raise ValueError unless a text is counters as they are: of each server, and not of a window.

    Rules add up their growth themselves. `a or b` is two counters. A difference of two is none, as either may
    restart, but for a histogram's count less one of its buckets.
    """
    for part in parts(promql_parser.parse(text)):
        if wrong := _no_counter(part):
            raise ValueError(f"{field} is not a counter, but {wrong} of one: {WRITE_A_COUNTER}")


def _no_counter(node: object) -> str:
    match node:
        case Call() if node.func.name not in ("label_replace", "label_join"):
            return f"{node.func.name}()"
        case MatrixSelector() | SubqueryExpr():
            return "a window"
        case AggregateExpr():
            return f"{node.op}()"
        case UnaryExpr():
            return "`-`"
        case VectorSelector() if node.offset is not None or node.at is not None:
            return "the past"
        case BinaryExpr() if str(node.op) not in ("or", "and", "unless") and not _is_count_less_bucket(node):
            return f"`{node.op}`"
    return ""


def _is_count_less_bucket(node: BinaryExpr) -> bool:
    names = [str(side.name) if isinstance(side, VectorSelector) else "" for side in (node.lhs, node.rhs)]
    histogram, found, _ = names[0].partition("_count")
    return str(node.op) == "-" and bool(found) and names == [f"{histogram}_count", f"{histogram}_bucket"]


def always_answers(text: str) -> bool:
    """Return whether an expression has a result at any time at which its series exist."""
    return not _conditional(promql_parser.parse(text))


def _conditional(node: object) -> bool:
    match node:
        case ParenExpr() | UnaryExpr() | SubqueryExpr() | AggregateExpr():
            return _conditional(node.expr)
        case BinaryExpr():
            return _conditional_pair(node)
        case Call():
            return node.func.name.startswith("absent") or any(map(_conditional, node.args))
    return False


def _conditional_pair(node: BinaryExpr) -> bool:
    operator = str(node.op)
    if operator == "unless":
        return True
    if operator in _COMPARISONS and not getattr(node.modifier, "return_bool", False):
        return any(map(_varies, parts(node)))
    sides = (_conditional(node.lhs), _conditional(node.rhs))
    return all(sides) if operator == "or" else any(sides)


def our_series(text: str, alerts: Collection[str]) -> Iterator[str]:
    """Yield the series in an expression that rules of an objective make, or that show which `alerts` fire."""
    for part in parts(promql_parser.parse(text)):
        selector = part.vector_selector if isinstance(part, MatrixSelector) else part
        if isinstance(selector, VectorSelector):
            name = selector.name or _matched(selector, "__name__")
            if name.startswith(names.RECORDED_PREFIX):
                yield name
            elif name == names.ALERTS and _matched(selector, "alertname") in alerts:
                yield f'{names.ALERTS}{{alertname="{_matched(selector, "alertname")}"}}'


def _varies(part: object) -> bool:
    """Return whether the value of a part of an expression can change with time."""
    if isinstance(part, Call):
        return part.func.name in _CLOCK
    return isinstance(part, VectorSelector | MatrixSelector)


def parts(node: Expr) -> Iterator[Expr]:
    """Yield an expression and all its parts; the parser's own `walk` takes gigabytes for a sum of 400 series."""
    left = [node]
    while left:
        node = left.pop()
        yield node
        match node:
            case BinaryExpr():
                left += [node.rhs, node.lhs]
            case AggregateExpr() | ParenExpr() | UnaryExpr() | SubqueryExpr():
                left.append(node.expr)
            case Call():
                left += reversed(node.args)


def _matched(selector: VectorSelector, label: str) -> str:
    return next((str(matcher.value) for matcher in selector.matchers.matchers if matcher.name == label), "")
