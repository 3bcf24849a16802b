"""Child processes that end with this process: a guard process ends them even if this one is killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Child:
    """One program with its output in a log file; its stderr goes there too, or to `errors`.

    `environment` is added to that of this process.
    """

    name: str
    command: Sequence[str]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    errors: Path | None = None
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def start(self) -> None:
        """Start the program in its own session, which Ctrl-C does not reach and which `stop` ends as a whole."""
        with self.log.open("ab") as log, (self.errors or self.log).open("ab") as errors:
            self.process = subprocess.Popen(
                self.command,
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=errors,
                start_new_session=True,
            )

    def stop(self, timeout_seconds: float = 10.0) -> None:
        """Send SIGTERM, then SIGKILL to what is left of the session."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout_seconds)
        kill_group(self.process.pid)
        self.process.wait()


def kill_group(pid: int) -> None:
    """End a process group at once; nothing happens if it has ended."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def listener(port: int, proc: Path = Path("/proc")) -> str:
    """Return which program listens on a TCP port, such as `prometheus (process 71)`; empty where unknown."""
    listening = {
        f"socket:[{inode}]" for table in ("tcp", "tcp6") for inode in _inodes(proc / "net" / table, port)
    }
    for process in proc.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # another user's, or it has ended
            if any(os.readlink(descriptor) in listening for descriptor in (process / "fd").iterdir()):
                return f"{(process / 'comm').read_text().strip()} (process {process.name})"
    return ""


def _inodes(table: Path, port: int) -> Iterator[str]:
    """Yield the inode of each socket that listens on a port, from a table of the kernel."""
    listen_state = "0A"
    for line in table.read_text().splitlines()[1:] if table.exists() else ():
        _, local, _, state, *_, inode = line.split()[:10]
        if state == listen_state and local.endswith(f":{port:04X}"):
            yield inode


def describe_exit(code: int) -> str:
    """Return how a process ended: `exit code 1` or `signal 9 (SIGKILL)`."""
    if code >= 0:
        return f"exit code {code}"
    return f"signal {-code} ({signal.Signals(-code).name})"


def last_lines(log: Path, count: int = 3) -> str:
    """Return the end of a log, for an error message."""
    if not log.exists():
        return ""
    return "\n".join(log.read_text(errors="replace").splitlines()[-count:])


class Guard:
    """A process that waits for the end of this one, and then ends every process with a mark.

    It reads a pipe whose only writing end is in this process; the kernel closes that end even after kill -9. The
    mark is an environment variable that a child has from its first moment and passes on to its own children.
    """

    NAME = "TRITONWATCH_GUARD"

    def __init__(self) -> None:
        self.environment = {self.NAME: uuid.uuid4().hex}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tritonwatch.local.process", self.environment[self.NAME]],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def close(self) -> None:
        """End the guard process, which first ends every process with the mark."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def end_marked(mark: str, proc: Path = Path("/proc")) -> int:
    """Kill every process with this mark in its environment and return how many there were."""
    pids = [int(path.name) for path in proc.iterdir() if path.name.isdigit() and _is_marked(path, mark)]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return len(pids)


def _is_marked(process: Path, mark: str) -> bool:
    try:
        return f"{Guard.NAME}={mark}".encode() in (process / "environ").read_bytes().split(b"\0")
    except OSError:  # gone meanwhile, or another user's
        return False


def _guard(mark: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.read()  # returns when the pipe's other end is gone
    # A child that was just being started carries the mark only once it runs its program: check again.
    quiet = 0
    while quiet < 3:
        quiet = 0 if end_marked(mark) else quiet + 1
        time.sleep(0.1)


if __name__ == "__main__":
    _guard(sys.argv[1])
