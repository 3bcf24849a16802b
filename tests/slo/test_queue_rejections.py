"""A request that the queue rejects fails the objective on queueing, whichever way it is known."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from support.promtool import evaluated, grouped, resting_on
from support.slo_scenarios import series
from support.tools import promtools
from triton_exporter.catalogue import state, triton
from triton_slo import conventions as names
from triton_slo.artifact import Options
from triton_slo.generate import artifacts
from triton_slo.objective.model import Objective

STEP, SCRAPES = 30, 40
GOOD = f"0+60x{SCRAPES}"
HISTOGRAM = {
    series(state.QUEUE_DURATION.bucket, le="0.1"): GOOD,
    series(state.QUEUE_DURATION.bucket, le="+Inf"): GOOD,
    series(state.QUEUE_DURATION.count): GOOD,
}
MEANS = {series(triton.REQUEST_SUCCESS): GOOD, series(triton.QUEUE_DURATION_US): GOOD}
TIMED_OUT = {series(triton.REQUEST_FAILURE, reason="REJECTED"): f"0+20x{SCRAPES}"}
FULL = {series(state.QUEUE_FULL_ESTIMATE): f"0+20x{SCRAPES}"}


@pytest.mark.parametrize("source", [HISTOGRAM, MEANS], ids=["histogram", "slices"])
@pytest.mark.parametrize(
    ("rejected", "share"),
    [
        pytest.param({}, 0, id="none"),
        pytest.param(TIMED_OUT, 20 / 80, id="timed out in the queue"),
        pytest.param(FULL, 20 / 80, id="found the queue full"),
        pytest.param(TIMED_OUT | FULL, 40 / 100, id="both"),
    ],
)
def test_rejections_of_the_queue_burn_its_budget(
    source: dict[str, str], rejected: dict[str, str], share: float, tmp_path: Path
) -> None:
    """Timeouts are counted by Triton, full queues are seen by traces: each fails, and each is a request."""
    indicator = {"kind": "queue", "threshold": "100ms"}
    objective = Objective.model_validate({"name": "queue", "target": "99%", "indicator": indicator})
    made = artifacts([objective], Options(scrape_interval_seconds=STEP))
    [text] = [one.text for one in made if one.name == "slo-queue.yml"]
    ratio = names.sli_error("5m")
    rules = grouped({"queue": resting_on(yaml.safe_load(text)["groups"][0]["rules"], ratio)})
    [answer] = evaluated(
        promtools()[-1],
        tmp_path,
        rules,
        source | rejected,
        [(ratio, SCRAPES * STEP)],
        interval=STEP,
        evaluation=STEP,
    )

    assert [pytest.approx(share, abs=1e-9)] == [value for _, value in answer]
