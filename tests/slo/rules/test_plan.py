"""Test `models`, `versions` and `overrides`: which groups are recorded, and with which target."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from slo.slo_scenarios import series
from support.promtool import evaluated, recording_rules_for, rule_file
from support.tools import promtools
from triton_exporter.catalogue import triton
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.generate import artifacts
from triton_slo.objective.model import Objective
from triton_slo.promql import Matchers
from triton_slo.rules.plan import Plan

MODELS = ("llm-7b", "llm-70b", "embedder", "a.b", "axb")
VERSIONS = ("1", "2", "10")
_MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"(.*)"')

_NAMED = st.lists(st.sampled_from(MODELS), min_size=1, max_size=3, unique=True)
_BY_PATTERN = st.sampled_from([{"regex": "llm-.*"}, {"regex": ".*7b|embedder"}, {"regex": "a.b"}])
_CHOSEN_MODELS = st.just("all") | _NAMED | _BY_PATTERN
_CHOSEN_VERSIONS = st.sampled_from(["all", ["1"], ["2", "10"], {"regex": "1.*"}])
_OVERRIDES = st.lists(
    st.tuples(_CHOSEN_MODELS, _CHOSEN_VERSIONS, st.sampled_from([0.9, 0.95, 0.98])), max_size=5
)
_PATTERN_FIRST = [({"regex": "llm-.*"}, "all", 0.95), (["llm-7b"], "all", 0.9)]
_VERSION_FIRST = [("all", ["1"], 0.95), (["llm-7b"], "all", 0.9)]


def selects(matchers: Matchers, labels: dict[str, str]) -> bool:
    """Return whether the matchers select a series with these labels, as in Prometheus."""
    for part in matchers.parts:
        [(label, operator, text)] = _MATCHER.findall(part)
        value = text.replace("\\\\", "\\")
        same = re.fullmatch(value if "~" in operator else re.escape(value), labels[label]) is not None
        if same == operator.startswith("!"):
            return False
    return True


@given(_OVERRIDES, _CHOSEN_MODELS, _CHOSEN_VERSIONS)
@example(_PATTERN_FIRST, "all", "all")
@example(_VERSION_FIRST, "all", "all")
def test_every_model_version_has_the_target_of_the_first_override_it_matches(
    overrides: list[tuple[object, object, float]], models: object, versions: object
) -> None:
    """The rules record each series once, with the target that `resolve` gives."""
    listed = [
        {"models": chosen, "versions": of, "target": target}
        for chosen, of, target in overrides
        if (chosen, of) != ("all", "all")
    ]
    objective = Objective.model_validate(
        {
            "name": "o",
            "target": 0.99,
            "indicator": "errors",
            "models": models,
            "versions": versions,
            "overrides": listed,
        }
    )
    variants = Plan(objective, Options()).variants

    for model in MODELS:
        for version in VERSIONS:
            labels = {"model": model, "version": version}
            targets = [variant.target for variant in variants if selects(variant.matchers, labels)]
            resolved = objective.resolve(model, version)
            assert ([] if resolved is None else [resolved[0]]) == targets, labels


def test_many_overrides_of_single_models_make_few_parts() -> None:
    """Three thousand models with two targets are two parts besides the rest, for any overrides before them."""
    overrides: list[dict[str, object]] = [{"models": {"regex": "llm-.*"}, "target": 0.95}]
    overrides += [{"models": f"m{number}", "target": 0.9 + number % 2 / 100} for number in range(3000)]
    objective = Objective.model_validate(
        {"name": "o", "target": 0.99, "indicator": "errors", "overrides": overrides}
    )

    assert 4 == len(Plan(objective, Options()).variants)


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
        "indicator": {
            "kind": "custom",
            "errors": "sum by (model) (rate(failures_total[{{window}}]))",
            "total": "sum by (model) (rate(requests_total[{{window}}]))",
        },
    }

    targets = recorded(names.OBJECTIVE_RATIO, shown, tmp_path, **objective)
    seen = recorded(names.LAST_SEEN, shown, tmp_path, **objective)

    assert {("a.b",): 0.9, ("axb",): 0.95, ("$c",): 0.99, ("d",): 0.99} == targets
    assert targets.keys() == seen.keys()


def test_parts_of_a_custom_objective_have_no_rule_twice() -> None:
    """vmalert refuses a group in which two rules are the same."""
    objective = Objective.model_validate(
        {
            "name": "o",
            "target": 0.99,
            "group_by": ["model"],
            "overrides": [{"models": "a$1", "target": 0.9}],
            "indicator": {
                "kind": "custom",
                "error_ratio": "avg by (model) (avg_over_time(bad[{{window}}]))",
            },
        }
    )
    [text] = [artifact.text for artifact in artifacts([objective], Options()) if artifact.name == "slo-o.yml"]
    rules = [
        str(rule) for group in yaml.safe_load(text)["groups"] for rule in group["rules"] if "record" in rule
    ]

    assert len(set(rules)) == len(rules)
    assert 'label_replace(vector(1), "model", "a$$1", "", "")' in text
