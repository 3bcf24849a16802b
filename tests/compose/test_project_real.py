"""Test a project from nothing: `init` beside a real Triton and Prometheus, then every verb without an option."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from collections.abc import Callable
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
            empty = {"global": every}
            with history.running(tmp_path / "empty", empty) as before_the_first_scrape:
                nothing = ran("check", "--prometheus", before_the_first_scrape, code=1)
                assert "Prometheus: has no series of any model" in nothing
                assert "1 mistake\n" in nothing
            eventually(lambda: main(["check"]) == 0, "Prometheus does not know the model")
            assert "to write, check and load them: tritonwatch reload\n" in ran("status", code=1)
            ran("generate")
            ran("generate", "--check")
            assert "Prometheus loaded them" in ran("reload")
            rules = folder / "generated" / "rules" / "slo-errors.yml"
            for damage in ("groups: [{}]", "groups: {", "- text"):
                rules.write_text(damage)
                assert f"generated/rules/{rules.name}: is damaged" in ran("reload", code=1)
                assert damage == rules.read_text()
            for deleted in ([rules], list(rules.parent.glob("*.yml"))):
                for path in deleted:
                    path.unlink(missing_ok=True)
                assert "Prometheus loaded them" in ran("reload")
            ran("generate")
            assert "note:" not in ran("reload")
            proposed = folder / "objectives" / "proposed.yaml"
            as_proposed = proposed.read_text()
            proposed.write_text(re.sub(r"threshold: \S+", "threshold: 1.37s", as_proposed))
            assert re.search(
                r"note: .*latency: indicator: echo.*has no bucket bound at the threshold", ran("reload")
            )
            proposed.write_text(as_proposed)
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
            web = [sys.executable, "-m", "tritonwatch", "web", "--scrape-interval", "1s"]
            with started(web, url, tmp_path / "web.log"):
                assert "echo" in requests.get(url, timeout=20).text
                _pages_follow_the_files(url, folder / "objectives" / "proposed.yaml", ran)

            ended = subprocess.run(
                [sys.executable, "-m", "tritonwatch", "status", "--prometheus", "http://127.0.0.1:1"],
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert "http://127.0.0.1:1 is not reachable" in ended.stderr


def _pages_follow_the_files(url: str, file: Path, ran: Callable[..., str]) -> None:
    """An edited target is named until Prometheus has loaded it; a mistake in the file is named, and changes nothing."""

    def overview() -> str:
        return html.unescape(requests.get(url, timeout=20).text)

    # Not the target of readiness, which is evaluated once in 30 s.
    edited = re.sub(r"(?s)(name: latency.*?target: )\S+", r"\g<1>97.3%", file.read_text())
    file.write_text(edited)
    eventually(lambda: "is loaded, 97.30% is in the files" in overview(), overview)
    ran("reload")
    eventually(lambda: "is in the files" not in overview(), overview)

    file.write_text(edited.replace("97.3%", "197.3%"))
    eventually(lambda: "as they were before this mistake: objectives/proposed.yaml:" in overview(), overview)
    file.write_text(edited)
    eventually(lambda: "before this mistake" not in overview(), overview)
