"""Test panels that name an alert: each queries what the alert queries, and draws its limit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import promql_parser
import pytest

from support.panels import MODELS, Json, fill, panels
from triton_alerts.catalogue import ALERTS
from triton_alerts.rules import rule
from triton_slo.artifact import Options
from triton_slo.signals import SIGNALS

EXPRESSIONS = {alert.name: rule(alert, Options()).expr for alert in ALERTS}
_MARK = re.compile(r"`(\w+)` fires above ([\d.]+) ?(%|ms|m|s)")
_UNITS = {"%": 0.01, "ms": 0.001, "s": 1.0, "m": 60.0}


def _marked() -> Iterator[tuple[str, Json, str, float]]:
    """Dashboard, panel, alert and the limit in the panel's unit, of every panel that names an alert."""
    for model in MODELS.values():
        for panel in panels(model):
            for name, number, unit in _MARK.findall(panel["description"]):
                yield model["uid"], panel, name, round(float(number) * _UNITS[unit], 9)


MARKED = [
    pytest.param(panel, name, limit, id=f"{uid}-{panel['title']}") for uid, panel, name, limit in _marked()
]


def _shape(node: Any) -> str:
    """Reduce an expression to its function: without grouping, chosen variables and windows."""
    match node:
        case promql_parser.ParenExpr() | promql_parser.AggregateExpr():
            return _shape(node.expr)
        case promql_parser.BinaryExpr():
            return f"({_shape(node.lhs)} {node.op} {_shape(node.rhs)})"
        case promql_parser.Call():
            return f"{node.func.name}({', '.join(map(_shape, node.args))})"
        case promql_parser.MatrixSelector():
            return _shape(node.vector_selector)
        case promql_parser.VectorSelector():
            fixed = [
                f"{matcher.name}={matcher.value}"
                for matcher in node.matchers.matchers
                if matcher.value not in ("x", EVERY)
            ]
            return f"{node.name}{{{','.join(sorted(fixed))}}}"
    return str(node)


EVERY = "anything"


def _parts(node: Any) -> Iterator[Any]:
    """Yield an expression and all that it is made of."""
    yield node
    for name in ("expr", "lhs", "rhs"):
        if hasattr(node, name):
            yield from _parts(getattr(node, name))
    for argument in getattr(node, "args", ()):
        yield from _parts(argument)


def _compared(expr: str) -> dict[str, float]:
    """Return what an alert compares with a number: shape -> the number above which it fires.

    A comparison with 0 is a guard against dividing by nothing.
    """
    return {
        _shape(part.lhs): part.rhs.val
        for part in _parts(promql_parser.parse(expr))
        if isinstance(part, promql_parser.BinaryExpr)
        and str(part.op) == ">"
        and isinstance(part.rhs, promql_parser.NumberLiteral)
        and part.rhs.val > 0
    }


@pytest.mark.parametrize(("panel", "name", "limit"), MARKED)
def test_panel_and_alert_agree(panel: Json, name: str, limit: float) -> None:
    """The panel asks for what the alert compares, states the alert's number and colours from it on."""
    compared = _compared(EXPRESSIONS[name])
    chosen = dict.fromkeys(re.findall(r"\$([a-z]\w*)", str(panel["targets"])), EVERY)
    shapes = set()
    for target in panel["targets"]:
        asked = promql_parser.parse(fill(target["expr"], chosen))
        shapes |= {_shape(part) for part in _parts(asked)}
    steps = [step["value"] for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]]

    assert {limit} == {number for shape, number in compared.items() if shape in shapes}
    assert limit in steps


def test_every_shared_signal_has_its_alert_and_its_panel() -> None:
    """Every signal of the table is used by both its alert and its panel."""
    names = {signal.alert for signal in SIGNALS}

    assert names <= set(EXPRESSIONS)
    assert names == {name for _, _, name, _ in _marked()}
