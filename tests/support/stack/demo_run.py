"""Run the demo as a user does, once, for its output and for the data of its real servers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import requests

from support.waiting import eventually
from tritonwatch import files
from tritonwatch.cli import main as tritonwatch
from tritonwatch.local import port_is_free

TIME_SCALE = 1 / 60
"""The demo's own."""


@dataclass(frozen=True)
class DemoRun:
    """What `demo --once` printed and left: among it, Prometheus' data of the time from `began` to `ended`."""

    folder: Path
    output: str
    returncode: int
    left_behind: list[str]
    began: int
    ended: int
    per_model: Mapping[str, dict[str, Any]]
    """The dashboards written for each model that Prometheus knew."""


def run_demo(folder: Path) -> DemoRun:
    """Run `demo --once` to its end."""
    base = port_base()
    demo = start_demo(folder, "--once", base=base)
    output = read_until(demo, "all steps take")
    began = int(time.time())
    output += read_until(demo, "repairing")
    # The page may have been made before the alert, and is made anew each second until the last step.
    page = f"http://127.0.0.1:{base + 7}/?q=saturated+queue"
    eventually(
        lambda: re.search(r'<tr data-state="(burning|exhausted)', requests.get(page, timeout=60).text),
        "the page does not show what the alert is about",
    )
    per_model = _per_model(f"http://127.0.0.1:{base + 4}", folder.with_name("per-model"))
    output += read_until(demo, "all steps completed")
    ended = int(time.time())
    output += read_rest(demo)
    return DemoRun(folder, output, demo.returncode, left_behind(folder), began, ended, per_model)


def start_demo(folder: Path, *arguments: str, base: int | None = None) -> subprocess.Popen[str]:
    """Start the command."""
    command = [sys.executable, "-m", "tritonwatch", "demo", "--dir", str(folder)]
    command += ["--port-base", str(base or port_base()), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def read_until(process: subprocess.Popen[str], text: str) -> str:
    """Return the lines up to the one with this text."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return "".join(lines)
    raise AssertionError(f"{text!r} was never printed; the output was:\n{''.join(lines)}")


def read_rest(process: subprocess.Popen[str]) -> str:
    """Return what follows the last line that was read, and end; `communicate` would lose what is buffered."""
    assert process.stdout is not None
    with process.stdout as stream:
        rest = stream.read()
    process.wait(timeout=180)
    return rest


def left_behind(folder: Path) -> list[str]:
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


def port_base() -> int:
    """Return the first of eight ports in a row that are free now; those of `free_ports` end before."""
    for base in range(27_000 + os.getpid() % 300 * 16, 32_700, 16):
        if all(port_is_free(base + offset) for offset in range(8)):
            return base
    raise AssertionError("no free ports")


def _per_model(prometheus: str, out: Path) -> dict[str, dict[str, Any]]:
    arguments = ["--per-model", "--prometheus", prometheus, "--out", str(out)]
    assert 0 == tritonwatch(["dashboards", "write", *arguments, "--objectives", str(files.objectives())])
    written = (json.loads(path.read_text(encoding="utf-8")) for path in sorted(out.glob("triton-m-*.json")))
    return {dashboard["title"].rsplit(" / ", 1)[1]: dashboard for dashboard in written}
