"""Test the systemd units: systemd accepts them, and their commands run with what systemd gives them."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from string import Template

import pytest

from support.loopback import free_ports, started
from support.tools import ROOT

UNITS = ROOT / "compose" / "systemd"
INSTALLED = "/opt/tritonwatch/bin/tritonwatch"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    """Also that each key exists, which systemd only warns of."""
    for unit in UNITS.glob("*.service"):
        (tmp_path / unit.name).write_text(unit.read_text().replace(INSTALLED, sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", *map(str, tmp_path.iterdir())], capture_output=True, text=True
    )

    assert (0, "") == (done.returncode, done.stderr)


@pytest.mark.parametrize(("program", "port"), [("exporter", 9401), ("bridge", 9096)])
def test_the_command_of_a_unit_runs(
    program: str, port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a free port, and folders and secrets of this test; the bridge prints instead of asking Slack."""
    monkeypatch.setenv("TRITONWATCH_DRY_RUN", "1")
    (tmp_path / "alertmanager-token").write_text("a-token-of-alertmanager")
    (tmp_path / "slack-token").write_text("xoxb-none")
    lines = (UNITS / f"tritonwatch-{program}.service").read_text().splitlines()
    (start,) = (line.partition("=")[2] for line in lines if line.startswith("ExecStart="))
    (listen,) = free_ports(1)
    project = tmp_path / "tritonwatch.yaml"
    project.write_text(f"bridge:\n  url: http://127.0.0.1:{listen}\n")
    text = Template(start).substitute(STATE_DIRECTORY=tmp_path, CREDENTIALS_DIRECTORY=tmp_path)
    text = text.replace(f":{port}", f":{listen}").replace("/etc/tritonwatch/tritonwatch.yaml", str(project))
    command = [sys.executable, "-m", "tritonwatch", *shlex.split(text.removeprefix(INSTALLED))]

    with started(command, f"http://127.0.0.1:{listen}/-/healthy", tmp_path / "log"):
        pass
