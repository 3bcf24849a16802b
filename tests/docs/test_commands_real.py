"""Test every complete command of the pages on real servers, in the order of the page."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import chdir, suppress
from pathlib import Path

import pytest
import requests

from docs.commands import FOLLOWED, Command, commands
from docs.page_folder import prepare
from docs.recipe_servers import RecipeServers
from support.loopback import free_ports
from tritonwatch.cli import main

pytestmark = [pytest.mark.real, pytest.mark.thorough]  # those of the start page have a test of their own
NOT_RUN = {
    "docs/slo-live.md: tritonwatch backtest": "wants a history, which test_policy_run.py has",
    "docs/slo-live.md: tritonwatch report": "wants a month of history, which test_report.py has",
    "docs/troubleshooting.md: tritonwatch bridge test": "wants a Slack",
    "docs/on-call.md: tritonwatch bridge test --slack-token-file": "posts to Slack",
    "docs/on-call.md: tritonwatch bridge --listen 0.0.0.0:9096": "connects to Slack",
    "docs/on-call.md: tritonwatch incidents": "wants what a bridge recorded, which test_bridge_incidents.py has",
}
"""Commands that are checked only, by how they begin, and why."""
ANSWERS = {"gate": {0, 3, 4}, "doctor": {0, 1}, "convert": {0, 3}}
"""Exit codes that are expected; of other verbs only 0."""


def _whole() -> list[Command]:
    candidates = [
        command for command in commands() if command.program == "tritonwatch" and command.page not in FOLLOWED
    ]
    begins = {begin for begin in NOT_RUN if any(str(command).startswith(begin) for command in candidates)}
    assert begins == set(NOT_RUN), "an exception that is no more"
    return [
        command
        for command in candidates
        if command.whole and not any(str(command).startswith(begin) for begin in NOT_RUN)
    ]


WHOLE = _whole()


@pytest.mark.parametrize("page", dict.fromkeys(command.page for command in WHOLE))
def test_the_commands_of_a_page_work_in_its_order(
    servers: RecipeServers, page: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a folder as the page supposes it, each command answers, or serves until it is ended."""
    prepare(page, tmp_path)
    for command in (candidate for candidate in WHOLE if candidate.page == page):
        verb, *rest = command.words[1:]
        words = [
            verb,
            *(_here(servers, word, before) for word, before in zip(rest, [verb, *rest], strict=False)),
        ]
        if verb in ("exporter", "init") and "--triton-metrics" not in words:
            words += ["--triton-metrics", servers.local("http://localhost:8002/metrics")]
        if verb in ("exporter", "web") or (verb == "bridge" and rest[0].startswith("-")):
            _serves(servers, words, tmp_path)
        else:
            with chdir(tmp_path):
                code = main(words)
            printed = capsys.readouterr()
            if (project := tmp_path / "tritonwatch.yaml").exists():  # of `init`
                project.write_text(servers.local(project.read_text()))
            assert code in ANSWERS.get(verb, {0}), f"{command}\n{printed.out}\n{printed.err}"


def _here(servers: RecipeServers, word: str, before: str) -> str:
    if word == "URL":
        word = {"--prometheus": "http://localhost:9090", "--triton": "http://localhost:8000"}[before]
    return servers.local(word)


def _serves(servers: RecipeServers, words: list[str], folder: Path) -> None:
    (port,) = free_ports(1)
    words = [word for word in words if word != "127.0.0.1:9096" and word != "--listen"]
    if words[0] == "exporter":
        words = [word.replace("/shared/", f"{folder}/") for word in words]
    words += ["--listen", f"127.0.0.1:{port}"]
    with (
        (folder / "printed").open("w") as log,
        subprocess.Popen(
            [sys.executable, "-m", "tritonwatch", *words], cwd=folder, stdout=log, stderr=log
        ) as process,
    ):
        try:
            deadline = time.monotonic() + 120
            while not _answers(f"http://127.0.0.1:{port}/-/ready"):
                printed = (folder / "printed").read_text()
                assert process.poll() is None, f"{words}\n{printed}"
                assert time.monotonic() < deadline, f"{words}\n{printed}"
                time.sleep(0.1)
        finally:
            process.terminate()


def _answers(url: str) -> bool:
    with suppress(requests.RequestException):
        return requests.get(url, timeout=2).status_code == 200
    return False
