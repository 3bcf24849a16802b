"""Test that child processes end with their parent, however it ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import psutil
import pytest
import requests

from support.loopback import free_ports
from support.repository import Repository
from support.triton import live_triton
from tritonwatch.local import (
    MOST_ABORTS,
    CannotStartError,
    Child,
    Guard,
    TritonPorts,
    TritonServer,
    describe_exit,
    environment,
    last_lines,
)

PARENT = """
import subprocess, sys, time
from pathlib import Path
from tritonwatch.local import Child, Guard
guard = Guard()
log = Path(sys.argv[1]) / "log"
child = Child("sleeper", ["sh", "-c", "sleep 300 & wait"], log, guard.environment)
child.start()
print(child.process.pid, flush=True)
time.sleep(300)
"""


def _group_is_gone(pid: int) -> bool:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            os.killpg(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_children_end_when_the_parent_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    """A parent that is killed, even with SIGKILL, leaves neither its child nor its child's child."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    os.killpg(child, 0)  # alive now: raises otherwise

    parent.send_signal(number)
    parent.wait(60)
    parent.stdout.close()

    assert _group_is_gone(child)


def test_a_child_that_ignores_sigterm_is_ended(tmp_path: Path) -> None:
    """Stopping is a request first and then an order."""
    child = Child("stubborn", ["sh", "-c", "trap '' TERM; echo up; sleep 300"], tmp_path / "log")
    child.start()
    while "up" not in last_lines(child.log):
        time.sleep(0.02)
    assert child.process is not None

    child.stop(timeout_seconds=0.3)

    assert -signal.SIGKILL == child.process.returncode
    assert _group_is_gone(child.process.pid)


def test_the_guard_ends_what_is_left_when_closed(tmp_path: Path) -> None:
    """Closing the guard sweeps up groups that were forgotten."""
    guard = Guard()
    child = Child("forgotten", ["sleep", "300"], tmp_path / "log", guard.environment)
    other = Child("other", ["sleep", "300"], tmp_path / "log")
    child.start()
    other.start()
    assert child.process is not None
    assert other.process is not None

    guard.close()

    assert -signal.SIGKILL == child.process.wait(60)
    assert other.process.poll() is None
    other.stop()


def test_an_exit_is_described_in_words() -> None:
    """A signal is named, an exit code is given."""
    assert "signal 9 (SIGKILL)" == describe_exit(-9)
    assert "exit code 3" == describe_exit(3)


@pytest.mark.real
def test_a_triton_that_is_killed_leaves_no_shared_memory(tmp_path: Path) -> None:
    """What its python backend shared with its models, a MiB for each and more, is given back."""
    repository = Repository(tmp_path / "models")
    repository.model("echo")
    with live_triton(repository.path, tmp_path) as server:
        assert server.process is not None
        maps = psutil.Process(server.process.pid).memory_maps()
        shared = [Path(entry.path) for entry in maps if entry.path.startswith("/dev/shm/triton")]
        assert [True] == [path.exists() for path in shared]

        server.kill()

        assert [False] == [path.exists() for path in shared]


@pytest.mark.real
@pytest.mark.parametrize("aborts", [1, 3])
def test_a_triton_that_aborts_at_start_is_started_again(tmp_path: Path, aborts: int) -> None:
    """As Triton 2.51 does now and then while a Python model fails to load; not for ever."""

    class Aborting(TritonServer):
        def command(self) -> list[str]:
            counted = (
                f"echo >>{tmp_path}/starts; [ $(wc -l <{tmp_path}/starts) -gt {aborts} ] || kill -ABRT $$"
            )
            return ["sh", "-c", f'{counted}; exec "$0" "$@"', *super().command()]

    (tmp_path / "models").mkdir()
    server = Aborting(tmp_path / "models", tmp_path, TritonPorts(*free_ports(3)))
    server.start()
    try:
        with pytest.raises(CannotStartError) if aborts > MOST_ABORTS else nullcontext():
            server.wait_live()
            assert requests.get(f"{server.http_url}/v2/health/live", timeout=5).ok
    finally:
        server.kill()


def test_triton_embeds_the_python_that_starts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another build of the same version, first on PATH, would give models a library that does not fit."""
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\necho elsewhere\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    which = shutil.which("python3", path=environment()["PATH"])

    assert which is not None
    printed = subprocess.run(
        [which, "-c", "import sys; print(sys.base_prefix)"], capture_output=True, text=True
    )
    assert sys.base_prefix == printed.stdout.strip()
