"""Test the commands of the runbooks on a real Triton, exporter, Prometheus and Alertmanager."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import requests

from support.exporter import exporting
from support.fast_prometheus import INTERVAL_SECONDS, SCALE, fast_prometheus
from support.files import write
from support.loopback import free_ports, started
from support.repository import Repository
from support.thorough import THOROUGH
from support.tools import ROOT, alertmanagers
from support.triton import live_triton
from triton_alerts import alertmanager
from triton_alerts.generate import artifacts
from triton_slo.artifact import Options

pytestmark = pytest.mark.real
RUNBOOKS = ROOT / "alerts" / "runbooks"
BLOCK = re.compile(r"^( *)```sh\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """Yield the four addresses that runbooks expect in the environment, each of a real server."""
    directory = tmp_path_factory.mktemp("runbooks")
    repository = Repository(directory / "models")
    repository.model("ranker")
    (port,) = free_ports(1)
    write(alertmanager.artifacts(Options()), directory)
    command = [
        alertmanagers()[0],
        f"--config.file={directory / 'alertmanager' / alertmanager.FILE}",
        f"--storage.path={directory / 'am'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    ]
    options = Options(time_scale=SCALE, scrape_interval_seconds=INTERVAL_SECONDS)
    address = f"http://127.0.0.1:{port}"
    with (
        live_triton(repository.path, directory) as triton,
        exporting(triton.http_url, triton.metrics_url) as exporter,
        fast_prometheus(exporter.url, artifacts((), options), directory / "watch") as watch,
        started(command, f"{address}/-/ready", directory / "am.log"),
    ):
        yield {
            "TRITON": triton.http_url,
            "EXPORTER": exporter.url,
            "PROMETHEUS": watch.url,
            "ALERTMANAGER": address,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }


def commands() -> dict[str, list[str]]:
    """Return each block of commands that should run anywhere, with the pages that contain it."""
    pages_of: dict[str, list[str]] = {}
    for page in sorted(RUNBOOKS.glob("*.md")):
        for indent, block in BLOCK.findall(page.read_text()):
            text = "\n".join(line.removeprefix(indent) for line in block.splitlines())
            pages_of.setdefault(text, []).append(page.stem)
    return pages_of


def queries(block: str) -> list[str]:
    """Return the expressions of a block that only asks Prometheus; of any other block nothing."""
    lines = block.replace("\\\n", " ").splitlines()
    asked = [re.fullmatch(r"""promtool query instant "\$PROMETHEUS" +'([^']+)'""", line) for line in lines]
    return [match[1] for match in asked if match] if all(asked) else []


def test_every_command_of_every_runbook_works(surroundings: Mapping[str, str]) -> None:
    """Anyone who copies a block at 3 a.m. gets an answer, not an error.

    Most blocks are queries with promtool, which takes long to start: one of them runs, and Prometheus is asked the
    others' queries.
    """
    blocks = commands()
    failed = []
    ran_one = False
    for block, pages in blocks.items():
        if ran_one and not THOROUGH and (expressions := queries(block)):
            for query in expressions:
                answer = requests.get(
                    f"{surroundings['PROMETHEUS']}/api/v1/query", {"query": query}, timeout=60
                )
                if answer.status_code != 200:
                    failed.append(f"{', '.join(pages)}:\n{query}\n-> {answer.text}")
            continue
        ran_one = ran_one or bool(queries(block))
        ran = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", block],
            env={**os.environ, **surroundings},
            capture_output=True,
            text=True,
            timeout=60,
        )
        if ran.returncode or re.search(r"parse error|command not found|bad_data", ran.stdout + ran.stderr):
            failed.append(
                f"{', '.join(pages)}:\n{block}\n-> {ran.returncode} {ran.stdout[-300:]} {ran.stderr[-300:]}"
            )

    assert [] == failed, "\n\n".join(failed)
    assert len(blocks) > 60
