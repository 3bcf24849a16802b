"""Test the start page: it breaks a model of a real Triton, and its last commands leave nothing behind."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

import pytest
import requests

from docs.recipes import Block, parts
from support.exporter import exporting
from support.fast_prometheus import SCALE, fast_prometheus
from support.repository import Repository
from support.tools import ROOT
from support.triton import live_triton
from triton_alerts.generate import artifacts as alerts
from triton_exporter.catalogue import state
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.generate import artifacts as objectives
from triton_slo.objective.reading import read

pytestmark = pytest.mark.real
INTERVAL_SECONDS = 0.3
OPTIONS = Options(time_scale=SCALE, scrape_interval_seconds=INTERVAL_SECONDS)
PAGE = ROOT / "docs" / "start.md"
GONE_SECONDS = 45 * INTERVAL_SECONDS
"""Without data for 30 scrapes, a model that is not known to be removed is called unknown."""


def _commands(section: str) -> Block:
    (block,) = [
        part for part in parts("start.md")[section] if part.language == "sh" and "$MODELS" in part.text
    ]
    return block


def test_the_last_commands_of_the_start_page_restore_the_server(tmp_path: Path) -> None:
    """A load fails with the words that the page promises; afterwards Triton is ready and nothing is unknown."""
    models = tmp_path / "models"
    Repository(models).model("adder")
    readiness = ROOT / "slo" / "objectives" / "readiness.yaml"
    made = (
        *objectives(read([(readiness.name, readiness.read_text())]).objectives, OPTIONS),
        *alerts((), OPTIONS),
    )
    with (
        live_triton(models, tmp_path, "explicit", ["--load-model=adder"], auto_complete=True) as triton,
        exporting(triton.http_url, triton.metrics_url) as exporter,
        fast_prometheus(exporter.url, made, tmp_path / "watch", INTERVAL_SECONDS) as watch,
    ):

        def shell(text: str) -> str:
            # Prometheus scrapes 50 times as often as it does every 15 s.
            text = text.replace("http://localhost:8000", triton.http_url).replace("sleep 60", "sleep 2")
            environment = {**os.environ, "MODELS": str(models)}
            return subprocess.run(
                ["bash", "-e", "-c", text],
                env=environment,
                capture_output=True,
                text=True,
                timeout=90,
                check=True,
            ).stdout

        printed = shell(_commands("6. See an alert fire").text)
        (promised,) = re.findall(r'error message of the model: "(.+?)"', " ".join(PAGE.read_text().split()))
        assert promised in printed
        watch.wait("TritonModelLoadFailed", model="broken")
        watch.wait_seen(f'{state.MODEL_STATE}{{model="broken"}}')
        assert promised in exporter.get("/state").text
        assert 400 == requests.get(f"{triton.http_url}/v2/health/ready", timeout=5).status_code

        shell(_commands("7. Clean up").text)

        assert 200 == requests.get(f"{triton.http_url}/v2/health/ready", timeout=5).status_code
        assert ["adder"] == sorted(path.name for path in models.iterdir())
        ended = time.monotonic() + GONE_SECONDS
        while time.monotonic() < ended:
            assert [] == watch.alerts(names.UNKNOWN_ALERT)
            time.sleep(1)
