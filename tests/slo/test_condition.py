"""The burn condition as rules: short alerts, documented parts, nothing recorded for a healthy group."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.promtool import evaluated
from support.tools import ROOT, promtools
from triton_exporter.catalogue import triton
from triton_slo import conventions
from triton_slo.artifact import Options
from triton_slo.burn.burn_alerts import alert_rules
from triton_slo.burn.condition import burn_condition, named_parts
from triton_slo.generate import artifacts
from triton_slo.objective.model import Objective
from triton_slo.rules.plan import Plan

OBJECTIVES = [
    Objective(name="e", target=0.999, indicator="errors"),
    Objective.model_validate(
        {"name": "q", "target": 0.99, "indicator": {"kind": "queue", "threshold": "50ms"}}
    ),
    Objective(name="r", target=0.999, indicator="readiness"),
]


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda one: one.name)
def test_a_burn_alert_reads_in_three_short_lines(objective: Objective) -> None:
    """The expression names the burn rate and the recorded parts, and restates none of them."""
    burns = [rule for rule in alert_rules(Plan(objective, Options())) if conventions.TIER in rule.labels]

    assert 4 == len(burns)
    for rule in burns:
        lines = rule.expr.splitlines()
        assert len(lines) <= 3
        assert max(map(len, lines)) < 110


def test_every_part_of_a_condition_is_documented() -> None:
    """A person who meets a part in Prometheus finds its meaning in the reference of objectives."""
    page = (ROOT / "docs/objectives.md").read_text()
    plan = Plan(OBJECTIVES[0], Options())
    tiers = plan.objective.alerting.tiers
    parts = {part.name for tier in tiers for part in named_parts(burn_condition(plan, tier))}

    assert {"enough", "recovered", "over", "now"} == parts
    for name in parts:
        assert f"| `{conventions.burn_part(name)}` |" in page


def test_a_healthy_group_has_no_series_for_the_parts_of_alerts(tmp_path: Path) -> None:
    """Parts cost series only while budget burns."""
    [rules] = [one.text for one in artifacts(OBJECTIVES[:1], Options()) if one.name == "slo-e.yml"]
    success, failure = str(triton.REQUEST_SUCCESS), str(triton.REQUEST_FAILURE)
    series = {
        f'{success}{{model="healthy", version="1"}}': "0+100x60",
        f'{failure}{{model="healthy", version="1", reason="BACKEND"}}': "0x60",
        f'{success}{{model="failing", version="1"}}': "0+50x60",
        f'{failure}{{model="failing", version="1", reason="BACKEND"}}': "0+50x60",
    }
    names = "|".join(conventions.burn_part(name) for name in ("enough", "recovered", "over", "now"))
    query = f'count by (model) ({{__name__=~"{names}"}})'

    [found] = evaluated(promtools()[0], tmp_path, rules, series, [(query, 3600)], interval=60, evaluation=60)

    assert ["failing"] == [labels["model"] for labels, _ in found]
