"""Test what the time in which a model was not ready is put down to."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import history
from triton_exporter.catalogue import state
from triton_slo import names
from triton_slo.indicators import Readiness
from triton_slo.prometheus import Prometheus
from triton_slo.promql import Matchers
from triton_slo.server_access import Access


@pytest.mark.real
def test_the_causes_of_a_model_are_shares_of_one_whole(tmp_path: Path) -> None:
    """Triton also lists it by its name alone: with shares for each version, a message added up to 200 %."""
    start = history.END - 3600.0

    def shown(version: str, name: str, first: int, last: int) -> history.Series:
        labels = {"instance": "a", "model": "broken", "version": version, "state": name}
        points = [(start + 60 * minute, float(first <= minute < last)) for minute in range(61)]
        return state.MODEL_STATE.name, labels, points

    series = [shown("", "not_loaded", 0, 61), shown("1", "unavailable", 0, 45), shown("1", "unknown", 45, 61)]
    [shares] = [expr for _, expr in Readiness.causes(Matchers(), "1h", ())]
    with history.serve(history.openmetrics(series), tmp_path) as url, Prometheus(Access(url)) as prometheus:
        found = prometheus.instant(shares, history.END)

    assert {"state:not_loaded": 0.5, "state:unavailable": 0.38, "state:unknown": 0.12} == {
        sample.labels[names.CAUSE]: pytest.approx(sample.value, abs=0.02) for sample in found
    }
    assert all({"model", names.CAUSE} == set(sample.labels) for sample in found)
