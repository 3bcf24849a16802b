"""Real servers on loopback: child processes that end with this one, Triton, Prometheus and Alertmanager."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import requests
import yaml

from triton_exporter.catalogue import EXPORTER_JOB


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


def listener(port: int) -> str:
    """Return which program listens on a TCP port, such as `prometheus (process 71)`; empty where unknown."""
    listening = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        for line in table.read_text().splitlines()[1:] if table.exists() else ():
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A" and local.endswith(f":{port:04X}"):  # it listens there
                listening.add(f"socket:[{inode}]")
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # another user's, or it has ended
            if any(os.readlink(descriptor) in listening for descriptor in (process / "fd").iterdir()):
                return f"{(process / 'comm').read_text().strip()} (process {process.name})"
    return ""


def describe_exit(code: int) -> str:
    """Return how a process ended: `exit code 1` or `signal 9 (SIGKILL)`."""
    if code >= 0:
        return f"exit code {code}"
    return f"signal {-code} ({signal.Signals(-code).name})"


def last_lines(log: Path, count: int = 3) -> str:
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
            [sys.executable, "-m", "tritonwatch.local", self.environment[self.NAME]],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def close(self) -> None:
        """End the guard process, which first ends every process with the mark."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def end_marked(mark: str) -> int:
    """Kill every process with this mark in its environment and return how many there were."""
    processes = (path for path in Path("/proc").iterdir() if path.name.isdigit())
    pids = [int(path.name) for path in processes if _is_marked(path, mark)]
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


MOST_ABORTS = 2
"""Aborts at start after which Triton is started again."""
_ABORTS = (-signal.SIGABRT, -signal.SIGSEGV)


class CannotStartError(Exception):
    """The server cannot run here; the message is one line with the reason and what to do."""


@dataclass(frozen=True, slots=True)
class TritonPorts:
    http: int
    grpc: int
    metrics: int


@dataclass
class TritonServer:
    """One tritonserver process over a model repository.

    `directory` receives the backend folder and the log; both paths must be absolute. `control` is Triton's
    --model-control-mode (none, poll, explicit). The server starts with --exit-on-error=false, so a broken
    model leaves the others serving. Without `auto_complete` Triton takes configurations as they are: to complete
    one it starts a second process for each load, and waits 1.3 s for its end.
    """

    repository: Path
    directory: Path
    ports: TritonPorts
    control: str = "none"
    arguments: Sequence[str] = ()
    address: str = "127.0.0.1"
    environment: Mapping[str, str] = field(default_factory=dict)
    auto_complete: bool = True
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    shared_memory: str = field(init=False)
    """What the names of its python backend's regions in /dev/shm begin with."""

    def __post_init__(self) -> None:
        self.shared_memory = f"triton_python_backend_shm_region_{uuid.uuid4().hex[:8]}_"

    @property
    def http_url(self) -> str:
        return f"http://127.0.0.1:{self.ports.http}"

    @property
    def metrics_url(self) -> str:
        return f"http://127.0.0.1:{self.ports.metrics}/metrics"

    @property
    def log(self) -> Path:
        return self.directory / "triton.log"

    def command(self) -> list[str]:
        return [
            str(wheel_folder() / "bin" / "tritonserver"),
            f"--model-repository={self.repository}",
            f"--backend-directory={self.directory / 'backends'}",
            f"--backend-config=python,shm-region-prefix-name={self.shared_memory}",
            "--exit-on-error=false",
            f"--model-control-mode={self.control}",
            f"--http-address={self.address}",
            f"--http-port={self.ports.http}",
            f"--grpc-address={self.address}",
            f"--grpc-port={self.ports.grpc}",
            f"--metrics-address={self.address}",
            f"--metrics-port={self.ports.metrics}",
            *([] if self.auto_complete else ["--disable-auto-complete-config"]),
            # Without a GPU, DCGM cannot start, and Triton can wait for it forever.
            *([] if Path("/dev/nvidiactl").exists() else ["--allow-gpu-metrics=false"]),
            *self.arguments,
        ]

    def start(self) -> None:
        """Start the process; returns at once. Raises CannotStartError when a part is missing."""
        prepare_backends(self.directory / "backends")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command(),
                # The stubs run an isolated Python: it ignores PYTHONPATH but has the working directory first
                # on its path, which is how models find numpy.
                cwd=_site_packages(),
                env={**environment(), **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Its own group, so that the python stubs can be ended with it.
                start_new_session=True,
            )

    def wait_live(self, timeout_seconds: float = 60.0) -> None:
        """Wait until the HTTP API and the metrics port respond, which is after all loads at start.

        Now and then Triton aborts while one Python model fails to load beside others (a lock in shared memory,
        triton-inference-server/server#8882): it is started again, as Kubernetes would.
        """
        deadline = time.monotonic() + timeout_seconds
        aborts = 0
        while time.monotonic() < deadline:
            if self.process is None or self.process.poll() is not None:
                aborts += 1
                if self.process is None or self.process.returncode not in _ABORTS or aborts > MOST_ABORTS:
                    raise CannotStartError(f"tritonserver ended while starting; see {self.log}")
                self.kill()
                self.start()
            with contextlib.suppress(requests.RequestException):
                urls = (f"{self.http_url}/v2/health/live", self.metrics_url)
                if all(requests.get(url, timeout=2).ok for url in urls):
                    return
            time.sleep(0.1)
        raise CannotStartError(f"tritonserver was not live after {timeout_seconds:g} s; see {self.log}")

    def stop(self, timeout_seconds: float = 15.0) -> None:
        """End the server and its stubs, then wait until its ports are free."""
        if self.process is None:
            return
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout_seconds)
        self.kill()
        deadline = time.monotonic() + timeout_seconds
        for port in (self.ports.http, self.ports.grpc, self.ports.metrics):
            while not port_is_free(port) and time.monotonic() < deadline:
                time.sleep(0.05)

    def kill(self) -> None:
        """End the server and its stubs at once, and delete their shared memory, which would stay allocated."""
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for region in Path("/dev/shm").glob(f"{self.shared_memory}*"):  # noqa: S108 - where Triton puts them
            region.unlink(missing_ok=True)


def port_is_free(port: int) -> bool:
    """Return whether 127.0.0.1:port can be bound now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def prepare_backends(directory: Path) -> None:
    """Make a backend folder: the wheel's python backend beside the stub of the running Python."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = wheel_folder() / "python_backend_stubs" / version / "triton_python_backend_stub"
    if not stub.exists():
        have = ", ".join(sorted(path.name for path in (wheel_folder() / "python_backend_stubs").glob("3.*")))
        raise CannotStartError(f"no Triton python stub for Python {version}; use one of {have}")
    target = directory / "python"
    if not target.exists():
        shutil.copytree(wheel_folder() / "backends" / "python", target)
        shutil.copy2(stub, target / stub.name)


def environment() -> dict[str, str]:
    """Return the environment of tritonserver: libpython, its standard library, the wheel's libraries, and numpy."""
    wheel = wheel_folder()
    paths = [_libpython_directory(), wheel.parents[1] / "nvidia_pytriton.libs"]
    return os.environ | {
        # An embedded Python takes the standard library of the first python3 on PATH, which may be another build.
        "PATH": os.pathsep.join((f"{sys.base_prefix}/bin", os.environ.get("PATH", os.defpath))),
        "LD_LIBRARY_PATH": os.pathsep.join(str(path) for path in paths),
        "PYTHONPATH": str(_site_packages()),
    }


def _site_packages() -> Path:
    numpy = importlib.util.find_spec("numpy")
    if numpy is None or numpy.origin is None:
        raise CannotStartError("Triton's Python models need numpy; try: pip install 'tritonwatch[demo]'")
    return Path(numpy.origin).parents[1]


def wheel_folder() -> Path:
    """Return the folder of the real tritonserver. Raises CannotStartError where its wheel is not installed."""
    spec = importlib.util.find_spec("pytriton")
    if spec is None or spec.origin is None:
        raise CannotStartError(
            "the real tritonserver comes with a wheel; try: pip install 'tritonwatch[demo]'"
        )
    return Path(spec.origin).parent / "tritonserver"


def _libpython_directory() -> Path:
    name = f"libpython{sys.version_info.major}.{sys.version_info.minor}.so.1.0"
    candidates = (
        Path(str(sysconfig.get_config_var("LIBDIR"))),
        Path(sys.base_prefix) / "lib",
        Path("/usr/lib") / str(sysconfig.get_config_var("MULTIARCH")),
    )
    for directory in candidates:
        if os.path.exists(directory / name):  # not Path.exists, which raises where a folder may not be read
            return directory
    raise CannotStartError(
        f"{name} is missing: Triton's python backend needs it; "
        f"install libpython{sys.version_info.major}.{sys.version_info.minor} "
        "or use a Python built with --enable-shared"
    )


def find_binary(*names: str) -> str:
    """Return the first of these programs that is on PATH; Debian names Alertmanager's binary differently."""
    for name in names:
        if path := shutil.which(name):
            return path
    raise CannotStartError(f"{names[0]} is not on PATH; `make tools` installs it, or see the README")


def alertmanager_binary() -> str:
    return find_binary("alertmanager", "prometheus-alertmanager")


def prometheus_config(
    exporter: str,
    alertmanager: str,
    rule_files: Sequence[str],
    others: Mapping[str, str],
    interval_seconds: float,
    triton: str = "",
) -> str:
    """Return a prometheus.yml that scrapes the exporter (and through it Triton) and sends alerts to Alertmanager.

    `exporter`, `alertmanager` and the values of `others` (job -> target) are host:port; `triton` is the instance
    of the exporter's series, by default its own address.
    """
    interval = f"{round(interval_seconds * 1000)}ms"
    jobs = {EXPORTER_JOB: exporter, "alertmanager": alertmanager, **others}
    labels = {"labels": {"instance": triton}} if triton else {}
    config = {
        "global": {"scrape_interval": interval, "evaluation_interval": interval, "scrape_timeout": interval},
        "rule_files": list(rule_files),
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
        "scrape_configs": [
            {
                "job_name": job,
                "static_configs": [{"targets": [target], **(labels if job == EXPORTER_JOB else {})}],
            }
            for job, target in jobs.items()
        ],
    }
    return yaml.safe_dump(config, sort_keys=False)


def prometheus_command(config: Path, data: Path, port: int) -> list[str]:
    """Return the command line of a Prometheus on 127.0.0.1."""
    return [
        find_binary("prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={data}",
        "--storage.tsdb.retention.time=1d",
        "--enable-feature=exemplar-storage",
        f"--web.listen-address=127.0.0.1:{port}",
        f"--web.external-url=http://127.0.0.1:{port}",
    ]


def alertmanager_command(config: Path, data: Path, port: int) -> list[str]:
    """Return the command line of a single Alertmanager on 127.0.0.1, with clustering off."""
    return [
        alertmanager_binary(),
        f"--config.file={config}",
        f"--storage.path={data}",
        f"--web.listen-address=127.0.0.1:{port}",
        f"--web.external-url=http://127.0.0.1:{port}",
        "--cluster.listen-address=",
    ]
