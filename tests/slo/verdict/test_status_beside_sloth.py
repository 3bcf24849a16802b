"""Test `status` and `gate` on a Prometheus that evaluates Sloth's rules beside ours, as during a migration."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from slo.slo_shapes import sloth_as_named
from support import history
from support.recorded_group import group_labels, recorded_group
from support.tools import newest, prometheuses
from support.waiting import eventually
from triton_exporter.catalogue import EXPORTER_JOB, models, own, state, triton
from triton_slo import names
from triton_slo.objective.model import Objective
from triton_slo.prometheus import Prometheus
from triton_slo.server_access import Access
from triton_slo.sources import COUNTERS
from tritonwatch.cli import main

ERRORS = Objective(name="errors", target=0.999, indicator="errors")
MODELS = ("embedder", "ranker")


def counters(now: float) -> str:
    """Two models that fail nothing, and the series of a fresh exporter, until now."""
    start, step = now - 3 * 3600, 15.0
    labels = {"job": EXPORTER_JOB, "instance": "a:9401"}
    rows: list[history.Series] = []
    for model in MODELS:
        about = {**labels, "model": model, "version": "1"}
        points = history.counter(start, now - 5, step, 5)
        rows.append((str(triton.REQUEST_SUCCESS), about, points))
        rows.append(
            (str(triton.REQUEST_FAILURE), {**about, "reason": "BACKEND"}, [(at, 0.0) for at, _ in points])
        )
        steady = [(at, 1.0) for at, _ in points]
        rows.append((str(state.MODEL_READY), about, steady))
        rows.append((str(models.INFO), {**about, "backend": "onnxruntime"}, steady))
    rows.append((str(own.LAST_SUCCESS), labels, [(at, at) for at, _ in points]))
    times = [at for at, _ in points]
    for model in MODELS:
        rows += recorded_group(
            group_labels("errors", model),
            times,
            target=ERRORS.target,
            burn=0.0,
            left=1.0,
            errors={"1h": 0.0, "6h": 0.0, "3d": 0.0},
            events=(0.0, 5.0),
            source=COUNTERS,
            since=start,
        )
    rows += recorded_group(group_labels("errors"), times, days=30.0)
    return history.openmetrics(rows)


@pytest.fixture(scope="module", params=newest(prometheuses()), ids=str)
def prometheus(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    rules = {"sloth.yml": sloth_as_named()}
    folder: Path = tmp_path_factory.mktemp("prometheus")
    with history.serve(counters(time.time()), folder, rules=rules, server=request.param) as url:
        with Prometheus(Access(url)) as client:
            query = f"{names.PERIOD_BUDGET_REMAINING}{{sloth_id!=''}}"
            eventually(partial(client.instant, query), "the rules recorded nothing")
        yield url


@pytest.mark.real
def test_status_shows_only_our_groups_beside_the_rules_of_sloth(
    prometheus: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sloth's series share names with ours; they are not groups of our objectives."""
    assert 0 == main(["status", "--prometheus", prometheus, "--json"])

    answer = json.loads(capsys.readouterr().out)
    assert [("errors", 2, 0)] == [
        (objective["slo"], objective["groups"], objective["unknown"]) for objective in answer["objectives"]
    ]
    assert sorted(("errors", model, "ok") for model in MODELS) == sorted(
        (row["slo"], row["group"]["model"], row["state"]) for row in answer["group_statuses"]
    )


@pytest.mark.real
def test_the_gate_judges_only_our_groups_beside_the_rules_of_sloth(
    prometheus: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Healthy models are promoted; the groups of Sloth's rules do not give `hold`."""
    assert 0 == main(["gate", "--prometheus", prometheus])
    assert 2 == capsys.readouterr().out.count("promote  errors")
