"""Run the demo's stack once, for the data of a real Triton, exporter, Prometheus and bridge."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tritonwatch import files
from tritonwatch.cli import main as tritonwatch
from tritonwatch.demo.load import LoadGenerator
from tritonwatch.demo.stack import Ports, Stack
from tritonwatch.demo.steps import BEFORE_REPAIR, Observation, Viewer, read_notices
from tritonwatch.local import port_is_free

TIME_SCALE = 1 / 60
"""The demo's own."""
GIVE_UP_SECONDS = 120
MIN_SECONDS = 25
"""The panels of the worst query every tenth second, and rates need a few scrapes."""


@dataclass(frozen=True)
class DemoRun:
    """Prometheus' data folder, the moment it ends, and the dashboards written for each model it knew."""

    data: Path
    began: int
    ended: int
    per_model: Mapping[str, dict[str, Any]]


def run_demo(directory: Path) -> DemoRun:
    """Run the demo's stack until everything before the repair has happened, and stop it.

    The broken model is then still not ready and its incident open: the moment at which dashboards are read.
    """
    with _running(directory) as stack:
        began = int(time.time())
        _wait_for_the_incidents(stack)
        time.sleep(max(0.0, began + MIN_SECONDS - time.time()))
        per_model = _per_model(stack, directory / "per-model")
        ended = int(time.time())
    return DemoRun(directory / "demo" / "prometheus", began, ended, per_model)


@contextmanager
def _running(directory: Path) -> Iterator[Stack]:
    home = directory / "demo"
    home.mkdir()
    stack = Stack(home, Ports(port_base()), TIME_SCALE)
    load = LoadGenerator(stack.triton.http_url)
    try:
        for _ in stack.start():
            pass
        load.start()
        yield stack
    finally:
        load.stop()
        stack.stop()


def port_base() -> int:
    """Return the first of eight ports in a row that are free now; those of `free_ports` end before."""
    for base in range(27_000 + os.getpid() % 300 * 16, 32_700, 16):
        if all(port_is_free(base + offset) for offset in range(8)):
            return base
    raise AssertionError("no free ports")


def _wait_for_the_incidents(stack: Stack) -> None:
    viewer = Viewer(stack.ports.url("Prometheus"))
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while True:
        moment = Observation(viewer.rows(), read_notices(stack.bridge_data), repaired=False)
        missing = [step.name for step in BEFORE_REPAIR if not step.happened(moment)]
        if not missing:
            return
        assert "" == stack.ended() + stack.triton_ended()
        assert time.monotonic() < deadline, f"never happened: {missing}"
        time.sleep(0.5)


def _per_model(stack: Stack, out: Path) -> dict[str, dict[str, Any]]:
    arguments = ["--per-model", "--prometheus", stack.ports.url("Prometheus"), "--out", str(out)]
    assert 0 == tritonwatch(["dashboards", "write", *arguments, "--objectives", str(files.objectives())])
    written = (json.loads(path.read_text(encoding="utf-8")) for path in sorted(out.glob("triton-m-*.json")))
    return {dashboard["title"].rsplit(" / ", 1)[1]: dashboard for dashboard in written}
