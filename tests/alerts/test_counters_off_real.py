"""Test that requests which Triton does not count lead to an alert: real Triton, exporter and Prometheus."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.exporter import exporting
from support.fast_prometheus import INTERVAL_SECONDS, fast_prometheus
from support.repository import Repository
from support.triton import infer, live_triton
from triton_alerts.generate import artifacts
from triton_exporter.catalogue import triton
from triton_slo.artifact import Options

OPTIONS = Options(time_scale=1 / 60, scrape_interval_seconds=INTERVAL_SECONDS)
FLAGS = ("--metrics-config=counter_latencies=false", "--metrics-config=summary_latencies=true")


@pytest.mark.real
def test_requests_that_triton_does_not_count(tmp_path: Path) -> None:
    """The alert fires for the model that is asked, though the exporter relays none of the summaries that count."""
    repository = Repository(tmp_path / "models")
    for name in ("asked", "idle"):
        repository.model(name)
    with (
        live_triton(repository.path, tmp_path, arguments=FLAGS) as server,
        exporting(server.http_url, server.metrics_url) as exporter,
        fast_prometheus(exporter.url, artifacts((), OPTIONS), tmp_path / "watch") as watch,
    ):
        firing = watch.until(
            lambda: 200 == infer(server, "asked") and watch.alerts("TritonCountersOff"), "never fired"
        )
        page = exporter.scrape()

    assert ["asked"] == [alert["labels"]["model"] for alert in firing]
    assert 0 == page.value(triton.REQUEST_SUCCESS, model="asked", version="1")
    assert triton.REQUEST_SUMMARY_US.name not in page.text
