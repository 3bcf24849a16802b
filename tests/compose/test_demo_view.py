"""Test the rows of the demo's table on a real Prometheus."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from support import history
from support.recorded_group import group_labels, recorded_group
from triton_exporter.catalogue import state
from tritonwatch.demo.steps import ModelRow, Viewer


@pytest.mark.real
def test_a_model_that_only_readiness_judges_has_its_numbers(tmp_path: Path) -> None:
    """The readiness of a model is that of its versions, where no other objective is worse."""
    now = time.time()
    times = [now + at for at in range(-120, 121, 15)]
    readiness = [
        row
        for model in ("broken", "good", "missing")
        for row in recorded_group(
            group_labels("readiness", model, ""), times, target=0.999, errors={"5m": 0.004}
        )
    ]
    latency = recorded_group(group_labels("latency", "good", "1"), times, target=0.99, errors={"5m": 0.02})
    ready = [
        (str(state.MODEL_READY), {"model": model, "version": "1"}, [(at, 1.0) for at in times])
        for model in ("broken", "good")
    ]
    with history.serve(history.openmetrics([*readiness, *latency, *ready]), tmp_path) as url:
        rows = Viewer(url, "http://127.0.0.1:9").poll().rows

    assert [
        ModelRow("broken", "1", ready=1.0, burn_rate=pytest.approx(4.0)),
        ModelRow("good", "1", ready=1.0, burn_rate=pytest.approx(4.0)),
        ModelRow("missing", "", burn_rate=pytest.approx(4.0)),
    ] == rows
