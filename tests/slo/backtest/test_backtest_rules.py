"""Test that the replay of our own policy fires when the generated rules fire in a real rule engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

from support.promtool import alerting_rule_file, evaluated
from support.thorough import THOROUGH
from support.tools import promtools
from triton_exporter.catalogue import state, triton
from triton_slo.artifact import Options
from triton_slo.backtest.history import History, Matrix
from triton_slo.backtest.replay import Replayed
from triton_slo.generate import artifacts
from triton_slo.indicators import BURN_ALERTS
from triton_slo.objective.model import Objective

ERRORS = Objective(name="errors", target=0.999, indicator="errors")
LATENCY = Objective.model_validate(
    {"name": "latency", "target": 0.99, "indicator": {"kind": "latency", "threshold": "500ms"}}
)
OPTIONS = Options(scrape_interval_seconds=15)
CLEAN, AFTER = 60, 210
"""Minutes before and after the incident."""


Firing = dict[tuple[str, str], tuple[int, int, int]]
"""By model and tier: the first and the last minute of firing, and how many minutes it fired."""

RATE = 600
"""Requests a minute."""


def incident(shares: Sequence[float]) -> list[int]:
    """Failures each minute: none, then these shares of all requests, then none."""
    return [0] * CLEAN + [round(share * RATE) for share in shares] + [0] * (CLEAN + AFTER - len(shares))


HISTORIES = {
    "3 min total outage": incident([1.0] * 3),
    "bursts: 1 bad minute in 10": incident(([0.2] + [0.0] * 9) * 12),
    "2 h at 1%": incident([0.01] * 120),
    "25 min at 20%, and few failures later": incident([0.2] * 25 + [0.0] * 10 + [0.005] * 19),
}


def random_history(random: np.random.Generator, worse: float = 1.0) -> list[int]:
    """Failures each minute: rare ones all the time, and outages, bursts and slow burning on top."""
    share = np.full(2 * CLEAN + AFTER, random.choice([0.0, 0.0002, 0.0005]))
    for _ in range(random.integers(1, 4)):
        start, length = random.integers(CLEAN, CLEAN + AFTER), random.integers(1, 90)
        share[start : start + length] = min(1.0, worse * random.choice([0.005, 0.02, 0.1, 1.0]))
        if random.random() < 0.3:
            share[start : start + length : 7] = 0
    return [int(failed) for failed in random.binomial(RATE, share)]


def counter(increments: Sequence[int]) -> str:
    """Return a counter as promtool writes it, with one term for each run of equal increments."""
    terms, value = ["0"], 0
    for increment, run in groupby(increments):
        count = len(list(run))
        terms.append(f"{value + increment}+{increment}x{count - 1}")
        value += increment * count
    return " ".join(terms)


def failed(histories: Mapping[str, Sequence[int]], rate: int = RATE) -> dict[str, str]:
    """Counters of failed requests, `rate` of all requests at each sample."""
    series = {}
    for model, failures in histories.items():
        labels = f'model="{model}", version="1"'
        series[f"{triton.REQUEST_SUCCESS}{{{labels}}}"] = counter([rate - bad for bad in failures])
        series[f'{triton.REQUEST_FAILURE}{{{labels}, reason="BACKEND"}}'] = counter(failures)
    return series


def estimated(histories: Mapping[str, Sequence[int]], errors: Mapping[str, Matrix]) -> dict[str, str]:
    """Histograms of slow requests, and each minute's stated error."""
    series = {}
    for model, failures in histories.items():
        labels = f'model="{model}", version="1"'
        series[f"{state.REQUEST_DURATION.count}{{{labels}}}"] = counter([RATE] * len(failures))
        bucket = f'{state.REQUEST_DURATION.bucket}{{{labels}, le="0.5"}}'
        series[bucket] = counter([RATE - bad for bad in failures])
        stated = f'{state.DISTRIBUTION_ERROR}{{{labels}, signal="request", le="0.5"}}'
        series[stated] = " ".join(
            "_" if np.isnan(error) else f"{error:g}" for error in (np.nan, *errors[model])
        )
    return series


def fired_in_promtool(
    objective: Objective, series: Mapping[str, str], minutes: int, folder: Path, every: float = 60
) -> Firing:
    """When the generated rules fired, evaluated and scraped `every` so many seconds."""
    name = f"slo-{objective.name}.yml"
    [rules] = [artifact.text for artifact in artifacts([objective], OPTIONS) if artifact.name == name]
    alert = BURN_ALERTS[objective.indicator.kind]
    groups = alerting_rule_file(rules, only=alert)
    firing = f'ALERTS{{alertstate="firing", alertname="{alert}"}}'
    span = f"[{minutes}m:{every:g}s]"
    questions = (
        f"min by (model, tier) (min_over_time(timestamp({firing}){span})) / 60",
        f"max by (model, tier) (max_over_time(timestamp({firing}){span})) / 60",
        f"sum by (model, tier) (count_over_time({firing}{span})) * {every / 60:g}",
    )
    asked = [(question, 60.0 * minutes) for question in questions]
    # Prometheus 3 leaves out the sample at the start of a range, which here is there for every range.
    answers = evaluated(promtools()[0], folder, groups, series, asked, interval=every, evaluation=every)
    first, last, count = (
        {(labels["model"], labels["tier"]): int(value) for labels, value in answer} for answer in answers
    )
    return {key: (first[key], last[key], count[key]) for key in first}


def fired_in_replay(
    objective: Objective, histories: Mapping[str, Sequence[int]], errors: Mapping[str, Matrix] | None = None
) -> Firing:
    """When the replay fired; promtool has no inhibition, so the replay has none here."""
    failures = np.array(list(histories.values()), dtype=float)
    minutes = np.arange(1, failures.shape[1] + 1)
    keys = tuple((objective.name, model, "1") for model in histories)
    stated = None if errors is None else np.array([errors[model] for model in histories])
    history = History(keys, 60.0 * minutes, failures, np.full(failures.shape, RATE), stated)
    spans_of: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for episode in Replayed(objective, OPTIONS, inhibits=False).episodes(history):
        ended = episode.ended or 60.0 * (len(minutes) + 1)
        key = (episode.key[1], episode.alert)
        spans_of.setdefault(key, []).append((int(episode.started / 60), int(ended / 60) - 1))
    return {
        key: (spans[0][0], spans[-1][1], sum(last - first + 1 for first, last in spans))
        for key, spans in spans_of.items()
    }


@pytest.mark.real
def test_a_replay_fires_when_the_generated_rules_fire(tmp_path: Path) -> None:
    """Every tier's first minute, last minute and number of minutes firing agree within two, for any failures."""
    random = np.random.default_rng(20)
    models = [f"m{number}" for number in range(24 if THOROUGH else 5)]
    histories = HISTORIES | {model: random_history(random) for model in models}
    minutes = max(map(len, histories.values()))
    real = fired_in_promtool(ERRORS, failed(histories), minutes, tmp_path)
    ours = fired_in_replay(ERRORS, histories)

    assert set(HISTORIES) <= {model for model, _ in real}
    assert {tier for model, tier in real if model in models} == {tier.name for tier in ERRORS.alerting.tiers}
    assert set(real) == set(ours)
    for key, fired in real.items():
        assert pytest.approx(fired, abs=2) == ours[key], key


@pytest.mark.real
@pytest.mark.thorough
def test_a_replay_misses_no_alert_of_rules_that_are_evaluated_twice_a_step(tmp_path: Path) -> None:
    """The replay dates each alert within two minutes; only alerts shorter than three may be missing."""
    random = np.random.default_rng(5)
    objective = Objective.model_validate(
        {"name": "errors", "target": "98%", "window": "7d", "indicator": "errors"}
    )
    share = np.full(2 * (CLEAN + AFTER), 0.005)
    share[2 * 133 : 2 * 138], share[2 * 167 : 2 * 233] = 1.0, 0.08
    shares = {"outage, then 8%": share, "less traffic": np.where(share == 0.08, 0.15, share)}
    for start, length, much in ((100, 6, 0.5), (130, 5, 0.5), (150, 20, 0.3), (200, 50, 0.15)):
        shares.setdefault("bursts", np.full(len(share), 0.001))[2 * start : 2 * (start + length)] = much
    halves = {model: random.binomial(RATE // 2, each).tolist() for model, each in shares.items()}
    minutes = len(share) // 2
    real = fired_in_promtool(objective, failed(halves, RATE // 2), minutes, tmp_path, every=30)
    ours = fired_in_replay(
        objective,
        {
            model: [sum(each[at : at + 2]) for at in range(1, len(each) - 1, 2)]
            for model, each in halves.items()
        },
    )
    assert {"page_fast", "page_slow"} < {tier for _, tier in real}
    assert {key for key, (*_, lasted) in real.items() if lasted >= 3} <= set(ours)
    for key in set(real) & set(ours):
        assert pytest.approx(real[key], abs=2) == ours[key], key


def random_errors(random: np.random.Generator) -> Matrix:
    """Each minute's stated error: unknown or another every so often, and now and then unknown for minutes."""
    errors = np.empty(2 * CLEAN + AFTER)
    for start in range(0, len(errors), 40):
        errors[start : start + 40] = random.choice([0.0, 0.003, 0.01, 0.03, 0.1, np.nan])
    errors[random.random(len(errors)) < 0.05] = np.nan
    return errors


@pytest.mark.real
def test_a_replay_asks_for_the_error_of_an_estimate_as_the_rules_do(tmp_path: Path) -> None:
    """The error of an estimate delays pages in some histories, at the same minutes as in the rules."""
    random = np.random.default_rng(21)
    models = [f"m{number}" for number in range(24 if THOROUGH else 5)]
    histories = {model: random_history(random, 10.0) for model in models}
    errors = {model: random_errors(random) for model in models}
    histories["held"] = incident([0.2] * 120)
    errors["held"] = np.full(2 * CLEAN + AFTER, 0.15)
    minutes = max(map(len, histories.values()))
    real = fired_in_promtool(LATENCY, estimated(histories, errors), minutes, tmp_path)
    ours = fired_in_replay(LATENCY, histories, errors)

    assert set(real) == set(ours)
    for key, real_spans in real.items():
        assert pytest.approx(real_spans, abs=2) == ours[key], key
    certain = fired_in_replay(LATENCY, histories)
    changed = {
        tier for (model, tier), certain_spans in certain.items() if ours.get((model, tier)) != certain_spans
    }
    assert {"page_fast", "page_slow"} == changed


def random_outages(random: np.random.Generator, steps: int) -> list[int]:
    """How many of three servers are not ready at each half minute: outages of a few minutes to hours."""
    down = np.zeros(steps, dtype=int)
    for _ in range(random.integers(1, 5)):
        start, length = random.integers(60, steps - 60), random.choice([1, 4, 20, 90])
        down[start : start + length] = random.integers(1, 4)
    return [int(each) for each in down]


@pytest.mark.real
def test_a_replay_of_readiness_fires_when_the_generated_rules_fire(tmp_path: Path) -> None:
    """Pages of the present and tickets of ten minutes, for any outages of three servers."""
    random, steps = np.random.default_rng(22), 700
    outages = {f"m{number}": random_outages(random, steps) for number in range(24 if THOROUGH else 1)}
    outages["all down"] = [0] * 200 + [3] * 60 + [0] * (steps - 260)
    outages["one down"] = [0] * 200 + [1] * 60 + [0] * (steps - 260)
    series = {}
    for model, down in outages.items():
        for server in range(3):
            labels = f'model="{model}", instance="s{server}", job="exporter"'
            ready = [int(each <= server) for each in down]
            version = f'{labels}, version="1"'
            series[f"{state.MODEL_READY}{{{version}}}"] = " ".join(map(str, ready))
            series[f'{state.MODEL_STATE}{{{version}, state="ready"}}'] = " ".join(map(str, ready))
            unavailable = " ".join(str(1 - each) for each in ready)
            series[f'{state.MODEL_STATE}{{{version}, state="unavailable"}}'] = unavailable
            series[f"{state.MODEL_EXPECTED}{{{labels}}}"] = f"1x{steps}"
    objective = Objective(name="readiness", target=0.999, indicator="readiness")
    real = fired_in_promtool(objective, series, steps // 2, tmp_path, every=30)
    bad = 30.0 * np.array(list(outages.values()))
    keys = tuple(("readiness", model, "") for model in outages)
    history = History(keys, 30.0 * np.arange(steps), bad, np.full(bad.shape, 90.0))
    ours: dict[tuple[str, str], list[float]] = {}
    for episode in Replayed(objective, OPTIONS, inhibits=False).episodes(history):
        minutes = ours.setdefault((episode.key[1], episode.alert), [])
        minutes += [episode.started / 60, min(episode.ended or np.inf, 30.0 * steps) / 60]

    assert {("all down", "page_fast"), ("one down", "ticket_fast")} <= set(real)
    assert ("one down", "page_fast") not in real
    assert set(real) == set(ours)
    for key, (first, last, lasted) in real.items():
        spans = ours[key]
        assert pytest.approx((spans[0], spans[-1]), abs=2) == (first, last), key
        assert pytest.approx(sum(spans[1::2]) - sum(spans[::2]), abs=3) == lasted, key


def test_noise_after_incidents_raises_few_tickets() -> None:
    """With rare failures all the time, remnants in long windows do not make tickets come and go for days."""
    random, models, steps = np.random.default_rng(3), 40, 10 * 1440
    rhythm = 600 + 500 * np.sin(np.arange(steps) / 1440 * 2 * np.pi)
    total = random.poisson(rhythm, (models, steps)).astype(float)
    bad = random.binomial(total.astype(int), 0.0003).astype(float)
    for row, start in enumerate(random.integers(3 * 1440, 6 * 1440, models // 2)):
        bad[row, start : start + 45] = total[row, start : start + 45] * 0.5
    keys = tuple(("errors", f"m{row}", "1") for row in range(models))
    history = History(keys, 60.0 * np.arange(1, steps + 1), bad, total)

    episodes = list(Replayed(ERRORS, OPTIONS).episodes(history))
    pages = [episode.key[1] for episode in episodes if episode.severity == "page"]
    tickets = [episode for episode in episodes if episode.severity == "ticket"]
    assert {f"m{row}" for row in range(models // 2)} == set(pages)
    # One incident is one page. At 100 requests a minute, noise on the remnant of an hour may add one in ten.
    assert len(pages) <= models // 2 + 2
    # A ticket of each kind for an incident: the page inhibits them only while it fires.
    assert len(tickets) <= models


def test_slow_burning_at_low_traffic_raises_a_ticket() -> None:
    """A recovery before an incident delays no ticket: a day at burn rate 5, with 10 requests a minute."""
    random, models, steps = np.random.default_rng(5), 20, 6 * 1440
    total = random.poisson(10, (models, steps)).astype(float)
    share = np.zeros(steps)
    share[4 * 1440 : 5 * 1440] = 0.005
    bad = random.binomial(total.astype(int), share).astype(float)
    keys = tuple(("errors", f"m{row}", "1") for row in range(models))
    history = History(keys, 60.0 * np.arange(1, steps + 1), bad, total)

    episodes = list(Replayed(ERRORS, OPTIONS).episodes(history))
    assert set(keys) == {episode.key for episode in episodes}
