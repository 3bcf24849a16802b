"""Test hours of a healthy fleet with random traffic and noisy readings: no alert fires."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import yaml

from alerts.healthy import DAY, STEP, Fleet, nightly_jobs
from alerts.proofs.proof_series import SERVER, series
from support.promtool import evaluated, rule_file, series_in
from support.thorough import THOROUGH
from support.tools import promtools
from triton_alerts.generate import artifacts
from triton_exporter.catalogue import gpu, llm, models, own, probe, state, triton
from triton_exporter.catalogue.external import stack
from triton_slo import bridge_series, names
from triton_slo.artifact import Artifact, Options
from triton_slo.generate import artifacts as slo_artifacts
from triton_slo.objective.model import Objective

FIRING = f'{names.ALERTS}{{alertstate="firing"}}'
IDENTITY = (
    "alertname",
    "instance",
    "slo",
    "tier",
    "model",
    "version",
    "gpu_uuid",
    "rule_group",
    "integration",
)
NOT_PLAYED = {
    str(series)
    for series in (
        *(bridge_series.STORE_FAILURES, gpu.ECC_ERRORS, gpu.MODEL_LABEL_PROBLEM, gpu.REMAPPED_ROWS),
        *(gpu.ROW_REMAP_FAILED, gpu.ROW_REMAP_PENDING, gpu.THROTTLE_REASON, models.ENSEMBLE_STEP),
        *(models.MAX_QUEUE_DELAY, own.EXPECTED_FILE_VALID, own.LOG_READABLE, probe.REQUESTS),
        *(stack.AM_CONFIG_RELOADED, stack.COMPACTIONS_FAILED, stack.WAL_WRITES_FAILED),
        *(state.MODEL_LOAD_FAILURES, state.MODEL_NOT_READY_SINCE),
        *(llm.FIRST_TOKEN, llm.INTER_TOKEN),  # as native histograms; the classic ones are played
    )
}
"""Series of faults, and of options that the healthy fleet does not use."""
SEEDS = range(20) if THOROUGH else range(1)
PLAYED = DAY if THOROUGH else DAY // 8
"""Seconds of a fleet's day."""
PROMISED = Objective(name="errors", target=0.999, indicator="errors")
"""The fleet fails 0.03 % of its requests: a third of what this objective allows."""
SERVING = ("bursty", "long-bursts", "nightly", "hourly", "few-an-hour", "one-an-hour")
"""Models whose objective is played: a rule of an objective costs as much as several of the catalogue."""


@cache
def fleet(seed: int) -> Mapping[str, str]:
    """Return what is played of a healthy fleet."""
    return Fleet(seed).series(PLAYED)


def rules(step: int = STEP) -> list[Mapping[str, object]]:
    """Return the rules of the catalogue, without texts, which promtool expands slowly at each evaluation."""
    options = Options(scrape_interval_seconds=step)
    return _without_texts(
        artifact for artifact in artifacts((), options) if artifact.name.startswith("triton-")
    )


def objective_rules() -> list[Mapping[str, object]]:
    """Return the rules of an objective."""
    return _without_texts(slo_artifacts([PROMISED], Options(scrape_interval_seconds=STEP)))


def _without_texts(made: Iterable[Artifact]) -> list[Mapping[str, object]]:
    files = [artifact for artifact in made if artifact.part == "rules"]
    every = [
        rule for file in files for group in yaml.safe_load(file.text)["groups"] for rule in group["rules"]
    ]
    return [{key: value for key, value in rule.items() if key != "annotations"} for rule in every]


def changes(
    folder: Path,
    played: Sequence[object],
    series: Mapping[str, str],
    *,
    seconds: int,
    step: int,
    evaluation: int,
) -> Counter[tuple[str, ...]]:
    """How often each alert began to fire or ended, by its identifying labels."""
    before = f"{FIRING} offset {evaluation}s"
    recorded = [
        {"record": f"test:alert_{change}", "expr": expr}
        for change, expr in (("begins", f"{FIRING} unless {before}"), ("ends", f"{before} unless {FIRING}"))
    ]
    asked = [(f"count_over_time({rule['record']}[{seconds + 60}s])", float(seconds)) for rule in recorded]
    groups = rule_file({"alerts": [*played, *recorded]})
    # Prometheus 3 no longer sees an alert of 5 minutes ago, which some tests here evaluate each 5 minutes.
    answers = evaluated(promtools()[0], folder, groups, series, asked, interval=step, evaluation=evaluation)
    counts: Counter[tuple[str, ...]] = Counter()
    for labels, count in (sample for answer in answers for sample in answer):
        counts[tuple(labels[name] for name in IDENTITY if name in labels)] += int(count)
    return counts


def test_the_fleet_has_the_series_that_alerts_read() -> None:
    """Without its series an alert cannot fire, and the test would prove nothing."""
    played = {series.partition("{")[0] for series in fleet(0)}
    read = {name for rule in rules() for name in series_in(str(rule["expr"]))}

    assert NOT_PLAYED == read - played - {names.ALERTS, names.MODEL_EXPECTED_COPY}


@pytest.mark.real
@pytest.mark.parametrize("seed", SEEDS)
def test_no_alert_comes_and_goes_on_a_healthy_fleet(seed: int, tmp_path: Path) -> None:
    """Traffic of many shapes, queues near saturation, noisy GPUs, restarts: no alert changes over twice."""
    evaluation = STEP if THOROUGH else 4 * STEP

    transitions = changes(tmp_path, rules(), fleet(seed), seconds=PLAYED, step=STEP, evaluation=evaluation)

    assert 1 == transitions["Watchdog",]
    assert {} == {alert: count for alert, count in transitions.items() if count > 2}


@pytest.mark.real
@pytest.mark.parametrize("seed", SEEDS)
def test_no_alert_of_an_objective_fires_on_a_healthy_fleet(seed: int, tmp_path: Path) -> None:
    """An objective is not unknown because its model has requests only at night, or because a server restarts."""
    serving = {
        name: text for name, text in fleet(seed).items() if any(f'"{metric}"' in name for metric in SERVING)
    }
    seconds, evaluation = (DAY // 2, 2 * STEP) if THOROUGH else (PLAYED, 4 * STEP)
    counted = {"alert": "Counted", "expr": f"count({names.sli_error('1d')}) == {len(SERVING)}"}

    transitions = changes(
        tmp_path, [*objective_rules(), counted], serving, seconds=seconds, step=STEP, evaluation=evaluation
    )

    assert {("Counted",): 1} == transitions


@pytest.mark.real
def test_the_end_of_a_nightly_job_is_not_the_end_of_traffic(tmp_path: Path) -> None:
    """The alert fires for a service that loses its traffic, and for a job only in its first night."""
    step, days = 300, 9
    jobs = {name: nightly_jobs(seed, days, step) for seed, name in enumerate(("even", "late", "early"))}
    service = np.minimum(np.arange(days * DAY / step + 1), (days - 0.3) * DAY / step) * step * 5
    played = {
        series(triton.REQUEST_SUCCESS, SERVER, model=name, version="1"): " ".join(
            f"{value:.0f}" for value in values
        )
        for name, values in {**jobs, "service": service}.items()
    }
    vanished = [rule for rule in rules(step) if rule.get("alert") == "TritonTrafficVanished"]

    transitions = changes(tmp_path, vanished, played, seconds=days * DAY, step=step, evaluation=step)

    assert dict.fromkeys(jobs, 2) | {"service": 1} == {
        model: count for (_, model), count in transitions.items()
    }
