"""Test the burn condition as rules: short alerts, documented parts, nothing recorded for a healthy group."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.promtool import alerting_rule_file, evaluated
from support.tools import ROOT, promtools
from triton_exporter.catalogue import triton
from triton_exporter.common.duration import DAY, parse_seconds
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.burn.burn_alerts import alert_rules
from triton_slo.burn.condition import EXPECTED_FAILURES, MAX_REMAINING_SHARE
from triton_slo.generate import artifacts
from triton_slo.objective.model import SUSTAINABLE, WORKBOOK_TIERS, Objective
from triton_slo.rules.plan import Plan
from triton_slo.rules.windows import GUARD

OBJECTIVES = [
    Objective(name="e", target=0.999, indicator="errors"),
    Objective.model_validate(
        {"name": "q", "target": 0.99, "indicator": {"kind": "queue", "threshold": "50ms"}}
    ),
    Objective(name="r", target=0.999, indicator="readiness"),
]


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda objective: objective.name)
def test_a_burn_alert_reads_in_three_short_lines(objective: Objective) -> None:
    """The expression names the burn rate and the recorded parts, and restates none of them."""
    burns = [rule for rule in alert_rules(Plan(objective, Options())) if names.TIER in rule.labels]

    assert 4 == len(burns)
    for rule in burns:
        lines = rule.expr.splitlines()
        assert len(lines) <= 3
        assert max(map(len, lines)) < 110


def test_an_exclusion_is_a_fourth_line_of_a_burn_alert() -> None:
    """Planned time is one more condition, and the other three read as without it."""
    exclusion = {"reason": "maintenance", "days": ["sunday"], "start": "02:00", "end": "04:00"}
    objective = {"name": "e", "target": 0.999, "indicator": "errors"}
    plain, excluding = (
        [
            rule.expr
            for rule in alert_rules(Plan(Objective.model_validate(objective | more), Options()))
            if names.TIER in rule.labels
        ]
        for more in ({}, {"exclusions": [exclusion]})
    )

    last = f'\nunless on () {names.SLI_EXCLUDED}{{slo="e"}}'
    assert [expr + last for expr in plain] == excluding


def test_the_page_on_objectives_describes_the_condition() -> None:
    """Windows, shares and counts of the page are those of the condition."""
    text = (ROOT / "docs/objectives.md").read_text()
    page = " ".join(text.split())
    severities = {"critical": "page", "warning": "ticket"}
    tiers = [
        f"| `{tier.name}` | {severities[tier.severity]} | {tier.long} | {tier.short} | {tier.budget:.0%} |"
        for tier in WORKBOOK_TIERS
    ]

    assert "\n".join(tiers) in text.replace(" % |", "% |")
    assert f"but it is at least {SUSTAINABLE:g}:" in page
    minutes = f"{parse_seconds(GUARD) / 60:g} minutes"
    assert (
        f"the error ratio of the last {minutes} is at most a quarter of the short window's error ratio"
        in page
    )
    assert (MAX_REMAINING_SHARE, EXPECTED_FAILURES) == (0.25, 6)
    assert "at least six failures must be expected" in page
    for name in ("enough", "recovered", "over", "now", "within_error"):
        assert f"`{names.burn_part(name)}`" in page


RUNBOOKS = sorted((ROOT / "alerts/runbooks").glob("*BudgetBurn.md"))


@pytest.mark.parametrize("path", RUNBOOKS, ids=lambda page: page.stem)
def test_a_runbook_states_what_the_tiers_find(path: Path) -> None:
    """The burn rate and the shares of a runbook are those of the tiers."""
    page = " ".join(path.read_text().split())
    fast = WORKBOOK_TIERS[0]

    spent = f"at {fast.factor(30 * DAY):g}, {fast.budget:.0%} of the budget is spent in an hour"
    assert spent.replace("%", " %") in page
    for tier in WORKBOOK_TIERS:
        assert f"| `{tier.name}` | about {tier.budget:.0%} ".replace("%", " %") in page


def test_a_healthy_group_has_no_series_for_the_parts_of_alerts(tmp_path: Path) -> None:
    """Parts cost series only while budget burns."""
    [rules] = [
        artifact.text for artifact in artifacts(OBJECTIVES[:1], Options()) if artifact.name == "slo-e.yml"
    ]
    success, failure = str(triton.REQUEST_SUCCESS), str(triton.REQUEST_FAILURE)
    series = {
        f'{success}{{model="healthy", version="1"}}': "0+100x60",
        f'{failure}{{model="healthy", version="1", reason="BACKEND"}}': "0x60",
        f'{success}{{model="failing", version="1"}}': "0+50x60",
        f'{failure}{{model="failing", version="1", reason="BACKEND"}}': "0+50x60",
    }
    parts = "|".join(names.burn_part(name) for name in ("enough", "recovered", "over", "now"))
    query = f'count by (model) ({{__name__=~"{parts}"}})'

    [samples] = evaluated(
        promtools()[0], tmp_path, rules, series, [(query, 3600)], interval=60, evaluation=60
    )

    assert ["failing"] == [labels["model"] for labels, _ in samples]


def failing(model: str, *stretches: tuple[int, int, int]) -> dict[str, str]:
    """Counters of a model, for stretches of minutes with so many good and failed requests a minute."""
    good, bad = [0], [0]
    for minutes, fine, failed in stretches:
        for _ in range(minutes):
            good.append(good[-1] + fine)
            bad.append(bad[-1] + failed)
    labels = f'model="{model}", version="1"'
    return {
        f"{triton.REQUEST_SUCCESS}{{{labels}}}": " ".join(map(str, good)),
        f'{triton.REQUEST_FAILURE}{{{labels}, reason="BACKEND"}}': " ".join(map(str, bad)),
    }


@pytest.mark.real
def test_little_traffic_pages_from_the_fifth_failure_on(tmp_path: Path) -> None:
    """Four failures fire nothing and six every tier; an outage that is back after 5 minutes pages again at once."""
    [rules] = [
        artifact.text
        for artifact in artifacts(OBJECTIVES[:1], Options(scrape_interval_seconds=60))
        if artifact.name == "slo-e.yml"
    ]
    groups = alerting_rule_file(rules)
    series = failing("rare", (60, 1, 0), (10, 0, 1)) | failing(
        "back", (60, 10, 0), (10, 0, 10), (5, 10, 0), (5, 0, 10)
    )
    moments = (("rare", 64), ("rare", 67), ("back", 74), ("back", 77))
    asked = [(f'ALERTS{{alertstate="firing", model="{model}"}}', 60.0 * at) for model, at in moments]

    answers = evaluated(promtools()[-1], tmp_path, groups, series, asked, interval=60, evaluation=60)

    four, six, recovered, again = ({labels["tier"] for labels, _ in answer} for answer in answers)
    every = {tier.name for tier in WORKBOOK_TIERS}
    pages = {tier.name for tier in WORKBOOK_TIERS if tier.severity == "critical"}
    assert (set(), every) == (four, six)
    assert (every - pages, every) == (recovered, again)
