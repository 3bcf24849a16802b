"""Start a folder and servers as the recipes assume them: real Triton, exporter, Prometheus and Alertmanager."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from docs.recipes import arguments, parts, write_files
from support.fast_prometheus import FastPrometheus
from support.loopback import free_ports, until_answers
from support.tools import ROOT
from triton_slo import names
from tritonwatch.cli import main
from tritonwatch.local import (
    Child,
    TritonPorts,
    TritonServer,
    alertmanager_command,
    prometheus_command,
    prometheus_config,
)

SETUP = "What they were tried on"
RECIPES = parts("howto.md")


@dataclass(frozen=True)
class RecipeServers:
    """A folder as the page wants it, and where its servers really listen."""

    directory: Path
    ports: dict[str, int]

    def local(self, text: str) -> str:
        """Return the text with the addresses of these servers for the usual ones."""
        for usual, real in self.ports.items():
            text = re.sub(rf"(?:localhost|127\.0\.0\.1):{usual}\b", f"127.0.0.1:{real}", text)
        return text

    def shell(self, commands: str) -> subprocess.CompletedProcess[str]:
        """Run a block of the page in its folder."""
        commands = self.local(commands)
        return subprocess.run(
            ["bash", "-e", "-c", commands],
            cwd=self.directory,
            env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=300,  # beside all other tests
        )


@contextmanager
def running(directory: Path) -> Iterator[RecipeServers]:
    """Run the servers of the page, with the arguments that it gives them."""
    setup = RECIPES[SETUP]
    write_files(setup, directory)
    shutil.copytree(ROOT / "slo" / "objectives", directory / "objectives")
    http, grpc, metrics, exporter, prometheus, alertmanager = free_ports(6)
    ports = {"8000": http, "8002": metrics, "9401": exporter, "9090": prometheus, "9093": alertmanager}
    chosen = [word for word in arguments(setup, "tritonserver") if "model-" not in word.partition("=")[0]]
    chosen += [word for word in arguments(setup, "tritonserver") if word.startswith("--load-model")]
    triton = TritonServer(
        directory / "models",
        directory,
        TritonPorts(http, grpc, metrics),
        control="explicit",
        arguments=[word.replace("=triton.log", f"={directory}/triton.log") for word in chosen],
    )
    with ExitStack() as ends:
        ends.callback(triton.kill)
        triton.start()
        triton.wait_live()
        for child, url in _children(directory, ports, triton):
            ends.callback(child.stop, 3)
            child.start()
            until_answers(url)
        # A Prometheus that is ready has scraped nothing yet: its targets come to it after some five seconds.
        FastPrometheus(f"http://127.0.0.1:{prometheus}").wait_seen(names.OBJECTIVE_RATIO)
        yield RecipeServers(directory, ports)


def _children(directory: Path, ports: dict[str, int], triton: TritonServer) -> Iterator[tuple[Child, str]]:
    url = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
    [project] = [
        block.text
        for blocks in parts("start.md").values()
        for block in blocks
        if block.title == "tritonwatch.yaml"
    ]
    for port, chosen in ports.items():
        project = project.replace(f":{port}", f":{chosen}")
    (directory / "tritonwatch.yaml").write_text(project)
    assert 0 == main(["generate", "--project", f"{directory}/tritonwatch.yaml"])
    # Two evaluations of readiness are waited for.
    readiness = directory / "generated" / "rules" / "slo-readiness.yml"
    readiness.write_text(readiness.read_text().replace("interval: 30s", "interval: 5s"))
    own = arguments(RECIPES[SETUP], "tritonwatch")
    own[own.index("http://localhost:8000")] = triton.http_url
    own = [f"{directory}/{word}" if word in ("triton.log", "objectives") else word for word in own]
    own += ["--triton-metrics", triton.metrics_url, "--gpu", "none", "--listen", f"127.0.0.1:{ports['9401']}"]
    exporter = [sys.executable, "-m", "tritonwatch", *own]
    yield Child("exporter", exporter, directory / "exporter.log"), url["9401"] + "/-/ready"
    routes = directory / "generated" / "alertmanager" / "alertmanager.yml"
    command = alertmanager_command(routes, directory / "alertmanager", ports["9093"])
    yield Child("Alertmanager", command, directory / "alertmanager.log"), url["9093"] + "/-/ready"
    config = directory / "prometheus.yml"
    scraped, alertmanager = (f"127.0.0.1:{ports[name]}" for name in ("9401", "9093"))
    config.write_text(
        prometheus_config(scraped, alertmanager, [f"{directory}/generated/rules/*.yml"], {}, 2.0)
    )
    more = [word for word in arguments(RECIPES[SETUP], "prometheus") if word.startswith("--web")]
    command = [*prometheus_command(config, directory / "prometheus", ports["9090"]), *more]
    yield Child("Prometheus", command, directory / "prometheus.log"), url["9090"] + "/-/ready"
