"""Test `models`, `versions` and `overrides`: which groups are recorded, and with which target."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from slo.slo_scenarios import series
from support.promtool import evaluated, recording_rules_for, rule_file
from support.tools import promtools
from triton_exporter.catalogue import state, triton
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.generate import artifacts
from triton_slo.objective.model import Objective

MODELS = ("llm-7b", "llm-70b", "embedder", "a.b", "axb")
VERSIONS = ("1", "2", "10")


@pytest.mark.real
@pytest.mark.parametrize(
    "overrides",
    [
        [({"regex": "llm-.*"}, "all", 0.95), (["llm-7b"], "all", 0.9)],
        [("all", ["1"], 0.95), (["llm-7b"], "all", 0.9)],
        [(["a.b"], {"regex": "1.*"}, 0.9), ({"regex": "a.b"}, "all", 0.98), (["embedder"], ["2"], 0.5)],
    ],
)
def test_every_model_version_has_the_target_of_the_first_override_it_matches(
    overrides: list[tuple[object, object, float]], tmp_path: Path
) -> None:
    """The recorded target of each group is the one that `resolve` gives."""
    listed = [{"models": chosen, "versions": of, "target": target} for chosen, of, target in overrides]
    fields = {"indicator": "errors", "overrides": listed, "models": {"regex": "llm-.*|a.b|embedder"}}
    shown = {
        series(triton.REQUEST_SUCCESS, model=model, version=version): "0+10x60"
        for model in (*MODELS, "other")
        for version in VERSIONS
    }
    objective = Objective.model_validate({"name": "o", "target": 0.99, **fields})

    targets = recorded(names.OBJECTIVE_RATIO, shown, tmp_path, **fields)

    assert {
        (model, version): pytest.approx(resolved[0])
        for model in MODELS
        for version in VERSIONS
        if (resolved := objective.resolve(model, version)) is not None
    } == targets


@pytest.mark.real
def test_a_threshold_of_its_own_is_another_bucket(tmp_path: Path) -> None:
    """Models with an override are counted by their bucket, whether or not they have the usual one."""
    shown = {}
    for model, edges in {"fast": ("0.5", "1"), "slow": ("5",)}.items():
        labels = {"model": model}
        shown[series(f"{state.REQUEST_DURATION}_count", **labels)] = "0+10x60"
        for edge in edges:
            shown[series(f"{state.REQUEST_DURATION}_bucket", **labels, le=edge)] = (
                f"0+{9 if edge != '5' else 8}x60"
            )
    fields = {
        "indicator": {"kind": "latency", "threshold": "1s"},
        "overrides": [{"models": ["slow"], "threshold": "5s"}],
    }

    shares = recorded(names.sli_error("5m"), shown, tmp_path, **fields)
    thresholds = recorded(names.THRESHOLD_SECONDS, shown, tmp_path, **fields)

    assert {("fast", "1"): pytest.approx(0.1), ("slow", "1"): pytest.approx(0.2)} == shares
    assert {("fast", "1"): 1, ("slow", "1"): 5} == thresholds


def recorded(
    record: str, shown: dict[str, str], folder: Path, **fields: object
) -> dict[tuple[str, ...], float]:
    """Return what an objective's rules record after ten minutes, by the values of the labels of its groups."""
    objective = Objective.model_validate({"name": "o", "target": 0.99, **fields})
    [text] = [artifact.text for artifact in artifacts([objective], Options()) if artifact.name == "slo-o.yml"]
    rules = [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]
    chosen = rule_file({"slo": recording_rules_for(rules, record)})
    [samples] = evaluated(promtools()[0], folder, chosen, shown, [(record, 600)], interval=15, evaluation=15)
    return {tuple(labels.get(label, "") for label in objective.group_by): value for labels, value in samples}


def test_chosen_versions_have_a_budget_where_groups_have_no_version(tmp_path: Path) -> None:
    """Groups by model and server record the chosen versions together, and their error budget, so alerts fire."""
    shown = {
        series(triton.REQUEST_SUCCESS, version=version, instance="triton-0:8002"): "0+10x60"
        for version in ("1", "2", "3")
    }
    objective = {"indicator": "errors", "versions": ["1", "2"], "group_by": ["model", "instance"]}

    budgets = recorded(names.ERROR_BUDGET_RATIO, shown, tmp_path, **objective)

    assert {("m", "triton-0:8002"): 0.01} == {group: round(value, 9) for group, value in budgets.items()}


def test_custom_queries_count_only_chosen_models(tmp_path: Path) -> None:
    """Each chosen model is recorded once, with its own target, and a model that is not chosen is not recorded."""
    shown = {series("requests_total", model=model): "0+10x60" for model in ("a.b", "axb", "$c", "d", "other")}
    objective = {
        "group_by": ["model"],
        "models": {"regex": "a.b|.c|d"},
        "overrides": [{"models": ["a.b"], "target": 0.9}, {"models": {"regex": "a.*"}, "target": 0.95}],
        "indicator": {"kind": "custom", "error": "failures_total", "total": "requests_total"},
    }

    targets = recorded(names.OBJECTIVE_RATIO, shown, tmp_path, **objective)

    assert {("a.b",): 0.9, ("axb",): 0.95, ("$c",): 0.99, ("d",): 0.99} == targets


def test_parts_of_a_custom_objective_have_no_rule_twice() -> None:
    """vmalert refuses a group in which two rules are the same."""
    objective = Objective.model_validate(
        {
            "name": "o",
            "target": 0.99,
            "group_by": ["model"],
            "models": "a$1",
            "indicator": {"kind": "custom", "error": "bad_total", "total": "all_total"},
        }
    )
    [text] = [artifact.text for artifact in artifacts([objective], Options()) if artifact.name == "slo-o.yml"]
    rules = [
        str(rule) for group in yaml.safe_load(text)["groups"] for rule in group["rules"] if "record" in rule
    ]

    assert len(set(rules)) == len(rules)
    assert 'label_replace(vector(1), "model", "a$$1", "", "")' in text
