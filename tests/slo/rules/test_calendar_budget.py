"""Test the budget left in a calendar period: recorded, shown by status, replayed, in alerts, and converted."""

from __future__ import annotations

import io
import json
import math
import subprocess
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from slo.calendars import objective, rules, unix
from support.promtool import evaluated, rule_file
from support.tools import promtools
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.backtest.generated_policy import replayed
from triton_slo.backtest.history import History
from triton_slo.backtest.policy_run import run_policy
from triton_slo.burn.alert_texts import burning
from triton_slo.convert import openslo
from triton_slo.convert.entry import Entry, documents
from triton_slo.convert.ledger import Ledger
from triton_slo.lint import Surroundings, lint
from triton_slo.objective.model import Objective
from triton_slo.prometheus.client import Sample
from triton_slo.prometheus.remarks import Remarks
from triton_slo.rules.periods import LAST
from triton_slo.rules.plan import Plan
from triton_slo.verdict.recorded_status import group_statuses
from tritonwatch.tables.status_table import document, tables

DAY = 86_400
MARCH = unix("2026-03-01T00:00:00+01:00")
BERLIN = "Europe/Berlin"
BY_SECONDS = {"indicator": "readiness"}
SPENT = {"error": 6000.0, "total": 10.0 * DAY}
"""Ten days of March, of which 6,000 seconds (or requests) failed."""
HOURS_OF_MARCH = 31 * 24 - 1
GROUP = 'model="m", version="1"'


def recorded(tool: Path, folder: Path, promise: Objective) -> dict[str, float]:
    """Return recorded name -> value, ten days into March."""
    chosen = rules(promise, MARCH + 10 * DAY, names.PERIOD_BUDGET_REMAINING)
    chosen += [rule for rule in rules(promise, MARCH + 10 * DAY, names.PERIOD_DAYS) if rule not in chosen]
    given = (names.PERIOD_EVENTS, names.ERROR_BUDGET_RATIO)
    remaining = [rule for rule in chosen if rule["record"] not in given and "rate1h" not in rule["record"]]
    labels = f'slo="{promise.name}", indicator="{promise.indicator.kind}", {GROUP}'
    series = {f'{given[0]}{{{labels}, event="{event}"}}': str(n) for event, n in SPENT.items()}
    series[f"{given[1]}{{{labels}}}"] = "0.01"
    asked = (names.PERIOD_START, names.PERIOD_DAYS, names.PERIOD_BURN_RATE, names.PERIOD_BUDGET_REMAINING)
    at_once = [(name, 0) for name in asked]
    answers = evaluated(
        tool, folder, rule_file({"slo": remaining}), series, at_once, interval=60, evaluation=60
    )
    return {name: value for name, [(_, value)] in zip(asked, answers, strict=True)}


@pytest.mark.real
@pytest.mark.parametrize("tool", promtools(), ids=str)
@pytest.mark.parametrize(
    ("more", "budget_days"),
    [pytest.param({}, 10.0, id="requests"), pytest.param(BY_SECONDS, HOURS_OF_MARCH / 24, id="seconds")],
)
def test_a_budget_is_of_the_events_so_far_or_of_all_seconds(
    tool: Path, more: dict[str, str], budget_days: float, tmp_path: Path
) -> None:
    """6,000 failed requests spend 69 % of what ten days' may; as many seconds 22 % of what 743 hours may."""
    actual = recorded(tool, tmp_path, objective("o", "month", BERLIN, **more))

    assert MARCH == actual[names.PERIOD_START]
    assert pytest.approx(budget_days) == actual[names.PERIOD_DAYS]
    assert pytest.approx(6000 / 8640) == actual[names.PERIOD_BURN_RATE]
    assert pytest.approx(1 - 6000 / (0.01 * budget_days * DAY)) == actual[names.PERIOD_BUDGET_REMAINING]


@pytest.mark.parametrize(
    ("pace", "lasts", "shown"),
    [
        pytest.param(2.0, "estimated", "  12d  ", id="288 of the 503 hours that are left of the month"),
        pytest.param(1.0, "past_period_end", "past period's end", id="576 of them"),
        pytest.param(0.0, "not_burning", "not burning", id="nothing fails"),
    ],
)
def test_status_shows_the_ratio_so_far_and_whether_the_budget_lasts_the_month(
    pace: float, lasts: str, shown: str
) -> None:
    """The SLI is that of the ten days; 77 % of 743 hours' budget last so long, unless April begins before."""
    group = {names.SLO: "o", names.INDICATOR: "readiness", "model": "m", "version": "1"}
    left = 1 - 6000 / (0.01 * HOURS_OF_MARCH * 3600)
    values = {
        names.OBJECTIVE_RATIO: 0.99,
        names.PERIOD_BURN_RATE: 6000 / 8640,
        names.PERIOD_BUDGET_REMAINING: left,
        names.sli_error("1h"): 0.01 * pace,
        names.CURRENT_BURN_RATE: pace,
    }
    at = float(MARCH + 10 * DAY)
    samples = [Sample({"__name__": name, **group}, value, at) for name, value in values.items()]
    of_all = {names.SLO: "o", names.INDICATOR: "readiness"}
    samples.append(Sample({"__name__": names.PERIOD_DAYS, **of_all}, HOURS_OF_MARCH / 24, at))
    samples.append(Sample({"__name__": names.PERIOD_START, **of_all}, MARCH, at))
    samples.append(Sample({"__name__": names.PERIOD_END, **of_all}, MARCH + HOURS_OF_MARCH * 3600, at))

    [row] = group_statuses(samples)

    assert pytest.approx(1 - 6000 / SPENT["total"]) == row.sli
    assert pytest.approx(left) == row.budget_left
    seconds = left * HOURS_OF_MARCH * 3600 / pace if lasts == "estimated" else math.inf
    assert lasts == row.lasts
    assert pytest.approx(seconds) == row.exhausted_in_seconds
    assert HOURS_OF_MARCH * 3600 - 10 * DAY == row.period_ends_in_seconds
    drawn = io.StringIO()
    Console(width=200, file=drawn).print(tables([row]))
    assert shown in drawn.getvalue()
    [plain] = json.loads(json.dumps(document([row], at, Remarks())))["group_statuses"]
    exhausted = pytest.approx(seconds) if lasts == "estimated" else None
    assert (lasts, exhausted) == (plain["lasts"], plain["exhausted_in_seconds"])


@pytest.mark.parametrize("kind", ["errors", "readiness"])
def test_a_replay_forgets_the_month_before(kind: str) -> None:
    """An incident of February is not a part of March's budget, also where 30 days would still include it."""
    hours = np.arange(-5 * 24, 5 * 24) + 1.0
    bad = np.where((hours < -10) | (hours == 50), 1000.0, 0.0)[None, :]
    history = History((("o", "m", "1"),), MARCH + 3600 * hours, bad, np.full(bad.shape, 3600.0))
    known = replayed(objective("o", "month", BERLIN, indicator=kind))
    burnt = [
        episode.budget_left
        for episode in run_policy(history, known.policy, [known.target], known.basis_at)
        if episode.started == MARCH + 50 * 3600
    ]

    seconds = 50 * 3600 if kind == "errors" else HOURS_OF_MARCH * 3600
    assert [pytest.approx(1 - 1000 / (0.01 * seconds))] == burnt


@pytest.mark.real
@pytest.mark.parametrize("tool", promtools(), ids=str)
def test_an_alert_states_how_long_the_months_budget_lasts(tool: Path, tmp_path: Path) -> None:
    """The text's query works: what is left, times the days that it stands for, over the pace."""
    plan = Plan(objective("o", "month", BERLIN), Options())
    texts = burning(plan, plan.objective.alerting.tiers[0], recurs=True)
    rule = {
        "alert": "A",
        "expr": f"{names.CURRENT_BURN_RATE} > 1",
        "annotations": {"printed": texts["description"]},
    }
    labels = f'slo="o", indicator="errors", {GROUP}'
    given = [
        (f"{names.CURRENT_BURN_RATE}{{{labels}}}", "4"),
        (f"{names.PERIOD_BUDGET_REMAINING}{{{labels}}}", "0.5"),
        (f'{names.PERIOD_DAYS}{{slo="o", indicator="errors"}}', "10"),
        (f'{names.PERIOD_END}{{slo="o", indicator="errors"}}', str(2 * DAY)),
    ]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "g", "rules": [rule]}]}))
    test = {
        "interval": "60s",
        "input_series": [{"series": series, "values": value} for series, value in given],
        "alert_rule_test": [{"eval_time": "0s", "alertname": "A", "exp_alerts": [{}]}],
    }
    (tmp_path / "test.json").write_text(json.dumps({"rule_files": ["rules.yml"], "tests": [test]}))

    done = subprocess.run(
        [tool, "test", "rules", tmp_path / "test.json"], capture_output=True, text=True, check=False
    )

    printed = done.stdout + done.stderr
    assert " over the month (" in texts["description"]
    assert (
        "At this burn rate, the error budget left is spent in 1d 6h 0m 0s. The error budget resets in 2d 0h 0m 0s."
        in printed
    )


@pytest.mark.parametrize(
    ("duration", "kind", "start"),
    [("1w", "week", "2026-01-05"), ("1M", "month", "2026-01-01"), ("3M", "quarter", "2026-04-01")],
)
def test_openslo_calendars_are_taken_over_and_given_back(duration: str, kind: str, start: str) -> None:
    """A calendar window comes in with its zone and nothing lost, and goes out as OpenSLO writes it."""
    text = f"""
apiVersion: openslo/v1
kind: SLO
metadata: {{name: a}}
spec:
  service: s
  budgetingMethod: Occurrences
  timeWindow:
    - duration: {duration}
      isRolling: false
      calendar: {{startTime: "{start} 00:00:00", timeZone: {BERLIN}}}
  indicator:
    metadata: {{name: i}}
    spec:
      ratioMetric:
        counter: true
        bad: {{metricSource: {{type: Prometheus, spec: {{query: 'sum by (model) (e_total)'}}}}}}
        total: {{metricSource: {{type: Prometheus, spec: {{query: 'sum by (model) (t_total)'}}}}}}
  objectives: [{{target: 0.99}}]
"""
    ledger = Ledger()
    entries = [entry for entry in documents("a.yaml", text) if isinstance(entry, Entry)]
    [taken] = openslo.convert(entries, "30d", ledger)

    assert objective("a", kind, BERLIN).window == taken.window
    assert ([], []) == (ledger.mistakes, ledger.losses)


def test_check_warns_before_the_clock_changes_in_the_rules_run_out() -> None:
    """A year before the last known change of a zone's clock; never where the clock is never set."""
    soon = Surroundings(now=LAST.timestamp() - 300 * DAY)
    for zone, now, expected in (
        (BERLIN, soon, 1),
        ("UTC", soon, 0),
        (BERLIN, Surroundings(now=LAST.timestamp() - 400 * DAY), 0),
    ):
        actual = list(lint(objective("o", "month", zone), str, now))
        assert expected == len([warning for warning in actual if "until 2040-01-01" in str(warning)])
