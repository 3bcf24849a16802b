"""Test a project from nothing: `init` beside a real Triton and Prometheus, then every verb without an option."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import requests

from support import history
from support.exporter import exporting
from support.loopback import free_ports, started
from support.repository import Repository
from support.triton import infer, live_triton
from support.waiting import eventually
from tritonwatch.cli import main

pytestmark = pytest.mark.real


def test_every_verb_works_without_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`init` writes what the others read; only `--triton` and `--prometheus` are ever typed, once."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    repository = Repository(tmp_path / "models")
    repository.model("echo")
    every = {"scrape_interval": "1s", "evaluation_interval": "1s"}

    def ran(*words: str, code: int = 0) -> str:
        ended = main(words)
        printed = capsys.readouterr()
        assert code == ended, printed.out + printed.err
        return printed.out + printed.err

    with (
        live_triton(repository.path, tmp_path) as server,
        exporting(server.http_url, server.metrics_url) as exporter,
    ):
        target = exporter.url.removeprefix("http://")
        config = {
            "global": every,
            "rule_files": [str(folder / "generated" / "rules" / "*.yml")],
            "scrape_configs": [{"job_name": "triton", "static_configs": [{"targets": [target]}]}],
        }
        with history.running(tmp_path / "prometheus", config, flags=["--web.enable-lifecycle"]) as prometheus:
            eventually(lambda: infer(server, "echo") == 200, "Triton does not serve")
            wrote = ran(
                *("init", "--triton", server.http_url, "--triton-metrics", server.metrics_url),
                *("--prometheus", prometheus),
            )
            assert "wrote objectives/proposed.yaml and tritonwatch.yaml" in wrote
            eventually(lambda: main(["check"]) == 0, "Prometheus does not know the model")
            assert "to write, check and load them: tritonwatch reload\n" in ran("status", code=1)
            ran("generate")
            ran("generate", "--check")
            assert "Prometheus loaded them" in ran("reload")
            eventually(lambda: main(["status"]) == 0, "no status")
            assert "readiness" in ran("status")
            # What a period has is recorded once a minute.
            assert main(["report", "--period", "this-month"]) in (0, 1)
            reported = capsys.readouterr()
            assert (
                "readiness" in reported.out or "Prometheus has no record of any objective in" in reported.err
            )
            assert "verdict: hold" in ran("gate", code=3)  # minutes are too short for a budget
            assert "Triton / GPU" in ran("dashboards", "list")
            port = free_ports(1)[0]
            (folder / "tritonwatch.yaml").write_text(
                (folder / "tritonwatch.yaml").read_text() + f"web: {{listen: 127.0.0.1:{port}}}\n"
            )
            url = f"http://127.0.0.1:{port}/"
            with started([sys.executable, "-m", "tritonwatch", "web"], url, tmp_path / "web.log"):
                assert "echo" in requests.get(url, timeout=20).text

            ended = subprocess.run(
                [sys.executable, "-m", "tritonwatch", "status", "--prometheus", "http://127.0.0.1:1"],
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert "http://127.0.0.1:1 is not reachable" in ended.stderr
