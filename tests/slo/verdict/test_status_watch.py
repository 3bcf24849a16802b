"""Test that `tritonwatch status --watch` continues when its Prometheus ends, and ends quietly itself."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support import history
from support.recorded_group import group_labels, recorded_group


def recorded() -> str:
    """Return a budget that was recorded until just now."""
    now = time.time()
    times = [now - 240 + 15 * i for i in range(17)]
    return history.openmetrics(recorded_group(group_labels("latency", "embedder"), times, left=0.75))


@contextmanager
def watching(url: str, *words: str, stdout: int = subprocess.PIPE) -> Iterator[subprocess.Popen[bytes]]:
    """Yield the verb as its own process, ended if the test does not."""
    command = [sys.executable, "-m", "tritonwatch", "status", "--prometheus", url, "--watch", "0.2", *words]
    terminal = {"TERM": "xterm", "COLUMNS": "200", "LINES": "40"}
    process = subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, env=os.environ | terminal)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def end(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGINT)
    return process.wait(10)


def read_until(terminal: int, mark: bytes) -> bytes:
    """Return what the terminal got, up to and with the mark."""
    drawn = b""
    deadline = time.monotonic() + 30
    while mark not in drawn:
        ready, _, _ = select.select([terminal], [], [], 10)
        assert ready, f"the terminal shows no {mark!r}: {drawn[-500:]!r}"
        assert time.monotonic() < deadline, f"the terminal shows no {mark!r}: {drawn[-500:]!r}"
        drawn += os.read(terminal, 65536)
    return drawn


@pytest.mark.real
def test_json_is_a_line_each_time_and_an_absent_prometheus_is_reported(tmp_path: Path) -> None:
    """One JSON document a line; when Prometheus goes away it reports that and goes on; Ctrl-C is exit 0."""
    with history.serve(recorded(), tmp_path / "p") as url, watching(url, "--json") as process:
        assert process.stdout is not None
        lines = [json.loads(process.stdout.readline()) for _ in range(3)]
        assert [0.75] * 3 == [line["group_statuses"][0]["budget_left"] for line in lines]
        assert lines[0]["at"] < lines[2]["at"]
    with history.serve(recorded(), tmp_path / "q") as url, watching(url, "--json") as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        address = url
    with watching(address, "--json") as process:
        assert process.stderr is not None
        printed = [process.stderr.readline().decode() for _ in range(2)]
        assert all("is not reachable: Connection refused" in line for line in printed)
        assert process.poll() is None
        assert 130 == end(process)
        assert b"" == process.stderr.read()


@pytest.mark.real
def test_a_reader_that_leaves_ends_it_quietly(tmp_path: Path) -> None:
    """`status --watch --json | head -1` leaves no traceback."""
    with history.serve(recorded(), tmp_path / "p") as url, watching(url, "--json") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert b"" == process.stderr.read()
        assert 1 == process.wait(10)


@pytest.mark.real
def test_a_terminal_shows_the_table_and_is_given_back(tmp_path: Path) -> None:
    """On a terminal the table is drawn on its own screen, which Ctrl-C takes away again."""
    ours, theirs = pty.openpty()
    try:
        with history.serve(recorded(), tmp_path / "p") as url, watching(url, stdout=theirs) as process:
            assert b"\x1b[?1049h" in read_until(ours, b"embedder")  # the terminal's other screen
            process.send_signal(signal.SIGINT)
            read_until(ours, b"\x1b[?1049l")  # and back
            assert 130 == process.wait(10)
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.real
def test_a_pipe_gets_each_table_at_once(tmp_path: Path) -> None:
    """`status --watch | tee log` shows the first table while the verb goes on."""
    with history.serve(recorded(), tmp_path / "p") as url, watching(url) as process:
        assert process.stdout is not None
        for _ in range(2):
            drawn = read_until(process.stdout.fileno(), b"\nat ").decode()
            assert "embedder" in drawn
        assert process.poll() is None
        assert 130 == end(process)
