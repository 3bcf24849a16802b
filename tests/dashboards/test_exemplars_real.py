"""A graph of latencies finds the traces behind it in a real Prometheus."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import requests
import yaml

from support.loopback import served
from support.panels import Grafana, panels
from support.tools import prometheuses
from triton_dashboards.boards import model as board
from triton_dashboards.grafana.model import dashboard_model
from triton_exporter.catalogue import EXPORTER_JOB, state
from triton_exporter.exposition import OPENMETRICS
from triton_slo.artifact import Options
from tritonwatch.local.prometheus import prometheus_command
from tritonwatch.local.triton import free_ports

pytestmark = pytest.mark.real

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
LABELS = 'model="embedder",version="1"'


def _page() -> str:
    """Both histograms as the exporter writes them in OpenMetrics, one observation each."""
    lines = [f"# TYPE {state.UP} gauge", f"{state.UP} 1"]
    lines += [f"# TYPE {state.MODEL_READY} gauge", f"{state.MODEL_READY}{{{LABELS}}} 1"]
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


class _Exporter(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = _page().encode()
        self.send_response(200)
        self.send_header("Content-Type", OPENMETRICS)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def grafana(tmp_path: Path) -> Iterator[Grafana]:
    """Prometheus as the demo starts it, scraping a page with exemplars."""
    with served(ThreadingHTTPServer(("127.0.0.1", 0), _Exporter)) as exporter:
        yield from _prometheus(tmp_path, exporter.server_port)


def _prometheus(tmp_path: Path, exporter: int) -> Iterator[Grafana]:
    [port] = free_ports(1)
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [
            {
                "job_name": EXPORTER_JOB,
                "static_configs": [{"targets": [f"127.0.0.1:{exporter}"]}],
            }
        ],
    }
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    command = prometheus_command(tmp_path / "prometheus.yml", tmp_path / "data", port)
    command[0] = str(prometheuses()[-1])
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait(f"http://127.0.0.1:{port}", process)
        yield Grafana(f"http://127.0.0.1:{port}", int(time.time()) + 1, 60, 1, 1)
    finally:
        process.terminate()
        process.wait(20)


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    """Until the first scrape is stored."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        try:
            answer = requests.get(f"{url}/api/v1/query", {"query": state.UP.name}, timeout=2)
            if answer.ok and answer.json()["data"]["result"]:
                return
        except requests.RequestException:
            pass
        time.sleep(0.1)
    raise AssertionError("Prometheus stored nothing")


def test_latency_graphs_find_their_traces(grafana: Grafana) -> None:
    """Asked as Grafana asks for exemplars, each query that wants them gets the trace's id."""
    model = dashboard_model(board.dashboard(Options()))
    chosen = grafana.choose(model, {"model": "embedder"})
    found = {}
    for panel in panels(model):
        for target in panel["targets"]:
            if target.get("exemplar"):
                found[panel["title"]] = {
                    one["labels"]["trace_id"]
                    for series in grafana.exemplars(target, chosen)
                    for one in series["exemplars"]
                }

    assert {title: {TRACE} for title in ("Latency", "Wait in the queue", "p99 latency by version")} == found
