"""Shape of a catalogue expression: its parts, its labels, its kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from promql_parser import BinaryExpr, Expr, MatrixSelector, NumberLiteral, ParenExpr, VectorSelector

from triton_exporter.catalogue import METRICS, Metric
from triton_exporter.catalogue.external import bridge
from triton_slo import expression

_TARGET = frozenset({"instance", "job"})
"""Labels that Prometheus itself puts on every series."""
_KNOWN = {metric.name: metric for metric in (*METRICS, *bridge.METRICS)}
_COMPARISONS = frozenset({">", "<", ">=", "<=", "==", "!="})


def selectors(parts: Iterable[Expr]) -> Iterator[VectorSelector]:
    """Yield the series that are selected."""
    for node in parts:
        if isinstance(node, VectorSelector):
            yield node
        elif isinstance(node, MatrixSelector):
            yield node.vector_selector


def family(name: str) -> Metric | None:
    """Return the catalogue's row of a series, also of one with the suffix of a histogram or summary."""
    for suffix in ("", "_bucket", "_sum", "_count"):
        metric = _KNOWN.get(name.removesuffix(suffix)) if name.endswith(suffix) else None
        if metric is not None and (not suffix or metric.kind in {"histogram", "summary"}):
            return metric
    return None


def metric_kind(name: str) -> str:
    """Return counter, gauge, ... from the catalogue or the name; empty when unknown."""
    metric = family(name)
    if metric is None:
        return "counter" if name.endswith("_total") else ""
    return "counter" if metric.name != name else metric.kind


def is_recorded(name: str) -> bool:
    """Return whether a rule recorded this series: its name has a colon, and is not one of vLLM's own."""
    return ":" in name and not name.startswith("vllm:")


def labels(expr: Expr) -> expression.LabelNames:
    """Return the labels an expression yields; None where the catalogue does not list them."""
    return expression.labels(expr, _of_series)


def _of_series(selector: VectorSelector) -> frozenset[str] | None:
    metric = family(selector.name or "")
    if metric is None:
        return None
    bucket = {"le"} if (selector.name or "").endswith("_bucket") else set()
    return frozenset({*metric.labels, *_TARGET, *bucket})


def may_be_zero(expr: Expr) -> bool:
    """Return whether a divisor can be 0: it is neither another number nor filtered by a comparison."""
    while isinstance(expr, ParenExpr):
        expr = expr.expr
    if isinstance(expr, NumberLiteral):
        return expr.val == 0
    return not (isinstance(expr, BinaryExpr) and str(expr.op) in _COMPARISONS)
