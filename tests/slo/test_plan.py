"""Overrides split the models: each model version has the target of the first override that it matches."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from triton_slo.artifact import Options
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
    """Whether a series with these labels has them all, as Prometheus matches."""
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
    """Three thousand models with two targets are two parts besides the rest, whatever stands before them."""
    overrides: list[dict[str, object]] = [{"models": {"regex": "llm-.*"}, "target": 0.95}]
    overrides += [{"models": f"m{number}", "target": 0.9 + number % 2 / 100} for number in range(3000)]
    objective = Objective.model_validate(
        {"name": "o", "target": 0.99, "indicator": "errors", "overrides": overrides}
    )

    assert 4 == len(Plan(objective, Options()).variants)
