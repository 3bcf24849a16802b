"""Run incidents and non-incidents as counters through promtool, on our rules and on others' shapes.

A scenario is a list of stretches (minutes, requests a minute, error ratio). Times are minutes from its start.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from slo.slo_shapes import pyrra, sloth
from support.promtool import PAUSED, alerting_groups, at_own_interval, evaluated, pausable, rule_file
from support.tools import promtools
from triton_alerts.generate import artifacts as alert_artifacts
from triton_exporter.catalogue import state, triton
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.generate import artifacts
from triton_slo.objective.model import Objective

STEP = 30
"""Seconds between scrapes and between evaluations."""
OBJECTIVE = Objective.model_validate(
    {
        "name": "errors",
        "target": "99.9%",
        "indicator": "errors",
        "owner": "team",
        "description": "No failures.",
    }
)
Stretch = tuple[float, float, float]


@dataclass(frozen=True)
class Scenario:
    """What happens, when the incidents are (start, end), and what is expected: page, ticket or nothing."""

    name: str
    stretches: tuple[Stretch, ...] = ()
    incidents: tuple[tuple[float, float], ...] = ()
    expected: str = "page"
    series: tuple[tuple[str, str], ...] = ()
    length: float = 0
    true_ratio: float | None = None
    paused: tuple[tuple[float, float], ...] = ()
    """Minutes in which no rule is evaluated."""
    minutes: float = field(init=False)

    def __post_init__(self) -> None:
        total = self.length or sum(minutes for minutes, *_ in self.stretches)
        object.__setattr__(self, "minutes", total)

    def all_series(self) -> tuple[tuple[str, str], ...]:
        """promtool's input series."""
        return self.series or traffic(self.stretches)


def series(metric: object, model: str = "m", **extra: str) -> str:
    """One of Triton's series."""
    labels = {"model": model, "version": "1", "instance": "a", **extra}
    return f"{metric}{{" + ", ".join(f'{k}="{v}"' for k, v in labels.items()) + "}"


def traffic(stretches: Sequence[Stretch], model: str = "m", **extra: str) -> tuple[tuple[str, str], ...]:
    """Success and failure counters of a model."""
    good = [(minutes, rate * (1 - ratio)) for minutes, rate, ratio in stretches]
    bad = [(minutes, rate * ratio) for minutes, rate, ratio in stretches]
    return (
        (series(triton.REQUEST_SUCCESS, model, **extra), counter(good)),
        (series(triton.REQUEST_FAILURE, model, reason="BACKEND", **extra), counter(bad)),
    )


def counter(stretches: Sequence[tuple[float, float]], start: float = 0.0) -> str:
    """Return a counter from (minutes, increase a minute)."""
    parts, value = [], start
    for minutes, rate in stretches:
        scrapes, step = round(minutes * 60 / STEP), rate * STEP / 60
        parts.append(f"{value:.6f}+{step:.6f}x{scrapes - 1}")
        value += scrapes * step
    return " ".join(parts)


def rare(every_minutes: int, total: int, failures: frozenset[int]) -> tuple[tuple[str, str], ...]:
    """One request each so many minutes; some of them fail."""
    steps = every_minutes * 60 // STEP
    good, bad, g, b = [], [], 0, 0
    for number in range(total):
        g, b = (g, b + 1) if number in failures else (g + 1, b)
        good.append(f"{g}+0x{steps - 1}")
        bad.append(f"{b}+0x{steps - 1}")
    return (
        (series(triton.REQUEST_SUCCESS), " ".join(good)),
        (series(triton.REQUEST_FAILURE, reason="BACKEND"), " ".join(bad)),
    )


def _ends(stretches: Sequence[Stretch], gone: int, model: str = "m") -> tuple[tuple[str, str], ...]:
    """Return traffic of a model that ends with its server, where it should have been served."""
    expected = (series(state.MODEL_EXPECTED, model), f"1x{round(stretches[0][0] * 60 / STEP) - 1}")
    return tuple(
        (name, f"{values} stale _x{gone}") for name, values in (*traffic(stretches, model), expected)
    )


_OK = (60.0, 1000.0, 0.0)
_CALM = (240.0, 1000.0, 0.0)
FACTS = (
    Scenario("3 min total outage", (_OK, (3, 1000, 1.0), _CALM), ((60, 63),)),
    Scenario("30 min at 10 %", (_OK, (30, 1000, 0.1), _CALM), ((60, 90),)),
    Scenario("60 min at 2 %", (_OK, (60, 1000, 0.02), _CALM), ((60, 120),)),
    Scenario("10 h at 0.8 %", (_OK, (600, 1000, 0.008), (360, 1000, 0)), ((60, 660),)),
    Scenario("10 requests an hour, one fails", (), (), "nothing", rare(6, 100, frozenset({20})), 600),
    Scenario(
        "idle for 30 min, then healthy",
        ((60, 1000, 0), (30, 0, 0), (60, 1000, 0)),
        (),
        "nothing",
        true_ratio=0,
    ),
    Scenario("the only model vanishes for 8 h", (), ((60, 540),), "unknown", _ends((_OK,), 960), 540),
    Scenario(
        "one of two models vanishes",
        (),
        ((60, 300),),
        "unknown",
        (*_ends((_OK,), 480), *traffic((_OK, _CALM), "other", instance="b")),
        300,
    ),
    Scenario(
        "a night hour at 1 a minute, half failing; days of 1000 a minute",
        ((60, 1, 0.5), (1380, 1000, 0), (60, 1, 0.5), (1380, 1000, 0)),
        (),
        "budget",
        true_ratio=60 / (2 * 60 + 2 * 1_380_000),
    ),
    Scenario(
        "no failure was ever counted",
        (),
        (),
        "nothing",
        ((series(triton.REQUEST_SUCCESS), counter(((180, 1000),))),),
        180,
        0,
    ),
    Scenario(
        "bursts: 1 bad minute of 10, 20 %, 10 h",
        (_OK, *((1, 1000, 0.2), (9, 1000, 0.0)) * 60, (180, 1000, 0)),
        ((60, 660),),
    ),
)


def _reset(at: float, after: float) -> str:
    return f"{counter(((at, 1000),), 5e6)} {counter(((after, 1000),))}"


OWN = (
    Scenario("1 min total outage", (_OK, (1, 1000, 1.0), _CALM), ((60, 61),)),
    # Young windows know only what there is: 500 failures in six hours are 0.14 %, over the slowest ticket's 0.1 %.
    Scenario(
        "30 s at 100 % in a history of six hours",
        ((380, 1000, 0), (0.5, 1000, 1.0), _OK),
        ((380, 380.5),),
        "ticket",
    ),
    Scenario("30 s at 50 %: under every threshold", ((380, 1000, 0), (0.5, 1000, 0.5), _OK), (), "nothing"),
    Scenario(
        "restart: the counters begin again",
        (),
        (),
        "nothing",
        (
            (series(triton.REQUEST_SUCCESS), _reset(60, 120)),
            (series(triton.REQUEST_FAILURE, reason="BACKEND"), f"70+0x{120 - 1} 0+0x{240 - 1}"),
        ),
        180,
        0,
    ),
    Scenario(
        "a replica joins with a history of failures",
        (),
        (),
        "nothing",
        (
            *traffic((_OK, (120, 1000, 0))),
            (series(triton.REQUEST_SUCCESS, instance="b"), f"_x{120} {counter(((120, 1000),), 9e6)}"),
            (series(triton.REQUEST_FAILURE, instance="b", reason="BACKEND"), f"_x{120} 90000+0x{240 - 1}"),
        ),
        180,
        0,
    ),
    Scenario(
        "a replica leaves, the other serves on",
        (),
        (),
        "nothing",
        (
            *traffic((_OK, (120, 1000, 0))),
            (series(state.MODEL_EXPECTED), "1x360"),
            *((n.replace('"a"', '"b"'), v) for n, v in _ends((_OK,), 240)),
        ),
        180,
        0,
    ),
    Scenario("total outage until no client is left", (_OK, (20, 1000, 1.0), (180, 0, 0)), ((60, 80),)),
    Scenario(
        "ramp from 0 to 5 % in 2 h",
        (_OK, *((10, 1000, 0.05 * n / 12) for n in range(1, 13)), _CALM),
        ((60, 180),),
    ),
    Scenario(
        "total outage at one request a minute",
        (),
        ((60, 120),),
        "page",
        rare(1, 360, frozenset(range(60, 120))),
        360,
    ),
    Scenario(
        "two outages two hours apart",
        (_OK, (10, 1000, 1.0), (120, 1000, 0), (10, 1000, 1.0), _CALM),
        ((60, 70), (190, 200)),
    ),
    Scenario(
        "45 min at 50 %, 100 requests a minute, 1 in 3,000 fails all day",
        ((120, 100, 0.0003), (45, 100, 0.5), (300, 100, 0.0003)),
        ((120, 165),),
    ),
    Scenario(
        "two outages 15 min apart",
        (_OK, (10, 1000, 1.0), (15, 1000, 0), (10, 1000, 1.0), _CALM),
        ((60, 70), (85, 95)),
    ),
    Scenario(
        "total outage of 10 min, then 3 % for an hour",
        (_OK, (10, 1000, 1.0), (60, 1000, 0.03), _CALM),
        ((60, 130),),
    ),
    Scenario("half of the budget's pace for 10 h", (_OK, (600, 1000, 0.0005)), (), "nothing"),
    Scenario(
        "twice the budget's pace for 10 h", (_OK, (600, 1000, 0.002), (400, 1000, 0)), ((60, 660),), "ticket"
    ),
    Scenario(
        "clients cancel half of their requests",
        (),
        (),
        "nothing",
        (
            *traffic((_OK, (120, 500, 0))),
            (series(triton.REQUEST_FAILURE, reason="CANCELED"), f"0+0x{120 - 1} 0+250x{240 - 1}"),
        ),
        180,
        0,
    ),
)


def _down(stretches: Sequence[Stretch], start: float, end: float) -> tuple[tuple[str, str], ...]:
    """Traffic that goes on where nothing is scraped."""
    counters = []
    for (name, _), failed in zip(traffic(stretches), (False, True), strict=True):
        values: list[str] = []
        grown = 0.0
        for minutes, rate, ratio in stretches:
            for _ in range(round(minutes * 60 / STEP)):
                scraped = not start <= len(values) * STEP / 60 < end
                values.append(f"{grown:.6f}" if scraped else "_")
                grown += rate * (ratio if failed else 1 - ratio) * STEP / 60
        counters.append((name, " ".join(values)))
    return tuple(counters)


_BUSY_DAY = ((360, 60_000, 0), (270, 60, 0.008))
"""A thousand requests a second until 18:00, then one, of which 0.8 % fail: too little to matter."""
PAUSES = (
    Scenario("a busy day, a quiet evening at 0.8 %", _BUSY_DAY, (), "nothing", true_ratio=129.6 / 21_616_200),
    Scenario(
        "the same, and no rule is evaluated for 10 min about 18:00",
        _BUSY_DAY,
        (),
        "nothing",
        true_ratio=129.6 / 21_616_200,
        paused=((355, 365),),
    ),
    Scenario(
        "the same, and Prometheus is down for an hour about 18:00",
        (),
        (),
        "nothing",
        _down(_BUSY_DAY, 330, 390),
        630,
        129.6 / 21_616_200,
        ((330, 390),),
    ),
    Scenario(
        "30 min at 10 %, in which Prometheus is down for 10 min",
        (),
        ((60, 70), (80, 90)),
        "page",
        _down((_OK, (30, 1000, 0.1), _CALM), 70, 80),
        330,
        3000 / 330_000,
        ((70, 80),),
    ),
)


@dataclass(frozen=True)
class Outcome:
    """What an engine did: page episodes and ticket episodes as (first, last) minute, and the budget it shows."""

    pages: tuple[tuple[float, float], ...]
    tickets: tuple[tuple[float, float], ...]
    budget: float | None


def engines() -> dict[str, tuple[str, str]]:
    """Engine -> (rule file, name of its budget series)."""
    (ours,) = (
        artifact.text
        for artifact in artifacts((OBJECTIVE,), Options(scrape_interval_seconds=STEP))
        if artifact.part == "rules" and artifact.name == "slo-errors.yml"
    )
    return {
        "tritonwatch": (ours, names.PERIOD_BUDGET_REMAINING),
        "Sloth": (sloth(), "sloth:budget_remaining"),
        "Pyrra": (pyrra(), "pyrra:budget_remaining"),
    }


def run(engine: str, scenarios: Sequence[Scenario], every: int = STEP) -> list[Outcome]:
    """Let promtool play the scenarios on an engine's rules, which are evaluated every so many seconds.

    They are played at once, each on models of its own: all engines group by model. Only a scenario in which models
    vanish is alone, since absent() sees them all.
    """
    if len(scenarios) > 1 and any(scenario.expected == "unknown" for scenario in scenarios):
        others = iter(run(engine, [one for one in scenarios if one.expected != "unknown"], every))
        return [
            run(engine, [one], every)[0] if one.expected == "unknown" else next(others) for one in scenarios
        ]
    text, budget = engines()[engine]
    groups = alerting_groups(text, budget) if engine == "tritonwatch" else yaml.safe_load(text)["groups"]
    rules = {group["name"]: at_own_interval(group, every) for group in groups}
    if engine == "tritonwatch":
        rules |= _unknown_rules()
    if any(scenario.paused for scenario in scenarios):
        rules = {name: pausable(group, by="model") for name, group in rules.items()}
    played = list(enumerate(scenarios))
    series = {name: values for scenario in played for name, values in _series(*scenario)}
    asked = [question for scenario in played for question in _questions(*scenario, budget)]
    with tempfile.TemporaryDirectory() as folder:
        place, text = Path(folder), rule_file(rules)
        tool, times = promtools()[-1], {"interval": STEP, "evaluation": every, "timeout": 3000}
        answers = iter(evaluated(tool, place, text, series, asked, **times))
    outcomes = []
    for scenario in scenarios:
        grid = [
            {labels.get("severity", "") for labels, _ in next(answers)}
            for _ in range(int(scenario.minutes) + 1)
        ]
        pages, tickets = (tuple(_episodes(grid, severity)) for severity in ("critical", "warning"))
        outcomes.append(Outcome(pages, tickets, next((value for _, value in next(answers)), None)))
    return outcomes


def _unknown_rules() -> dict[str, list[dict[str, Any]]]:
    """Return the rules that notice a model without a server."""
    options = Options(scrape_interval_seconds=STEP)
    [text] = [made.text for made in alert_artifacts((), options) if made.name == "triton-unknown.yml"]
    return {
        group["name"]: [
            {key: value for key, value in rule.items() if key != "annotations"} for rule in group["rules"]
        ]
        for group in yaml.safe_load(text)["groups"]
    }


def _series(number: int, scenario: Scenario) -> Iterator[tuple[str, str]]:
    """Yield the scenario's series, its models renamed, and whether each model's rules are paused."""
    models = set()
    for name, values in scenario.all_series():
        own = name.replace('model="', f'model="{number} ').replace('instance="', f'instance="{number} ')
        models |= set(re.findall('model="([^"]*)"', own))
        yield own, values
    for model in sorted(models):
        yield f'{PAUSED}{{model="{model}"}}', _paused(scenario)


def _questions(number: int, scenario: Scenario, budget: str) -> Iterator[tuple[str, int]]:
    """Yield what fires, minute by minute, and at the end the budget."""
    own = f'model=~"{number} .+"'
    # An alert without a model is one of absent().
    firing = f'group by (severity) (ALERTS{{alertstate="firing", model=~"({number} .+)?"}})'
    for minute in range(int(scenario.minutes) + 1):
        yield firing, minute * 60
    yield f"max({budget}{{{own}}})", round(scenario.minutes * 60) - STEP


def _paused(scenario: Scenario) -> str:
    minutes = [at * STEP / 60 for at in range(round(scenario.minutes * 60 / STEP))]
    return " ".join(str(int(any(start <= at < end for start, end in scenario.paused))) for at in minutes)


def _episodes(grid: Sequence[set[str]], severity: str) -> Iterator[tuple[float, float]]:
    """First and last minute of each stretch of minutes in which an alert of this severity fires."""
    began: int | None = None
    for minute, firing in enumerate((*grid, set())):
        if severity in firing and began is None:
            began = minute
        elif severity not in firing and began is not None:
            yield began, minute - 1
            began = None
