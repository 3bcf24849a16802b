"""Test unknown time that counts as failed: its weight, what it never touches, and where it is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import yaml

from support.promtool import evaluated, recording_rules_for, rule_file
from support.tools import promtools
from triton_exporter.catalogue import probe, state, triton
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.backtest.generated_policy import replayed
from triton_slo.backtest.history import History
from triton_slo.backtest.policy_run import run_policy
from triton_slo.generate import artifacts
from triton_slo.objective.model import Objective
from triton_slo.objective.reading import read

SCRAPE = 30
OPTIONS = Options(scrape_interval_seconds=SCRAPE)
AFTER = 15
"""Minutes until a group without data is called unknown: 30 scrapes."""


def objective(kind: str) -> Objective:
    """One with the policy."""
    return Objective.model_validate(
        {"name": "o", "target": "99%", "indicator": kind, "unknown": {"policy": "bad"}}
    )


def ask(
    tool: Path, folder: Path, kind: str, series: Mapping[str, str], *asked: tuple[str, float]
) -> list[list[float]]:
    """Return what the generated rules have recorded after so many minutes: values of each query."""
    [text] = [
        artifact.text for artifact in artifacts([objective(kind)], OPTIONS) if artifact.name == "slo-o.yml"
    ]
    if all(named := [re.findall(r"slo:[\w:]+", query) for query, _ in asked]):
        rules = [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]
        text = rule_file({"o": recording_rules_for(rules, *chain.from_iterable(named))})
    queries = [(query, minutes * 60) for query, minutes in asked]
    answers = evaluated(tool, folder, text, series, queries, interval=SCRAPE, evaluation=SCRAPE)
    return [[value for _, value in answer] for answer in answers]


def events(model: str, event: str) -> str:
    """Return a model's failed or all seconds of the last hour, in minutes."""
    return f'{names.sli_events("1h")}{{model="{model}", {names.EVENT}="{event}"}} * 60'


def scrapes(minutes: float) -> int:
    """How many scrapes are in so many minutes."""
    return round(minutes * 60 / SCRAPE)


def readiness(model: str, up: float, gone: float, back: float = 0, servers: int = 2) -> dict[str, str]:
    """Servers that show a ready model for `up` minutes, nothing for `gone` minutes, and then it again."""

    values = f"1x{scrapes(up)}"
    if gone:
        values += f" stale _x{scrapes(gone) - 1}"
    if back:
        values += f" 1x{scrapes(back)}"
    written: dict[str, str] = {}
    for number in range(servers):
        who = f'instance="{model}-{number}", model="{model}"'
        written[f'{state.MODEL_READY}{{{who}, version="1"}}'] = values
        written[f'{state.MODEL_STATE}{{{who}, version="1", state="ready"}}'] = values
        written[f"{state.MODEL_EXPECTED}{{{who}}}"] = values
    return written


GONE = {
    "back before it is called unknown": (8, 2, 0),
    "gone and back": (25, 20, 10),
    "gone for most of the hour": (59, 0, 44),
}
"""Minutes that a model is gone and back, and how many of them are unknown."""


@pytest.mark.real
@pytest.mark.parametrize("tool", promtools(), ids=str)
def test_unknown_time_weighs_what_the_group_weighed(tmp_path: Path, tool: Path) -> None:
    """Two servers' seconds before, two failed events for each second of not knowing."""
    series: dict[str, str] = {}
    asked = []
    for model, (gone, back, _) in GONE.items():
        series |= readiness(model, 70, gone, back)
        asked += [(events(model, event), 70 + gone + back) for event in (names.ERROR, names.TOTAL)]

    answers = iter(ask(tool, tmp_path, "readiness", series, *asked))

    for model, (gone, _, bad) in GONE.items():
        assert [pytest.approx(2 * bad, abs=2 * 1.2)] == next(answers), model
        assert [pytest.approx(2 * (60 - gone + bad), abs=2 * 1.2)] == next(answers), model


@pytest.mark.real
def test_a_silent_prober_fails_at_its_own_pace(tmp_path: Path) -> None:
    """Two probes a minute are missed at two a minute, once there was none for a while."""
    result = f'{probe.REQUESTS}{{model="m", version="1", result="success"}}'
    series = {result: f"0+1x{scrapes(70)} {scrapes(70)}x{scrapes(40)}"}

    [[failed]] = ask(promtools()[-1], tmp_path, "probe", series, (events("m", names.ERROR), 110))

    assert pytest.approx(2 / 60 * (40 - AFTER), rel=0.06) == failed


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[float]]:
    """Return what all rules record of four models at once, each of which goes through something else."""
    series = readiness("gone", 70, 59) | readiness("back", 60, 30, 30)

    series |= readiness("stuck", 60, 69)
    who = 'instance="stuck-0", model="stuck", version="1"'
    series[f"{triton.PENDING_REQUESTS}{{{who}}}"] = f"3x{scrapes(60)}"
    series[f"{triton.REQUEST_SUCCESS}{{{who}}}"] = f"0+10x{scrapes(30)} {10 * scrapes(30)}x{scrapes(30)}"

    series |= readiness("unloaded", 60, 60, servers=1)
    who = 'instance="unloaded-0", model="unloaded", version="1"'
    series[f'{state.MODEL_STATE}{{{who}, state="unloaded"}}'] = f"_x{scrapes(60)} 1x{scrapes(60)}"

    firing = 'ALERTS{alertstate="firing", tier="page_fast", model="gone"}'
    asked = {
        "gone": (f"min(min_over_time(timestamp({firing})[2h:{SCRAPE}s]))", 129),
        "stuck": (f'{names.sli_error("30m")}{{model="stuck"}}', 60),
        "unloaded": (events("unloaded", names.ERROR), 120),
        "everything": ('sum_over_time(sum({__name__=~"slo:.+"})[2h:150s])', 120),
    }
    given = ask(promtools()[-1], tmp_path_factory.mktemp("o"), "readiness", series, *asked.values())
    return dict(zip(asked, given, strict=True))


@pytest.mark.real
def test_a_stuck_model_is_not_ready_though_it_reports_ready(answers: Mapping[str, list[float]]) -> None:
    """Requests wait, no counter moves, and Triton reports ready."""
    assert [pytest.approx(15 / 30, abs=0.03)] == answers["stuck"]


@pytest.mark.real
def test_a_replay_pages_when_the_rules_page(answers: Mapping[str, list[float]]) -> None:
    """For unknown time, within two evaluations."""
    times = (np.arange(scrapes(129)) + 1.0) * SCRAPE
    total = np.where(times <= 70 * 60, 2.0 * SCRAPE, np.nan)[None]
    history = History((("o", "gone", "1"),), times, total * 0.0, total)
    episodes = run_policy(history, replayed(objective("readiness"), OPTIONS).policy, [0.99])

    (paged,) = [episode.started for episode in episodes if episode.alert == "page_fast"]
    assert [pytest.approx(paged, abs=2 * SCRAPE)] == answers["gone"]


@pytest.mark.real
def test_what_was_unloaded_on_purpose_is_not_bad(answers: Mapping[str, list[float]]) -> None:
    """Such a model need not serve."""
    assert [0.0] == answers["unloaded"]


@pytest.mark.real
def test_no_rule_records_nan(answers: Mapping[str, list[float]]) -> None:
    """Before, while and after it is unknown."""
    [count] = answers["everything"]
    assert count > 0


@pytest.mark.parametrize(
    "indicator",
    [
        "errors",
        {"kind": "latency", "threshold": "1s"},
        {"kind": "queue", "threshold": "100ms", "source": "slices"},
        {"kind": "first_response", "threshold": "1s"},
        {"kind": "custom", "error_ratio": "rate(a[{{window}}])"},
    ],
    ids=str,
)
def test_events_that_nobody_saw_are_not_made_up(indicator: object) -> None:
    """How many requests a model would have had is not known; the message names what to do instead."""
    text = yaml.safe_dump(
        {"name": "o", "target": "99%", "indicator": indicator, "unknown": {"policy": "bad"}}
    )
    (printed,) = read([("o.yaml", text)]).problems

    assert "unknown.policy bad is for readiness and probe" in str(printed)
    assert "use alert here, and bad in a readiness objective" in str(printed)
