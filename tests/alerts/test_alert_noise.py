"""A healthy fleet for a day: no alert comes and goes, however random its traffic and noisy its readings are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from alerts.healthy import DAY, STEP, Fleet, nightly_jobs
from alerts.proofs.cast import SERVER, series
from support.promtool import evaluated, grouped
from support.thorough import THOROUGH, examples
from support.tools import promtools
from triton_alerts.generate import artifacts
from triton_alerts.rules.promql import ALERTS as STATES
from triton_exporter.catalogue import triton
from triton_slo.artifact import Options

FIRING = f'{STATES}{{alertstate="firing"}}'
IDENTITY = ("alertname", "instance", "model", "version", "gpu_uuid", "rule_group", "integration")


def rules(step: int = STEP) -> list[Mapping[str, object]]:
    """The rules of the catalogue, without texts: those are written again at each evaluation, which takes time."""
    options = Options(scrape_interval_seconds=step)
    files = [one for one in artifacts((), options) if one.part == "rules" and one.name.startswith("triton-")]
    found = [rule for one in files for group in yaml.safe_load(one.text)["groups"] for rule in group["rules"]]
    return [{key: value for key, value in rule.items() if key != "annotations"} for rule in found]


def changes(
    folder: Path,
    played: Sequence[object],
    series: Mapping[str, str],
    *,
    seconds: int,
    step: int,
    evaluation: int,
) -> Counter[tuple[str, ...]]:
    """How often each alert began to fire or ended, by what identifies it."""
    before = f"{FIRING} offset {evaluation}s"
    recorded = [
        {"record": f"test:alert_{change}", "expr": expr}
        for change, expr in (("begins", f"{FIRING} unless {before}"), ("ends", f"{before} unless {FIRING}"))
    ]
    asked = [(f"count_over_time({one['record']}[{seconds + 60}s])", float(seconds)) for one in recorded]
    groups = grouped({"alerts": [*played, *recorded]})
    answers = evaluated(promtools()[-1], folder, groups, series, asked, interval=step, evaluation=evaluation)
    found: Counter[tuple[str, ...]] = Counter()
    for labels, count in (one for answer in answers for one in answer):
        found[tuple(labels[name] for name in IDENTITY if name in labels)] += int(count)
    return found


@pytest.mark.real
@examples(1, thorough=20)
@given(seed=st.integers(0, 2**31))
def test_no_alert_comes_and_goes_on_a_healthy_fleet(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Traffic of many shapes, queues near saturation, noisy GPUs, restarts: no alert changes over twice."""
    evaluation = STEP if THOROUGH else 2 * STEP
    fleet = Fleet(seed).series()

    found = changes(
        tmp_path_factory.mktemp("day"), rules(), fleet, seconds=DAY, step=STEP, evaluation=evaluation
    )

    assert 1 == found["Watchdog",]
    assert {} == {alert: count for alert, count in found.items() if count > 2}


@pytest.mark.real
def test_the_end_of_a_nightly_job_is_no_end_of_traffic(tmp_path: Path) -> None:
    """Its first night apart, when nothing is known of it; a service that loses its traffic is noticed."""
    step, days = 300, 9
    jobs = {name: nightly_jobs(seed, days, step) for seed, name in enumerate(("even", "late", "early"))}
    service = np.minimum(np.arange(days * DAY / step + 1), (days - 0.3) * DAY / step) * step * 5
    played = {
        series(triton.REQUEST_SUCCESS, SERVER, model=name, version="1"): " ".join(
            f"{one:.0f}" for one in values
        )
        for name, values in {**jobs, "service": service}.items()
    }
    vanished = [rule for rule in rules(step) if rule["alert"] == "TritonTrafficVanished"]

    found = changes(tmp_path, vanished, played, seconds=days * DAY, step=step, evaluation=step)

    assert dict.fromkeys(jobs, 2) | {"service": 1} == {model: count for (_, model), count in found.items()}
