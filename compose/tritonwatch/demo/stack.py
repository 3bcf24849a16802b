"""All parts of the demo as processes over one folder, started in order and ended together."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import requests

from triton_slo.bridge_series import BRIDGE_JOB
from tritonwatch import cli, files
from tritonwatch.local import (
    CannotStartError,
    Child,
    Guard,
    TritonPorts,
    TritonServer,
    alertmanager_binary,
    alertmanager_command,
    describe_exit,
    find_binary,
    kill_group,
    last_lines,
    listener,
    port_is_free,
    prometheus_command,
    prometheus_config,
    wheel_folder,
)

INTERVAL_SECONDS = 1.0
"""Scrape and evaluation interval of the demo."""
FIRST_OTHER_PORT = 21_000
"""From here, other ports are proposed where those of the demo are in use."""
FREE_DISK_BYTES = 300 * 1024 * 1024
START_SECONDS = 60.0
POLL_SECONDS = 3
"""Seconds between two polls of the model repository by Triton, which so retries `broken` and finds it repaired."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Ports of the demo's servers on 127.0.0.1, counted up from the first."""

    base: int

    PARTS = (
        "Triton HTTP",
        "Triton gRPC",
        "Triton metrics",
        "exporter",
        "Prometheus",
        "Alertmanager",
        "bridge",
        "web page",
    )

    def __getitem__(self, part: str) -> int:
        return self.base + self.PARTS.index(part)

    def url(self, part: str) -> str:
        return f"http://127.0.0.1:{self[part]}"

    def taken(self) -> Iterator[str]:
        """Yield each part whose port is in use."""
        return (part for part in self.PARTS if not port_is_free(self[part]))


def check_machine(ports: Ports, folder: Path) -> None:
    """Raise CannotStartError if the demo cannot run here; `folder` need not exist, and nothing is written."""
    if part := next(ports.taken(), None):
        user = listener(ports[part])
        free = next(base for base in range(FIRST_OTHER_PORT, 60_000, 100) if not any(Ports(base).taken()))
        raise CannotStartError(
            f"port {ports[part]} (for {part}) is in use{f' by {user}' if user else ''}; choose "
            f"{len(Ports.PARTS)} other ports: --port-base {free} (make demo ARGS='--port-base {free}')"
        )
    find_binary("prometheus")
    alertmanager_binary()
    wheel_folder()
    folder = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if shutil.disk_usage(folder).free < FREE_DISK_BYTES:
        raise CannotStartError(
            f"less than {FREE_DISK_BYTES // 2**20} MiB free in {folder}; choose another --dir"
        )


class Stack:
    """The demo's processes. `start` yields a line before each part; `stop` ends every part that was started."""

    def __init__(self, directory: Path, ports: Ports, time_scale: float) -> None:
        self.directory = directory
        self.ports = ports
        self.time_scale = time_scale
        self.triton = TritonServer(
            directory / "models",
            directory / "triton",
            TritonPorts(ports["Triton HTTP"], ports["Triton gRPC"], ports["Triton metrics"]),
            control="poll",
            arguments=[f"--repository-poll-secs={POLL_SECONDS}"],
            auto_complete=False,
        )
        self.children: list[Child] = []
        self._guard: Guard | None = None

    @property
    def addresses(self) -> Mapping[str, str]:
        """Name -> URL of everything a person may want to open."""
        shown = ["web page", "exporter", "Prometheus", "Alertmanager"]
        addresses_by_name = {name: self.ports.url(name) for name in shown}
        addresses_by_name["exporter"] += "/metrics"
        triton = {"Triton": self.triton.http_url, "Triton metrics": self.triton.metrics_url}
        return {**triton, **addresses_by_name, "files": str(self.directory)}

    @property
    def bridge_log(self) -> Path:
        return self.directory / "logs" / "bridge.log"

    @property
    def bridge_data(self) -> Path:
        return self.directory / "bridge"

    def start(self) -> Iterator[str]:
        """Start everything, yielding a line before each part."""
        self._prepare()
        self._guard = Guard()
        self.triton.environment = self._guard.environment
        yield "starting Triton (a real tritonserver on python-backend models)"
        self.triton.start()
        self.triton.wait_live()
        for child, url in self._parts():
            yield f"starting {child.name}"
            child.environment = {**child.environment, **self._guard.environment}
            self.children.append(child)
            child.start()
            self._wait_for(child, url)

    def stop(self) -> None:
        """End every process; safe to call at any moment."""
        for child in reversed(self.children):
            child.stop(5)
        # Triton has nothing to save, and its graceful shutdown takes seconds.
        self.triton.kill()
        if self._guard is not None:
            self._guard.close()

    def ended(self) -> str:
        """Return a line about a process (not Triton) that ended unexpectedly, or an empty text."""
        for child in self.children:
            code = child.process.poll() if child.process else None
            if code is not None:
                lines = last_lines(child.errors or child.log)
                return f"{child.name} ended with {describe_exit(code)}; its last lines:\n{lines}"
        return ""

    def triton_ended(self) -> str:
        """Return a line about Triton if it has ended, or nothing. Its python stubs are ended with it."""
        code = self.triton.process.poll() if self.triton.process else None
        if code is None or self.triton.process is None:
            return ""
        kill_group(self.triton.process.pid)
        return f"Triton ended with {describe_exit(code)}"

    def repair(self) -> None:
        """Repair the broken model as an engineer would: add the missing file."""
        weights = self.directory / "models" / "broken" / "1" / "weights.txt"
        # Written beside and moved, so that Triton never reads half of it.
        draft = self.directory / "weights.txt"
        draft.write_text("2.5\n")
        draft.replace(weights)

    def _prepare(self) -> None:
        for name in ("triton", "logs", "prometheus", "alertmanager", "bridge"):
            (self.directory / name).mkdir(exist_ok=True)
        shutil.copytree(files.demo_models(), self.directory / "models")
        self._generate()
        config = prometheus_config(
            f"127.0.0.1:{self.ports['exporter']}",
            f"127.0.0.1:{self.ports['Alertmanager']}",
            [str(self.directory / "generated" / "rules" / "*.yml")],
            {
                BRIDGE_JOB: f"127.0.0.1:{self.ports['bridge']}",
                "prometheus": f"127.0.0.1:{self.ports['Prometheus']}",
            },
            INTERVAL_SECONDS,
            self.triton.http_url.removeprefix("http://"),
        )
        (self.directory / "prometheus.yml").write_text(config)

    def _generate(self) -> None:
        argv = ["generate", "--objectives", str(files.objectives())]
        argv += ["--out", str(self.directory / "generated")]
        argv += ["--time-scale", str(self.time_scale), "--scrape-interval", str(INTERVAL_SECONDS)]
        argv += ["--webhook-url", self.ports.url("bridge") + "/alertmanager"]
        if cli.main(argv) != 0:
            raise CannotStartError("the rules could not be generated; see above")

    def _parts(self) -> Iterator[tuple[Child, str]]:
        ports, own = self.ports, [sys.executable, "-m", "tritonwatch"]
        exporter = ["exporter", "--triton", self.triton.http_url, "--triton-metrics", self.triton.metrics_url]
        exporter += ["--gpu", "none", "--listen", f"127.0.0.1:{ports['exporter']}"]
        exporter += ["--triton-log", str(self.triton.log), "--buckets-from", str(files.objectives())]
        exporter += ["--state-file", str(self.directory / "exporter.json")]
        yield self._child("exporter", [*own, *exporter]), ports.url("exporter") + "/metrics"
        argv = ["bridge", "--dry-run", "--listen", f"127.0.0.1:{ports['bridge']}"]
        argv += ["--data", str(self.bridge_data), "--exporter", ports.url("exporter")]
        argv += ["--prometheus", ports.url("Prometheus")]
        bridge = self._child("bridge", [*own, *argv])
        bridge.errors = self.bridge_log.with_suffix(".errors.log")
        yield bridge, ports.url("bridge") + "/-/ready"
        config = self.directory / "generated" / "alertmanager" / "alertmanager.yml"
        command = alertmanager_command(config, self.directory / "alertmanager", ports["Alertmanager"])
        yield self._child("Alertmanager", command), ports.url("Alertmanager") + "/-/ready"
        command = prometheus_command(
            self.directory / "prometheus.yml", self.directory / "prometheus", ports["Prometheus"]
        )
        yield self._child("Prometheus", command), ports.url("Prometheus") + "/-/ready"
        web = ["web", "--listen", f"127.0.0.1:{ports['web page']}", "--prometheus", ports.url("Prometheus")]
        web += ["--objectives", str(files.objectives()), "--bridge-data", str(self.bridge_data)]
        web += ["--time-scale", str(self.time_scale), "--scrape-interval", str(INTERVAL_SECONDS)]
        web += ["--alertmanager", ports.url("Alertmanager"), "--triton", self.triton.http_url]
        web += ["--triton-metrics", self.triton.metrics_url, "--gpu", "none"]
        yield self._child("web page", [*own, *web]), ports.url("web page") + "/-/ready"

    def _child(self, name: str, command: list[str]) -> Child:
        environment = {"PYTHONUNBUFFERED": "1"}
        return Child(name, command, self.directory / "logs" / f"{name.lower()}.log", environment)

    def _wait_for(self, child: Child, url: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if ended := self.ended():
                raise CannotStartError(ended)
            with contextlib.suppress(requests.RequestException):
                if requests.get(url, timeout=2).status_code == 200:
                    return
            time.sleep(0.1)
        raise CannotStartError(
            f"{child.name} did not answer at {url} in {START_SECONDS:g} s; see {child.log}"
        )
