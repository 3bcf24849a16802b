"""Test that only the file of a kind of indicators has its differences, without switches elsewhere."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from support.tools import ROOT
from triton_slo.indicators import KINDS
from triton_slo.indicators.common.measure import EventQuery, Measure

PACKAGES = (
    "exporters/triton_exporter",
    "slo/triton_slo",
    "alerts/triton_alerts",
    "dashboards/triton_dashboards",
    "compose/tritonwatch",
)
CLASSES = {kind.__name__ for kind in KINDS.values()}
FORMS: list[type[object]] = [EventQuery, *EventQuery.__subclasses__()]
QUERIES = {form.__name__ for kind in FORMS for form in (kind, *kind.__subclasses__())}
FLAGS = ("counted", "sampled", "adds", "exact", "no_bucket", "stuck", "unseen", "silent")
"""What a measure once had, and others read to find out which kind it is of."""
BELOW = "exporters/triton_exporter/distribution/buckets.py"
"""Reads thresholds of objectives below the SLO engine, by a table of the kinds that have one."""


def named(node: ast.expr) -> set[str]:
    """Return the kinds and classes that an operand names, alone or listed."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return {name for elt in node.elts if not isinstance(elt, ast.Set) for name in named(elt)}
    if isinstance(node, ast.BinOp):
        return named(node.left) | named(node.right)
    if isinstance(node, ast.Constant):
        return {str(node.value)} & KINDS.keys()
    if isinstance(node, ast.Attribute):
        return {node.attr} & (CLASSES | QUERIES)
    return {node.id} & (CLASSES | QUERIES) if isinstance(node, ast.Name) else set()


def about_an_indicator(node: ast.expr) -> bool:
    """Return whether an operand is the kind of an indicator."""
    match node:
        case ast.Attribute(attr="kind", value=ast.Attribute(attr="indicator") | ast.Name(id="indicator")):
            return True
        case ast.Attribute(attr="indicator") | ast.Name(id="indicator"):
            return True
    return False


def switches(text: str) -> Iterator[int]:
    """Yield the lines that compare with a kind of indicator, or ask which class or flag one has."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Compare(ops=[ast.Is() | ast.IsNot()]):
                is_switch = False
            case ast.Compare(left=left, comparators=others):
                is_switch = any(
                    named(side) & KINDS.keys() or about_an_indicator(side) for side in (left, *others)
                )
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, of]):
                is_switch = bool(named(of))
            case ast.MatchClass(cls=of):
                is_switch = bool(named(of))
            case ast.MatchValue(value=ast.Constant(value=str(kind))):
                is_switch = kind in KINDS
            case ast.Dict(keys=keys):
                is_switch = (
                    len(KINDS.keys() & {key.value for key in keys if isinstance(key, ast.Constant)}) > 1
                )
            case ast.Attribute(attr=flag, value=ast.Call(func=ast.Attribute(attr="measure"))):
                is_switch = flag in FLAGS
            case ast.Attribute(attr=flag, value=ast.Name(id="measure")):
                is_switch = flag in FLAGS
            case _:
                is_switch = False
        if is_switch and isinstance(node, ast.expr | ast.pattern):
            yield node.lineno


@pytest.mark.parametrize("package", PACKAGES)
def test_nothing_switches_on_the_kind_of_an_indicator(package: str) -> None:
    """Adding a kind is adding one file, with its test and its page."""
    files = [path.relative_to(ROOT) for path in sorted((ROOT / package).rglob("*.py"))]
    places = [
        f"{path}:{line}"
        for path in files
        if "triton_slo/indicators" not in str(path) and str(path) != BELOW
        for line in switches((ROOT / path).read_text(encoding="utf-8"))
    ]

    assert [] == places


@pytest.mark.parametrize(
    "planted",
    [
        'if objective.indicator.kind == "errors": pass',
        'limit = target if kind in ("errors", "probe") else threshold',
        "if objective.indicator.kind not in COUNTED: pass",
        "found = isinstance(indicator, Readiness | Custom)",
        "match indicator:\n    case model.Latency(): pass",
        'match indicator.kind:\n    case "probe": pass',
        'STEPS = {"errors": "read the log", "queue": "add instances"}',
        "if plan.measure(plan.variants[-1]).stuck: pass",
        "if isinstance(measure.events, StateQuery): pass",
    ],
)
def test_a_planted_switch_is_found(planted: str) -> None:
    """The test above is not blind."""
    assert [] != list(switches(planted))


def test_a_measure_has_no_flag() -> None:
    """A flag would have to be read by others."""
    held = Measure.__annotations__

    assert [] == [name for name in FLAGS if name in held]
    assert "bool" not in held.values()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_the_texts_of_its_alerts(kind: str) -> None:
    """Every kind names its alert and a first step, and has a documented row."""
    indicator = KINDS[kind]

    assert kind == indicator.name()
    assert indicator.burn_alert.startswith("Triton")
    assert indicator.first_step.endswith(".")
    assert f"`{kind}`" in (ROOT / "docs/objectives.md").read_text(encoding="utf-8")
