"""Test a model's own dashboard: its limits, only the rows that it has, and any name of the model."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from promql_parser import parse as promql

from dashboards.dashboard_lint import lint
from support.panels import MACROS, fill, panels
from support.thorough import examples
from triton_dashboards.grafana import dashboard_model
from triton_dashboards.per_model import ModelFacts, dashboard, uid
from triton_slo.artifact import Options
from triton_slo.objective.reading import read

OBJECTIVES = read(
    [
        (
            "o.yaml",
            """
name: latency
target: 99%
indicator: {kind: latency, threshold: 1s}
overrides: [{models: slow, threshold: 4s}]
---
name: queue
target: 99%
indicator: {kind: queue, threshold: 100ms}
---
name: errors
target: 99.9%
indicator: errors
""",
        )
    ]
).objectives


def _model(facts: ModelFacts) -> dict[str, object]:
    return dashboard_model(dashboard(facts, OBJECTIVES, Options()))


def _red(model: dict[str, object], title: str) -> float:
    panel = next(panel for panel in panels(model) if panel["title"] == title)
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    return float(next(step["value"] for step in steps if step["color"] == "red"))


def _limit(model: dict[str, object], title: str) -> float:
    """Return the value of a graph's series "limit", which is drawn as a dashed red line."""
    panel = next(panel for panel in panels(model) if panel["title"] == title)
    [limit] = [target["expr"] for target in panel["targets"] if target["legendFormat"] == "limit"]
    styles = [each["matcher"]["options"] for each in panel["fieldConfig"]["overrides"]]
    assert "/^limit/" in styles
    return float(limit.removeprefix("vector(").removesuffix(")"))


@pytest.mark.parametrize(("name", "seconds"), [("quick", 1.0), ("slow", 4.0)])
def test_thresholds_are_those_of_the_objective(name: str, seconds: float) -> None:
    """Numbers turn red at the objective's limit, and graphs contain it as a series, overrides included.

    Grafana draws a threshold only where the axis, which follows the series, happens to reach it.
    """
    model = _model(ModelFacts(name, ("1",)))

    assert seconds == _limit(model, "Latency") == _red(model, "p99 latency")
    assert 0.1 == _limit(model, "Wait in the queue")
    assert 0.001 == _limit(model, "Failed by version") == _red(model, "Failed")


def test_no_number_is_invisible_where_an_objective_has_a_limit() -> None:
    """The lint finds nothing on a dashboard whose limits are known."""
    assert [] == [str(problem) for problem in lint([_model(ModelFacts("slow", ("1",)))])]


@pytest.mark.parametrize(
    ("facts", "there"),
    [
        (ModelFacts("a"), set()),
        (ModelFacts("a", backend="vllm"), {"Language model"}),
        (ModelFacts("a", backend="python", language=True), {"Language model"}),
        (ModelFacts("a", backend="ensemble", cached=True), {"Ensemble steps", "Response cache"}),
    ],
)
def test_only_rows_the_model_has(facts: ModelFacts, there: set[str]) -> None:
    """Language-model, ensemble and cache rows appear where the model has such series."""
    rows = {panel["title"] for panel in _model(facts)["panels"] if panel["type"] == "row"}  # type: ignore[attr-defined]
    special = {title for title in rows if re.search("Language|Ensemble|cache", title)}

    assert there == special


@pytest.mark.parametrize("backend", ["vllm", "tensorrtllm"])
def test_a_language_model_shows_its_tokens_first(backend: str) -> None:
    """Time to the first token, tokens and cache are on the first screen, and their graphs are open below."""
    shown = _model(ModelFacts("a", backend=backend))["panels"]
    titles = [panel["title"] for panel in shown if panel["gridPos"]["y"] < 20]  # type: ignore[attr-defined]

    assert {"First token, p95", "Tokens per second", "KV cache"} <= set(titles)
    assert {"Time to first token", "KV cache used"} & set(titles)


@examples(8, thorough=1000)
@given(st.text(min_size=1, max_size=80))
def test_any_name_gives_a_legal_dashboard(name: str) -> None:
    """Dots, quotes, braces, newlines or another script: legal uid, clean lint, queries that still parse."""
    model = _model(ModelFacts(name, ("1",), "ensemble"))
    chosen = {variable["name"]: "x" for variable in model["templating"]["list"]} | dict(MACROS)  # type: ignore[index]
    text = next(t["expr"] for p in panels(model) for t in p["targets"])

    assert re.fullmatch(r"[A-Za-z0-9_-]{1,40}", str(model["uid"]))
    assert uid(name) == model["uid"]
    if "\0" not in name:
        assert [] == lint([model])
        assert promql(fill(text, chosen)) is not None
    assert json.loads(json.dumps(model)) == model


@pytest.mark.parametrize("name", ["price$model", "a${version}", "$__range", "x[[version]]"])
def test_a_name_that_resembles_a_variable_is_not_expanded(name: str) -> None:
    """Grafana would put a variable's value into a query or heading that contains `$version`."""
    model = _model(ModelFacts(name, ("1",)))
    texts = [panel["title"] for panel in model["panels"]]  # type: ignore[attr-defined]
    texts += [target["expr"] for panel in panels(model) for target in panel["targets"]]
    texts += [
        annotation["target"]["expr"] for annotation in model["annotations"]["list"] if "target" in annotation
    ]  # type: ignore[index]

    assert not any(name in text for text in texts)
    assert any("price" in text or "\\x24" in text or "\\x5b" in text for text in texts)


def test_its_alerts_are_those_of_the_model() -> None:
    """The marks of firing alerts on its graphs are not those of other models."""
    model = _model(ModelFacts('llama-3.1+"x', ("1",)))
    [alerts] = [
        annotation for annotation in model["annotations"]["list"] if annotation["name"] == "Firing alerts"
    ]  # type: ignore[index]

    assert 'model="llama-3.1+\\"x"' in alerts["target"]["expr"]
    assert "model=~" not in alerts["target"]["expr"]


def test_it_does_not_crowd_the_menu_of_dashboards() -> None:
    """The menu lists dashboards by one tag, which hundreds of models must not have."""
    model = _model(ModelFacts("a", ("1",)))
    [menu] = [link for link in model["links"] if link["type"] == "dashboards"]  # type: ignore[attr-defined]

    assert not set(menu["tags"]) & set(model["tags"])  # type: ignore[call-overload]
