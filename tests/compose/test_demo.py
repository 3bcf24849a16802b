"""Test how the demo ends early. tests/dashboards/test_panels_demo.py runs it to its end."""

from __future__ import annotations

import os
import re
import signal
import socket
from pathlib import Path

import psutil
import pytest

from support.stack.demo_run import left_behind, port_base, read_rest, read_until, start_demo

pytestmark = pytest.mark.real


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), pytest.param(signal.SIGKILL, -9, marks=pytest.mark.thorough)]
)
def test_an_interrupted_demo_leaves_nothing(tmp_path: Path, number: signal.Signals, status: int) -> None:
    """Ctrl-C and even kill -9, in the middle of starting up, end every process."""
    folder = tmp_path / "demo"
    demo = start_demo(folder, "--once")
    read_until(demo, "starting bridge")

    demo.send_signal(number)
    demo.communicate(timeout=180)

    assert status == demo.returncode
    assert [] == left_behind(folder)


@pytest.mark.thorough
def test_a_dead_triton_is_named(tmp_path: Path) -> None:
    """With --once, a Triton that is killed fails the demo at once, naming the missing steps."""
    folder = tmp_path / "demo"
    demo = start_demo(folder, "--once")
    read_until(demo, "all steps take")
    server = next(
        process
        for process in psutil.process_iter(["cmdline"])
        if (process.info["cmdline"] or [""])[0].endswith("tritonserver")
        and str(folder) in " ".join(process.info["cmdline"])
    )

    server.kill()
    output = read_rest(demo)

    assert 1 == demo.returncode
    assert "Triton ended with signal 9 (SIGKILL)" in output
    assert "steps are missing" in output
    assert "recovered" in output
    assert [] == left_behind(folder)


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    """A taken port is one line with its program and other ports, and nothing is started or left."""
    base = port_base()
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", base + 4))
        taken.listen()
        demo = start_demo(tmp_path / "demo", base=base)
        output = read_rest(demo)

    assert 1 == demo.returncode
    program = Path("/proc/self/comm").read_text().strip()
    problem = f"port {base + 4} (for Prometheus) is in use by {program} (process {os.getpid()})"
    assert re.fullmatch(
        rf"tritonwatch demo: nothing was started: {re.escape(problem)}; choose 8 other ports: --port-base \d+ .*\n",
        output,
    )
    assert [] == list(tmp_path.iterdir())


def test_a_folder_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    """The demo never writes into a folder with other files."""
    (tmp_path / "thesis.txt").write_text("mine")
    demo = start_demo(tmp_path)
    output = read_rest(demo)

    assert 2 == demo.returncode
    assert "is not an empty folder" in output
    assert ["thesis.txt"] == [path.name for path in tmp_path.iterdir()]
