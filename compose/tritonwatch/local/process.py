"""Child processes that never outlive us: each in its own group, and a guard ends them if we are killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Child:
    """One program, its output in a log file; what it says on stderr goes there too, or to `errors`."""

    name: str
    command: Sequence[str]
    log: Path
    environment: Mapping[str, str] | None = None
    errors: Path | None = None
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def start(self) -> None:
        """Start it in a session of its own, so that Ctrl-C reaches only us and its children end with it."""
        with self.log.open("ab") as log, (self.errors or self.log).open("ab") as errors:
            self.process = subprocess.Popen(
                self.command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=errors,
                start_new_session=True,
            )

    def stop(self, timeout_seconds: float = 10.0) -> None:
        """Ask it to end, then make it."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout_seconds)
        kill_group(self.process.pid)
        self.process.wait()


def kill_group(pid: int) -> None:
    """End a process group at once; nothing happens if it is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def describe_exit(code: int) -> str:
    """`exit code 1` or `signal 9 (SIGKILL)`."""
    if code >= 0:
        return f"exit code {code}"
    return f"signal {-code} ({signal.Signals(-code).name})"


def last_lines(log: Path, count: int = 3) -> str:
    """The end of a log, for an error message."""
    if not log.exists():
        return ""
    return "\n".join(log.read_text(errors="replace").splitlines()[-count:])


class Guard:
    """A process that waits for our death and then ends every group it was told of.

    It holds the reading end of a pipe whose only writing end is ours; the kernel closes ours whatever way we
    end, kill -9 included.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tritonwatch.local.process"],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def watch(self, pid: int) -> None:
        """End the group of this process when we are gone."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{pid}\n".encode())
        self._process.stdin.flush()

    def close(self) -> None:
        """Tell the guard that we are done; it ends whatever is left of the groups, and itself."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def _guard() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    groups = [int(line) for line in sys.stdin]  # ends when the pipe does
    for group in groups:
        kill_group(group)


if __name__ == "__main__":
    _guard()
