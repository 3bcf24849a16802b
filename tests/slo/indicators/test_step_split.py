"""Test what is said of an ensemble's steps from Triton's counters, where these tell little."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from support import history
from triton_exporter.catalogue import models, triton
from triton_slo import names
from triton_slo.indicators.latency import Latency
from triton_slo.prometheus import Prometheus
from triton_slo.promql import Matchers
from triton_slo.server_access import Access

START = history.END - 3600.0
Load = Mapping[tuple[str, str], tuple[float, float]]
"""By instance and model: requests per second, and seconds of each."""


def _shares(directory: Path, steps: Mapping[tuple[str, str], list[str]], load: Load) -> dict[str, float]:
    series: list[history.Series] = []
    for (instance, ensemble), called in steps.items():
        for position, step in enumerate(called, 1):
            labels = {"position": str(position), "step_model": step, "step_version": "-1"}
            points = [(START + 60 * i, 1.0) for i in range(61)]
            series.append(
                (models.ENSEMBLE_STEP.name, {"instance": instance, "model": ensemble, **labels}, points)
            )
    for (instance, model), (rate, seconds) in load.items():
        counters = {
            triton.REQUEST_SUCCESS: rate,
            triton.REQUEST_DURATION_US: rate * seconds * 1e6,
            triton.QUEUE_DURATION_US: 0.0,
        }
        for metric, per_second in counters.items():
            points = history.counter(START, history.END, 60, per_second)
            series.append((metric.name, {"instance": instance, "model": model, "version": "1"}, points))
    [by_step] = [expr for cause, expr in Latency.causes(Matchers(), "1h", ()) if not cause]
    with history.serve(history.openmetrics(series), directory) as url, Prometheus(Access(url)) as prometheus:
        return {
            sample.labels[names.CAUSE]: sample.value for sample in prometheus.instant(by_step, history.END)
        }


@pytest.mark.real
def test_nothing_is_said_of_a_step_that_others_call_a_little(tmp_path: Path) -> None:
    """A 20th of its requests take 1.5 s, those of the ensemble 10 ms: the mean of both is no share of anything."""
    load = {
        ("s", "pipe"): (8.0, 0.09),
        ("s", "a"): (8.4, (8.0 * 0.01 + 0.4 * 1.5) / 8.4),
        ("s", "b"): (8.0, 0.08),
    }

    shares = _shares(tmp_path, {("s", "pipe"): ["a", "b"]}, load)

    assert {"queue of b": 0.0, "compute of b": pytest.approx(0.08 / 0.09)} == shares


@pytest.mark.real
def test_servers_with_different_steps_during_a_rollout_count_each_call_once(tmp_path: Path) -> None:
    """The new version has one more step, first: every position differs between the servers."""
    load = {
        ("old", "roll"): (5.0, 0.1),
        ("new", "roll"): (5.0, 0.1),
        ("new", "p"): (5.0, 0.01),
        **{(server, "d1"): (5.0, 0.03) for server in ("old", "new")},
        **{(server, "d2"): (5.0, 0.06) for server in ("old", "new")},
    }

    shares = _shares(tmp_path, {("old", "roll"): ["d1", "d2"], ("new", "roll"): ["p", "d1", "d2"]}, load)

    assert pytest.approx(0.3) == shares["compute of d1"]
    assert pytest.approx(0.6) == shares["compute of d2"]
