"""Test tickets about a budget for which no burn alert fires: it is nearly spent, or it is spent."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest

from support.promtool import alerting_groups, evaluated, rule_file
from support.tools import promtools, shared_out
from triton_slo import names
from triton_slo.alert_settings.tuning import AlertSetting, Tuning
from triton_slo.artifact import Options
from triton_slo.burn.rule_groups import groups
from triton_slo.generate import artifacts
from triton_slo.indicators import BURN_ALERTS
from triton_slo.objective.model import Objective
from triton_slo.rules.plan import Plan
from triton_slo.rules.rulefile import Group, render

STEP = 1200
"""Seconds between evaluations: coarser than the four minutes of the slow group, for a test in seconds."""
PER_DAY = 86400 // STEP
NEARLY, SPENT = names.NEARLY_SPENT_ALERT, names.SPENT_ALERT
MONTHLY = {"window": {"calendar": "month"}}
BURN = f'ALERTS{{alertname="{BURN_ALERTS["errors"]}",alertstate="firing",tier="ticket_slow",%s}}'


def line(*points: tuple[float, float]) -> str:
    """Values of a series that is straight between (day, value) points; the first day is 0."""
    parts = []
    for (start, value), (end, after) in pairwise(points):
        steps = round((end - start) * PER_DAY)
        parts.append(f"{value:.6f}{(after - value) / steps:+.9f}x{steps - 1}")
    return " ".join(parts)


def between(start: float, end: float) -> str:
    """Return a series that exists from one day to another only."""
    return f"_x{round(start * PER_DAY)} 1x{round((end - start) * PER_DAY)}"


@dataclass(frozen=True)
class Case:
    """What is left of the budget over days, and the days at which a ticket is open, or none is."""

    name: str
    left: str
    open: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    quiet: tuple[float, ...] = ()
    failures: float = 1000
    more: Mapping[str, str] = field(default_factory=dict)
    """Other series by name; those of a group, and then those of the objective."""
    objective: Mapping[str, object] = field(default_factory=dict)

    @property
    def slo(self) -> str:
        """The name of its objective."""
        return re.sub("[^a-z]+", "-", self.name)

    def series(self) -> dict[str, str]:
        """Return what the other rules record."""
        about = f'slo="{self.slo}",indicator="errors"'
        own = f'{about},model="m",version="1"'
        recorded: dict[str, str | float] = {
            f"{names.PERIOD_BUDGET_REMAINING}{{{own}}}": self.left,
            f"{names.ERROR_BUDGET_RATIO}{{{own}}}": 0.01,
        }
        for event, count in (("error", self.failures), ("total", 20 * self.failures)):
            recorded[f'{names.sli_events("30d")}{{{own},event="{event}"}}'] = count / 2_592_000
            recorded[f'{names.PERIOD_EVENTS}{{{own},event="{event}"}}'] = count
        for window in ("30d", "month"):
            recorded[f"{names.sli_error(window)}{{{own}}}"] = 0.05
        recorded |= {
            name % (about if name in ABOUT_ALL else own): values for name, values in self.more.items()
        }
        return {
            name: value if isinstance(value, str) else f"{value}x{7 * PER_DAY}"
            for name, value in recorded.items()
        }


ABOUT_ALL = tuple(f"{name}{{%s}}" for name in (names.PERIOD_START, names.PERIOD_END))
"""Series that an objective has once, for any groups."""


def period(start: float, end: float) -> dict[str, str]:
    """Return a calendar period from one day to another; promtool's clock begins at 0."""
    return {name: f"{86400 * day:g}x{7 * PER_DAY}" for name, day in zip(ABOUT_ALL, (start, end), strict=True)}


LEAK = line((0, 0.4), (7, 0.05))
"""5 % of the budget a day: less than three days are left from the fifth day on."""

CASES = (
    Case("a steady leak", LEAK, {NEARLY: (5.2, 6.9)}, quiet=(3.5, 4.9)),
    Case("the same leak, half of the budget left", line((0, 0.9), (7, 0.55)), quiet=(5.2, 6.9)),
    Case(
        "an incident took most of the rest, and has ended",
        line((0, 0.5), (4, 0.5), (4.02, 0.1), (7, 0.1)),
        quiet=(4.1, 4.5, 5.2, 6.5),
    ),
    Case("old failures leave the window", line((0, -0.3), (7, 0.4)), quiet=(3.5, 5, 6.9)),
    Case("the leak stops", line((0, 0.4), (6, 0.1), (7, 0.1)), {NEARLY: (5.9,)}, quiet=(4.9, 6.9)),
    Case(
        "spent, by failures too rare for a burn alert",
        line((0, 0.5), (2, 0.5), (4, -0.5), (7, -0.5)),
        {SPENT: (3.4, 3.9)},
        quiet=(1, 2.9, 3.2, 5),
    ),
    Case(
        "spent, and a burn alert fired on the way",
        line((0, 0.5), (2, 0.5), (4, -0.5), (7, -0.5)),
        quiet=(3.4, 3.9, 4.3),
        more={BURN: between(2.9, 3.6)},
    ),
    Case(
        "one failure of few requests is more than the budget",
        line((0, 1), (3, 1), (3.01, -4), (7, -4)),
        quiet=(3.4, 4),
        failures=1,
    ),
    Case(
        "spent, and the group is retired",
        line((0, 0.5), (2, 0.5), (4, -0.5), (7, -0.5)),
        quiet=(3.4, 3.9),
        more={
            f"{names.LAST_SEEN}{{%s}}": f"200000x{7 * PER_DAY}",
            f"{names.RETIRED}{{%s}}": f"200000x{7 * PER_DAY}",
        },
    ),
    Case("a leak, and the month is long", LEAK, {NEARLY: (5.2, 6.5)}, more=period(0, 31), objective=MONTHLY),
    Case("a leak, and the month ends before", LEAK, quiet=(5.2, 6.5), more=period(0, 7), objective=MONTHLY),
    Case(
        "the month has just begun",
        line((0, 0.9), (4, 0.8), (7, 0.01)),
        quiet=(6.0, 6.5),
        more=period(4, 35),
        objective=MONTHLY,
    ),
    Case(
        "spent in a month",
        line((0, 0.5), (2, 0.5), (4, -0.5), (7, -0.5)),
        {SPENT: (3.4, 3.9)},
        quiet=(3.1,),
        more=period(0, 31),
        objective=MONTHLY,
    ),
    Case(
        "alerting is off",
        LEAK,
        quiet=(5.2, 6.9),
        objective={"alerting": False},
    ),
)


Tickets = Mapping[float, set[tuple[str, str]]]
"""Day -> objectives and their tickets that are open."""
PLAYED = [(tool, case) for tool, cases in shared_out(CASES).items() for case in cases]


@pytest.fixture(scope="module")
def open_tickets(tmp_path_factory: pytest.TempPathFactory) -> Mapping[Path, Tickets]:
    """Tickets by promtool: its cases are played at once, over a week in real time."""
    return {
        tool: played(tool, cases, tmp_path_factory.mktemp("budget"))
        for tool, cases in shared_out(CASES).items()
    }


def played(tool: Path, cases: Sequence[Case], folder: Path) -> Tickets:
    about = {"target": 0.99, "indicator": "errors", "owner": "team"}
    objectives = [Objective.model_validate({**about, "name": case.slo, **case.objective}) for case in cases]
    rules = [
        rule
        for artifact in artifacts(objectives, Options())
        if artifact.part == "rules"
        for rule in alerting_groups(artifact.text)[-1]["rules"]
        if "alert" in rule
    ]
    days = sorted({day for case in cases for some in (case.quiet, *case.open.values()) for day in some})
    mine = 'alertstate="firing", severity="warning", component="slo", owner="team", tier=""'

    answers = evaluated(
        tool,
        folder,
        rule_file({"slow": rules}),
        {name: values for case in cases for name, values in case.series().items()},
        [(f"group by (slo, alertname) (ALERTS{{{mine}}})", STEP * round(PER_DAY * day)) for day in days],
        interval=STEP,
        evaluation=STEP,
    )
    firing = ({(labels["slo"], labels["alertname"]) for labels, _ in answer} for answer in answers)
    return dict(zip(days, firing, strict=True))


@pytest.mark.real
@pytest.mark.parametrize("binary", promtools(), ids=str)
def test_how_long_the_rest_must_last_is_tuned_by_model(binary: Path, tmp_path: Path) -> None:
    """At 5 % of the budget a day, four and a half days left: a ticket for the model that wants five."""
    setting = AlertSetting.model_validate({"overrides": [{"models": "early", "threshold": 5 * 86400.0}]})
    objective = Objective.model_validate({"name": "x", "target": 0.99, "indicator": "errors"})
    slow = list(groups(Plan(objective, Options(tuning=Tuning({NEARLY: setting})))))[-1]
    tuned = Group("slow", tuple(rule for rule in slow.rules if rule.alert == NEARLY))
    rules = render([tuned], "x", "prometheus")
    series = {
        f'{names.PERIOD_BUDGET_REMAINING}{{slo="x",indicator="errors",model="{model}",version="1"}}': LEAK
        for model in ("early", "late")
    }

    [answer] = evaluated(
        binary,
        tmp_path,
        rules,
        series,
        [('ALERTS{alertstate="firing"}', STEP * round(3.5 * PER_DAY))],
        interval=STEP,
        evaluation=STEP,
    )

    assert ["early"] == [labels["model"] for labels, _ in answer]


@pytest.mark.real
@pytest.mark.parametrize(("tool", "case"), PLAYED, ids=lambda parameter: getattr(parameter, "name", None))
def test_a_ticket_opens_for_what_no_burn_alert_shows(
    open_tickets: Mapping[Path, Tickets], tool: Path, case: Case
) -> None:
    """A warning of the objective's owner, while it is true and some hours longer."""
    for day in (*case.quiet, *(day for days in case.open.values() for day in days)):
        expected = {alert for alert, days in case.open.items() if day in days}

        assert expected == {alert for slo, alert in open_tickets[tool][day] if slo == case.slo}, day
