"""A real tritonserver on loopback: the binary inside the nvidia-pytriton wheel, run directly.

The wheel carries Triton 2.51 (24.10) with the python backend. The backend starts one stub process per model
instance; the stub must match the running Python and needs its libpython.
"""

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

MOST_ABORTS = 2
"""Aborts at start after which Triton is started again."""
_ABORTS = (-signal.SIGABRT, -signal.SIGSEGV)


class CannotStartError(Exception):
    """The server cannot run here; the message is one line with the reason and what to do."""


@dataclass(frozen=True, slots=True)
class TritonPorts:
    """Ports of the server."""

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
        """Return the full command line."""
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
            *_gpu_metrics_options(),
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


def _gpu_metrics_options() -> tuple[str, ...]:
    # Without a GPU, DCGM cannot start, and Triton can wait for it forever.
    return () if Path("/dev/nvidiactl").exists() else ("--allow-gpu-metrics=false",)


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
