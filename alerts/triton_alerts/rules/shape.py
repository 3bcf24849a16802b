"""What is known about an expression from the catalogue: its parts, its labels, its kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import promql_parser as promql

from triton_alerts import bridge_metrics as bridge
from triton_exporter.catalogue import METRICS, Metric

_TARGET = frozenset({"instance", "job"})
"""What Prometheus itself puts on every series."""
_KNOWN = {metric.name: metric for metric in (*METRICS, *bridge.METRICS)}
_SETS = frozenset({"and", "unless"})
_COMPARISONS = frozenset({">", "<", ">=", "<=", "==", "!="})


def nodes(expr: promql.Expr) -> Iterator[promql.Expr]:
    """An expression and all its parts."""
    found: list[promql.Expr] = []
    promql.walk(expr, found.append)
    return iter(found)


def selectors(parts: Iterable[promql.Expr]) -> Iterator[promql.VectorSelector]:
    """The series that are selected."""
    for node in parts:
        if isinstance(node, promql.VectorSelector):
            yield node
        elif isinstance(node, promql.MatrixSelector):
            yield node.vector_selector


def family(name: str) -> Metric | None:
    """The catalogue's row of a series, also by a histogram's or summary's suffix; None if there is none."""
    for suffix in ("", "_bucket", "_sum", "_count"):
        metric = _KNOWN.get(name.removesuffix(suffix)) if name.endswith(suffix) else None
        if metric is not None and (not suffix or metric.kind in {"histogram", "summary"}):
            return metric
    return None


def kind(name: str) -> str:
    """counter, gauge, ... as far as the catalogue or the name tells; empty if not."""
    metric = family(name)
    if metric is None:
        return "counter" if name.endswith("_total") else ""
    return "counter" if metric.name != name else metric.kind


def is_recorded(name: str) -> bool:
    """Whether a rule made this series: colons are theirs, but for vLLM's own names."""
    return ":" in name and not name.startswith("vllm:")


def labels(expr: promql.Expr) -> frozenset[str] | None:
    """The labels an expression yields; None where that cannot be told."""
    match expr:
        case promql.ParenExpr() | promql.UnaryExpr():
            return labels(expr.expr)
        case promql.VectorSelector():
            return _of_series(expr)
        case promql.MatrixSelector():
            return _of_series(expr.vector_selector)
        case promql.SubqueryExpr():
            return labels(expr.expr)
        case promql.AggregateExpr():
            return _of_aggregate(expr)
        case promql.Call():
            return _of_call(expr)
        case promql.BinaryExpr():
            return _of_pair(expr)
        case _:
            return None


def _of_series(selector: promql.VectorSelector) -> frozenset[str] | None:
    metric = family(selector.name or "")
    if metric is None:
        return None
    bucket = {"le"} if (selector.name or "").endswith("_bucket") else set()
    return frozenset({*metric.labels, *_TARGET, *bucket})


def _of_aggregate(expr: promql.AggregateExpr) -> frozenset[str] | None:
    if str(expr.op) in {"topk", "bottomk"}:
        return labels(expr.expr)
    if expr.modifier is None:
        return frozenset()
    if "By" in str(expr.modifier.type):
        return frozenset(expr.modifier.labels)
    inner = labels(expr.expr)
    return None if inner is None else inner - set(expr.modifier.labels)


def _of_call(expr: promql.Call) -> frozenset[str] | None:
    name = expr.func.name
    if name in {"time", "vector", "scalar", "absent", "absent_over_time", "label_join"}:
        return None
    if name == "label_replace":
        inner = labels(expr.args[0])
        target = str(getattr(expr.args[1], "val", ""))
        return None if inner is None else inner | {target}
    if name == "histogram_quantile":
        inner = labels(expr.args[1])
        return None if inner is None else inner - {"le"}
    vectors = [one for one in expr.args if not isinstance(one, promql.NumberLiteral | promql.StringLiteral)]
    return labels(vectors[0]) if vectors else None


def _of_pair(expr: promql.BinaryExpr) -> frozenset[str] | None:
    operator, modifier = str(expr.op), expr.modifier
    left, right = labels(expr.lhs), labels(expr.rhs)
    if operator == "or":
        return None if left is None or right is None else left & right
    if operator in _SETS or isinstance(expr.rhs, promql.NumberLiteral):
        return left
    if left is None or right is None:
        # A scalar on the left, such as time(), leaves the labels to the right.
        return right if left is None and not _is_vector(expr.lhs) else left if right is None else None
    if modifier is not None and modifier.matching is not None and "OneToOne" in str(modifier.card):
        named = frozenset(modifier.matching.labels)
        return named if "Include" in str(modifier.matching.type) else left - named
    return left


def _is_vector(expr: promql.Expr) -> bool:
    return any(True for _ in selectors(nodes(expr)))


def may_be_zero(expr: promql.Expr) -> bool:
    """Whether nothing keeps a divisor away from 0: neither a number nor a comparison that filters."""
    while isinstance(expr, promql.ParenExpr):
        expr = expr.expr
    if isinstance(expr, promql.NumberLiteral):
        return expr.val == 0
    return not (isinstance(expr, promql.BinaryExpr) and str(expr.op) in _COMPARISONS)
