"""Test the demo as a user runs it: real Triton, exporter, Prometheus, Alertmanager and bridge."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import requests

from support.stack.demo_run import port_base
from support.waiting import eventually

pytestmark = pytest.mark.real


def _start(folder: Path, *arguments: str, base: int | None = None) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tritonwatch", "demo", "--dir", str(folder)]
    command += ["--port-base", str(base or port_base()), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _left_behind(folder: Path) -> list[str]:
    """Return processes that still work in the demo's folder, after a moment to end."""
    deadline = time.monotonic() + 120
    while True:
        left = []
        for process in psutil.process_iter(["cmdline"]):
            command = " ".join(process.info["cmdline"] or [])
            if str(folder) in command and process.pid != os.getpid():
                left.append(command)
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.1)


def _read_until(process: subprocess.Popen[str], text: str) -> str:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return "".join(lines)
    raise AssertionError(f"{text!r} was never printed; the output was:\n{''.join(lines)}")


def _read_rest(process: subprocess.Popen[str]) -> str:
    """Return what follows the last line that was read, and end; `communicate` would lose what is buffered."""
    assert process.stdout is not None
    with process.stdout as stream:
        rest = stream.read()
    process.wait(timeout=180)
    return rest


def test_every_step_happens_on_real_servers(tmp_path: Path) -> None:
    """`demo --once` ends with 0 after every step, and leaves no process and only its folder."""
    folder = tmp_path / "demo"
    base = port_base()
    demo = _start(folder, "--once", base=base)
    output = _read_until(demo, "TritonQueueBudgetBurn")
    # The page may have been made before the alert, and is made anew each second until the last step.
    url = f"http://127.0.0.1:{base + 7}/?q=saturated+queue"
    eventually(
        lambda: re.search(r'<tr data-state="(burning|exhausted)', requests.get(url, timeout=60).text),
        "the page does not show what the alert is about",
        60,
    )
    output += _read_rest(demo)

    assert 0 == demo.returncode, output
    assert re.search("web page +http://127", output), output
    assert f"Triton metrics  http://127.0.0.1:{base + 2}/metrics\n" in re.sub(" +\n", "\n", output)
    assert "all steps completed" in output
    assert "TritonQueueBudgetBurn" in output
    assert "TritonExporterAbsent" not in output, "a Prometheus that has just started has not scraped yet"
    assert [] == _left_behind(folder)
    assert ["demo"] == [path.name for path in tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGKILL, -9, marks=pytest.mark.thorough)],
)
def test_an_interrupted_demo_leaves_nothing(tmp_path: Path, number: signal.Signals, status: int) -> None:
    """Ctrl-C and even kill -9, in the middle of starting up, end every process."""
    folder = tmp_path / "demo"
    demo = _start(folder, "--once")
    _read_until(demo, "starting Prometheus")

    demo.send_signal(number)
    demo.communicate(timeout=180)

    assert status == demo.returncode
    assert [] == _left_behind(folder)


def test_a_dead_triton_is_named(tmp_path: Path) -> None:
    """With --once, a Triton that is killed fails the demo at once, naming the missing steps."""
    folder = tmp_path / "demo"
    demo = _start(folder, "--once")
    _read_until(demo, "all steps take")
    server = next(
        process
        for process in psutil.process_iter(["cmdline"])
        if (process.info["cmdline"] or [""])[0].endswith("tritonserver")
        and str(folder) in " ".join(process.info["cmdline"])
    )

    server.kill()
    output = _read_rest(demo)

    assert 1 == demo.returncode
    assert "Triton ended with signal 9 (SIGKILL)" in output
    assert "steps are missing" in output
    assert "recovered" in output
    assert [] == _left_behind(folder)


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    """A taken port is one line with its program and other ports, and nothing is started or left."""
    base = port_base()
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", base + 4))
        taken.listen()
        demo = _start(tmp_path / "demo", base=base)
        output = _read_rest(demo)

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
    demo = _start(tmp_path)
    output = _read_rest(demo)

    assert 2 == demo.returncode
    assert "is not an empty folder" in output
    assert ["thesis.txt"] == [path.name for path in tmp_path.iterdir()]
