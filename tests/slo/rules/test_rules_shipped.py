"""Test the shipped objectives: real promtools accept their rules."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from support.files import write
from support.promtool import promtool
from support.tools import ROOT, promtools
from triton_slo.artifact import Options
from triton_slo.generate import artifacts
from triton_slo.objective.model import Objective
from triton_slo.objective.reading import read

SHIPPED = ROOT / "slo" / "objectives"
PROMTOOLS = pytest.mark.parametrize("tool", promtools(), ids=lambda path: str(path.parent))


def shipped() -> tuple[Objective, ...]:
    reading = read((path.name, path.read_text()) for path in sorted(SHIPPED.glob("*.yaml")))
    assert () == reading.problems
    return reading.objectives


def written(folder: Path, objectives: tuple[Objective, ...], options: Options) -> list[Path]:
    """Write the rule files, and return their paths."""
    write(artifacts(objectives, options), folder)
    return sorted((folder / "rules").iterdir())


def promtool_output(tool: Path, *words: str | Path) -> str:
    """Run promtool; its words if it is not content."""
    done = promtool(tool, *words)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@PROMTOOLS
def test_every_promtool_accepts_the_rules(tool: Path, tmp_path: Path) -> None:
    """The same files load in the oldest and the newest Prometheus we know."""
    assert "" == promtool_output(tool, "check", "rules", *written(tmp_path, shipped(), Options()))


EVERY_FORM = """
- name: custom
  target: 99%
  indicator: {kind: custom, error: 'all_total unless all_total{code!~"5.."}', total: all_total}
- name: fleet
  target: 99%
  group_by: []
  indicator: {kind: custom, error: bad_total, total: 'all_total or other_total'}
- {name: month, target: 99%, window: month, indicator: {kind: queue, threshold: 20ms}}
- {name: servers, target: 99%, group_by: [cluster, model], indicator: readiness,
   exclusions: [{reason: r, days: all, start: "02:00", end: "03:00"}]}
- {name: week, target: 99.5%, window: 7d, models: {regex: "bert-.+|gpt[0-9]"}, indicator: errors}
- {name: fourweeks, target: 95%, window: 28d, indicator: {kind: latency, threshold: 250ms, source: histogram},
   overrides: [{models: [a, b], threshold: 2s}, {models: {regex: "c.*"}, versions: "2", target: 99.9%}]}
- {name: first, target: 99%, indicator: {kind: first_response, threshold: 500ms}}
- {name: probe, target: 99%, indicator: probe}
- {name: token, target: 99%, indicator: {kind: first_response, threshold: 250ms, engine: vllm}}
"""


@pytest.mark.real
@PROMTOOLS
def test_every_promtool_accepts_every_form_of_objective(tool: Path, tmp_path: Path) -> None:
    """Custom counters, other windows, exclusions, overrides by name, regex and version."""
    reading = read([("forms.yaml", yaml.safe_dump({"objectives": yaml.safe_load(EVERY_FORM)}))])
    assert () == reading.problems

    paths = written(tmp_path, reading.objectives, Options(selector='cluster="eu1"'))

    assert 10 == len(paths)
    assert "" == promtool_output(tool, "check", "rules", *paths)


def test_committed_files_are_what_the_objectives_give() -> None:
    """The files in alerts/generated were generated from these objectives by this code."""
    stale = [
        artifact.name
        for artifact in artifacts(shipped(), Options())
        if artifact.part == "rules"
        and (ROOT / "alerts" / "generated" / "rules" / artifact.name).read_text() != artifact.text
    ]

    assert [] == stale, "run `make generate`"


def test_every_alert_has_the_texts_that_on_call_needs() -> None:
    """Severity, component, owner and stack on the one hand; words and links on the other."""
    alerts = [
        rule
        for artifact in artifacts(shipped(), Options())
        if artifact.part == "rules"
        for group in yaml.safe_load(artifact.text)["groups"]
        for rule in group["rules"]
        if "alert" in rule
    ]

    assert 26 == len(alerts)
    for rule in alerts:
        assert {"severity", "component", "owner", "stack"} <= set(rule["labels"])
        assert {"summary", "description", "action", "runbook_url", "dashboard_url"} <= set(
            rule["annotations"]
        )
