"""Test that a graph of latencies finds the traces behind it in a real Prometheus."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from support.fast_prometheus import FastPrometheus
from support.loopback import answering, free_ports, started
from support.panels import Grafana, panels
from support.tools import prometheuses
from triton_dashboards.boards import model as board
from triton_dashboards.grafana import dashboard_model
from triton_exporter.catalogue import EXPORTER_JOB, state
from triton_exporter.exposition.write import OPENMETRICS
from triton_slo.artifact import Options
from tritonwatch.local import prometheus_command

pytestmark = pytest.mark.real

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
LABELS = 'model="embedder",version="1"'


def _page() -> str:
    """Both histograms as the exporter writes them in OpenMetrics, one observation each."""
    lines = [f"# TYPE {state.UP} gauge", f"{state.UP} 1"]
    lines += [f"# TYPE {state.MODEL_STATE} gauge", f'{state.MODEL_STATE}{{{LABELS},state="ready"}} 1']
    for metric in (state.REQUEST_DURATION, state.QUEUE_DURATION):
        now = time.time()
        lines += [
            f"# TYPE {metric} histogram",
            f'{metric.bucket}{{{LABELS},le="0.1"}} 1 # {{trace_id="{TRACE}"}} 0.067 {now:.3f}',
            f'{metric.bucket}{{{LABELS},le="+Inf"}} 1',
            f"{metric.count}{{{LABELS}}} 1",
            f"{metric.sum}{{{LABELS}}} 0.067",
        ]
    return "\n".join([*lines, "# EOF", ""])


@pytest.fixture
def grafana(tmp_path: Path) -> Iterator[Grafana]:
    """Prometheus as the demo starts it, scraping a page with exemplars."""
    [port] = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    command = prometheus_command(tmp_path / "prometheus.yml", tmp_path / "data", port)
    command[0] = str(prometheuses()[-1])
    page = {"Content-Type": OPENMETRICS}
    with answering(lambda request: request.reply(_page(), headers=page)) as exporter:
        target = {"targets": [exporter.removeprefix("http://")]}
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
            "scrape_configs": [{"job_name": EXPORTER_JOB, "static_configs": [target]}],
        }
        (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
        with started(command, f"{url}/-/ready", tmp_path / "prometheus.log"):
            FastPrometheus(url).wait_seen(state.UP.name)
            yield Grafana(url, int(time.time()) + 1, 60, 1, 1)


def test_latency_graphs_find_their_traces(grafana: Grafana) -> None:
    """Asked as Grafana asks for exemplars, each query that wants them gets the trace's id."""
    model = dashboard_model(board.dashboard(Options()))
    chosen = grafana.choose(model, {"model": "embedder"})
    traces = {}
    for panel in panels(model):
        for target in panel["targets"]:
            if target.get("exemplar"):
                traces[panel["title"]] = {
                    exemplar["labels"]["trace_id"]
                    for series in grafana.exemplars(target, chosen)
                    for exemplar in series["exemplars"]
                }

    assert {title: {TRACE} for title in ("Latency", "Wait in the queue", "p99 latency by version")} == traces
