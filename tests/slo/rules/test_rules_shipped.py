"""Test the shipped objectives: real promtools accept their rules, and alerts fire, stay quiet and end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from support.promtool import evaluate_each_minute, promtool
from support.thorough import THOROUGH
from support.tools import ROOT, promtools
from triton_slo.artifact import Options
from triton_slo.generate import artifacts
from triton_slo.objective.model import WORKBOOK_TIERS, Objective
from triton_slo.objective.reading import read
from triton_slo.proofs import proof
from triton_slo.rules.plan import Plan

SHIPPED = ROOT / "slo" / "objectives"
PROMTOOLS = pytest.mark.parametrize("tool", promtools(), ids=lambda path: str(path.parent))


def shipped() -> tuple[Objective, ...]:
    reading = read((path.name, path.read_text()) for path in sorted(SHIPPED.glob("*.yaml")))
    assert () == reading.problems
    return reading.objectives


def lay_out(folder: Path, options: Options, objectives: tuple[Objective, ...] | None = None) -> list[Path]:
    """Write what is generated, and give back the proofs."""
    tests = []
    for artifact in artifacts(shipped() if objectives is None else objectives, options):
        path = folder / artifact.part / artifact.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(artifact.text)
        if artifact.name.endswith(".test.yml"):
            tests.append(path)
    return tests


def promtool_output(tool: Path, *words: str | Path) -> str:
    """Run promtool; its words if it is not content."""
    done = promtool(tool, *words)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@PROMTOOLS
def test_every_promtool_accepts_the_rules(tool: Path, tmp_path: Path) -> None:
    """The same files load in the oldest and the newest Prometheus we know."""
    lay_out(tmp_path, Options())

    assert "" == promtool_output(tool, "check", "rules", *sorted((tmp_path / "rules").iterdir()))


@pytest.mark.real
def test_each_alert_fires_keeps_quiet_and_ends(tmp_path: Path) -> None:
    """promtool sees every tier fire at its own pace and no faster one, and all quiet 5 minutes after."""
    tests = lay_out(tmp_path, Options())
    for test in tests:
        if not (THOROUGH and test.name == "slo-errors.test.yml"):
            evaluate_each_minute(test)

    assert 4 == len(tests)
    assert "" == promtool_output(promtools()[-1], "test", "rules", *tests)


@pytest.mark.real
def test_the_demo_scale_keeps_the_proofs(tmp_path: Path) -> None:
    """A month in two hours, scraped each second: the same alerts fire and end."""
    objectives = tuple(
        objective for objective in shipped() if objective.name == ("queue" if THOROUGH else "readiness")
    )
    tests = lay_out(tmp_path, Options(time_scale=1 / 360, scrape_interval_seconds=1), objectives)

    assert "" == promtool_output(promtools()[0], "test", "rules", *tests)


EVERY_FORM = """
- name: custom
  target: 99%
  indicator: {kind: custom, good: 'rate(good[{{window}}])', total: 'rate(all[{{window}}])'}
- name: ratio
  target: 99%
  group_by: []
  indicator: {kind: custom, error_ratio: 'avg_over_time(share[{{window}}])'}
- {name: slices, target: 99%, indicator: {kind: queue, threshold: 20ms, source: slices}}
- {name: week, target: 99.5%, window: 7d, models: {regex: "bert-.+|gpt[0-9]"}, indicator: errors}
- {name: fourweeks, target: 95%, window: 28d, indicator: {kind: latency, threshold: 250ms, source: histogram},
   overrides: [{models: [a, b], threshold: 2s}, {models: {regex: "c.*"}, versions: "2", target: 99.9%}]}
- {name: first, target: 99%, indicator: {kind: first_response, threshold: 500ms}}
- {name: probe, target: 99%, indicator: probe}
- {name: token, target: 99%, indicator: {kind: first_response, threshold: 250ms, engine: vllm}}
"""


@pytest.mark.real
def test_every_form_of_objective_keeps_the_proofs(tmp_path: Path) -> None:
    """Custom queries, slices, other windows, overrides by name, regex and version: proven like the shipped."""
    # The fastest and the slowest tier: each costs a proof.
    tiers = WORKBOOK_TIERS if THOROUGH else (WORKBOOK_TIERS[0], WORKBOOK_TIERS[-1])
    alerting = {"alerting": {"tiers": [tier.model_dump() for tier in tiers]}}
    reading = read(
        [
            (
                "forms.yaml",
                yaml.safe_dump(
                    {"objectives": [document | alerting for document in yaml.safe_load(EVERY_FORM)]}
                ),
            )
        ]
    )
    assert () == reading.problems
    tests = lay_out(tmp_path, Options(selector='cluster="eu1"'), reading.objectives)
    for test in tests:
        evaluate_each_minute(test)

    assert 8 == len(tests)
    assert "" == promtool_output(promtools()[0], "check", "rules", *sorted((tmp_path / "rules").iterdir()))
    assert "" == promtool_output(promtools()[-1], "test", "rules", *tests)


def test_generation_fails_without_proofs(monkeypatch: pytest.MonkeyPatch) -> None:
    """An alert without a proof that it fires stops the generation, with its name."""
    (queue,) = (objective for objective in shipped() if objective.name == "queue")
    plan = Plan(queue, Options())
    model = ("some-model", "1")
    fewer = [case for case in proof.proofs(plan, model) if "page_fast" not in case.name]

    assert [("TritonQueueBudgetBurn", "page_fast")] == proof.unproven(plan, model, fewer)

    monkeypatch.setattr(proof, "proofs", lambda *_: iter(fewer))
    with pytest.raises(LookupError, match="page_fast"):
        artifacts((queue,), Options())


def test_committed_files_are_what_the_objectives_give() -> None:
    """The files in alerts/generated were generated from these objectives by this code."""
    stale = [
        artifact.name
        for artifact in artifacts(shipped(), Options())
        if artifact.part == "rules"
        and (ROOT / "alerts" / "generated" / "rules" / artifact.name).read_text() != artifact.text
    ]

    assert [] == stale, "run `make generate`"


def test_same_input_same_bytes() -> None:
    """The text does not depend on the clock, the machine or the order of dictionaries."""
    assert artifacts(shipped(), Options()) == artifacts(shipped(), Options())


def test_an_operator_resource_has_the_same_rules() -> None:
    """The format changes the wrapping, never a rule."""
    plain = {
        artifact.name: artifact.text
        for artifact in artifacts(shipped(), Options())
        if artifact.part == "rules"
    }
    wrapped = artifacts(shipped(), replace(Options(), format="operator"))

    assert {"rules"} == {artifact.part for artifact in wrapped}
    for artifact in wrapped:
        resource = yaml.safe_load(artifact.text)
        assert "PrometheusRule" == resource["kind"]
        assert yaml.safe_load(plain[artifact.name])["groups"] == resource["spec"]["groups"]


def test_every_alert_has_the_texts_that_on_call_needs() -> None:
    """Severity, component and owner on the one hand; words and links on the other."""
    alerts = [
        rule
        for artifact in artifacts(shipped(), Options())
        if artifact.part == "rules"
        for group in yaml.safe_load(artifact.text)["groups"]
        for rule in group["rules"]
        if "alert" in rule
    ]

    assert 30 == len(alerts)
    for rule in alerts:
        assert {"severity", "component", "owner"} <= set(rule["labels"])
        assert {"summary", "description", "action", "runbook_url", "dashboard_url"} <= set(
            rule["annotations"]
        )
