"""PromQL that users write: only what is whole by itself stays whole inside a rule."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import promql_parser as promql

from triton_slo import conventions

_MOST = 8000
_COMPARISONS = frozenset({">", "<", ">=", "<=", "==", "!="})
_CLOCK = frozenset(
    {"time", "minute", "hour", "day_of_week", "day_of_month", "day_of_year", "days_in_month", "month", "year"}
)
_ALERTS = "ALERTS"
"""Prometheus' own series of what fires."""


def parse(text: str, field: str, wrap: str = "") -> None:
    """Make sure that a text is PromQL, also where it will stand (`wrap`). Raises ValueError."""
    if len(text) > _MOST:  # the parser recurses: nested deeply enough, it ends the whole process
        raise ValueError(f"{field} is longer than {_MOST} characters; record a part of it by a rule")
    try:
        promql.parse(text)
    except ValueError as error:
        raise ValueError(f"{field} is not PromQL: {error}") from None
    if wrap:
        # What is whole by itself is refused inside only where it is of another type.
        try:
            promql.parse(wrap.format(text))
        except ValueError:
            raise ValueError(f"{field} gives no series, but a number, a text or a range of samples") from None


def always_answers(text: str) -> bool:
    """Whether nothing in an expression keeps it from having a result for as long as its series exist."""
    return not _conditional(promql.parse(text))


def _conditional(node: object) -> bool:
    match node:
        case promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr() | promql.AggregateExpr():
            return _conditional(node.expr)
        case promql.BinaryExpr():
            return _pair(node)
        case promql.Call():
            return node.func.name.startswith("absent") or any(map(_conditional, node.args))
    return False


def _pair(node: promql.BinaryExpr) -> bool:
    operator = str(node.op)
    if operator == "unless":
        return True
    if operator in _COMPARISONS and not getattr(node.modifier, "return_bool", False):
        return any(map(_varies, _parts(node)))
    sides = (_conditional(node.lhs), _conditional(node.rhs))
    return all(sides) if operator == "or" else any(sides)


def of_ours(text: str, alerts: Collection[str]) -> Iterator[str]:
    """The series in an expression that rules of an objective make, or that say which of its `alerts` fire."""
    for part in _parts(promql.parse(text)):
        selector = part.vector_selector if isinstance(part, promql.MatrixSelector) else part
        if isinstance(selector, promql.VectorSelector):
            name = selector.name or _matched(selector, "__name__")
            if name.startswith(conventions.RECORDED_PREFIX):
                yield name
            elif name == _ALERTS and _matched(selector, "alertname") in alerts:
                yield f'{_ALERTS}{{alertname="{_matched(selector, "alertname")}"}}'


def _varies(part: object) -> bool:
    """Whether a part of an expression may be another one at another time."""
    if isinstance(part, promql.Call):
        return part.func.name in _CLOCK
    return isinstance(part, promql.VectorSelector | promql.MatrixSelector)


def _parts(node: promql.Expr) -> list[object]:
    found: list[object] = []
    promql.walk(node, found.append)
    return found


def _matched(selector: promql.VectorSelector, label: str) -> str:
    return next((str(one.value) for one in selector.matchers.matchers if one.name == label), "")


def mismatches(text: str) -> list[tuple[str, str]]:
    """Labels of both sides of operations between aggregations by different labels, without on or ignoring."""
    return list(_mismatches(promql.parse(text)))


def _mismatches(node: object) -> Iterator[tuple[str, str]]:
    if isinstance(node, promql.BinaryExpr):
        sides = [_labels(side) for side in (node.lhs, node.rhs)]
        matching = getattr(node.modifier, "matching", None)
        if None not in sides and sides[0] != sides[1] and matching is None and str(node.op) != "or":
            left, right = (", ".join(sorted(side or ())) for side in sides)
            yield left, right
    for name in ("lhs", "rhs", "expr"):
        child = getattr(node, name, None)
        if child is not None and not isinstance(child, str):
            yield from _mismatches(child)
    for argument in _arguments(node):
        yield from _mismatches(argument)


def _arguments(node: object) -> Sequence[object]:
    found = getattr(node, "args", ())
    return found if isinstance(found, list | tuple) else ()


def _labels(node: object) -> frozenset[str] | None:
    while isinstance(node, promql.ParenExpr):
        node = node.expr
    if not isinstance(node, promql.AggregateExpr):
        return None
    modifier = node.modifier
    if modifier is None:
        return frozenset()
    return frozenset(modifier.labels) if modifier.type == promql.AggModifierType.By else None
