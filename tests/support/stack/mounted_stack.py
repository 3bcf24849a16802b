"""Run the compose stack's services as plain processes, with the commands and files of docker-compose.yml."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import requests

from support.loopback import free_ports
from support.slack.workspace import TOKEN
from support.stack.compose_policy import COMPOSE, resolved
from support.tools import ROOT
from support.waiting import eventually
from tritonwatch.cli import main as tritonwatch
from tritonwatch.local import Child, Guard, last_lines

OWN = ("exporter", "bridge", "reload", "web")
PORTS = {
    "exporter": 9401,
    "prometheus": 9090,
    "alertmanager": 9093,
    "bridge": 9096,
    "web": 9097,
    "triton": 8000,
}
MOVES = {
    "/etc/prometheus": "etc",
    "/run/secrets": "secrets",
    "/generated": "generated",
    "/objectives": "objectives",
    "/alerts.yaml": "alerts.yaml",
    "/tritonwatch.yaml": "tritonwatch.yaml",
    "/prometheus": "prometheus",
    "/alertmanager": "alertmanager",
    "/data": "bridge",
}
"""A container's folder or file -> ours."""
PASSWORD = "p a$s/w@rd:%\"'#é"
"""As a user may choose it: characters that a shell, an address or YAML would read as something else."""
_LOGIN = requests.auth.HTTPBasicAuth("tritonwatch", PASSWORD.encode())
# Not within an address or a longer path.
_PATHS = re.compile(rf"(?<![\w.:/}}-])(?:{'|'.join(MOVES)})(?![\w-])")


class MountedStack:
    """The services over one folder, each on a free port of 127.0.0.1; a context manager that ends them.

    `faster` scales the rules' windows and scrapes every second. Otherwise only paths, host names and ports of
    the mounted files differ from the containers'. `settings` are variables of docker compose, as in a file `.env`.
    """

    def __init__(
        self,
        folder: Path,
        binaries: Mapping[str, Path],
        *,
        slack_url: str,
        faster: bool,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self._binaries = binaries
        self._slack_url = slack_url
        self._faster = faster
        self._settings = settings or {}
        self.ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        # Triton's usual metrics port may be a real one's, of somebody else on this machine.
        self.triton_metrics = f"http://127.0.0.1:{free_ports(1)[0]}/metrics"
        self.services = self._configured()
        self._guard = Guard()
        self.children: dict[str, Child] = {}

    def __enter__(self) -> MountedStack:
        # For `generate` and `reload`, which run within the tests.
        self._variables = patch.dict(os.environ, self.variables("reload"))
        self._variables.start()
        return self

    def __exit__(self, *_: object) -> None:
        for child in reversed(self.children.values()):
            child.stop(5)
        self._guard.close()
        self._variables.stop()

    def url(self, service: str) -> str:
        return f"http://127.0.0.1:{self.ports[service]}"

    def get(self, service: str, path: str, *, login: bool = True) -> requests.Response:
        """Ask a service, as the stack's user or as nobody."""
        return requests.get(self.url(service) + path, auth=_LOGIN if login else None, timeout=60)

    def variables(self, service: str) -> dict[str, str]:
        """Return the environment of a service, with addresses of this machine."""
        given = self.services[service].get("environment") or {}
        return {name: self.moved(value) for name, value in given.items() if not name.startswith("GF_")}

    def own_command(self, service: str) -> list[str]:
        """Return the arguments of one of our own services, with paths and ports of this machine."""
        words = [self.moved(word) for word in self.services[service]["command"]]
        # An empty setting is what docker compose leaves where a variable is not set.
        if service in ("generator", "reload"):
            words += ["--time-scale=1/360", "--scrape-interval=1"] if self._faster else []
        return words

    def command(self, service: str) -> list[str]:
        """Return the command line of a service, as a process of this machine."""
        words = self.own_command(service)
        if service not in OWN:
            listen = f"--web.listen-address=127.0.0.1:{self.ports[service]}"
            return [str(self._binaries[service]), *words, listen]
        words = [sys.executable, "-m", "tritonwatch", *words]
        words += [f"--slack-url={self._slack_url}"] if service == "bridge" else []
        words += [f"--triton-metrics={self.triton_metrics}"] if service in ("exporter", "web") else []
        return words

    def generate(self) -> int:
        """Do the work of the one-shot service."""
        return tritonwatch(self.own_command("generator"))

    def start(self, service: str) -> None:
        """Start a service as its container would, and wait until it answers."""
        child = Child(
            service,
            self.command(service),
            self.folder / f"{service}.log",
            self._guard.environment | self.variables(service),
        )
        self.children[service] = child
        child.start()
        process = child.process
        assert process is not None
        eventually(
            lambda: process.poll() is not None or self.healthy(service), lambda: last_lines(child.log, 20)
        )
        assert process.poll() is None, last_lines(child.log, 20)

    def healthy(self, service: str) -> bool:
        """Run the service's own healthcheck, as Docker would."""
        how, *words = self.services[service]["healthcheck"]["test"]
        words = [self.moved(word).replace("$$", "$") for word in words]
        command = ["sh", "-c", *words] if how == "CMD-SHELL" else words
        command = [sys.executable, *command[1:]] if command[0] == "python" else command
        return subprocess.run(command, capture_output=True, timeout=120).returncode == 0

    def moved(self, text: str) -> str:
        """Return a container's text with the paths, names and ports of this machine."""
        for name, port in PORTS.items():
            text = re.sub(
                rf"\b(?:{name}|localhost|0\.0\.0\.0|127\.0\.0\.1)([:/]){port}\b",
                rf"127.0.0.1\g<1>{self.ports[name]}",
                text,
            )
        return _PATHS.sub(lambda match: str(self.folder / MOVES[match[0]]), text)

    def _configured(self) -> dict[str, dict[str, Any]]:
        for name in set(MOVES.values()) - {"objectives", "alerts.yaml", "tritonwatch.yaml"}:
            (self.folder / name).mkdir()
        shutil.copytree(ROOT / "slo" / "objectives", self.folder / "objectives")
        shutil.copy(ROOT / "alerts" / "alerts.yaml", self.folder)
        made = self.folder / "made"
        made.mkdir()
        (made / "stack_password").write_text(PASSWORD + "\n")
        subprocess.run(
            ["sh", str(ROOT / "compose" / "make-secrets.sh"), str(made)],
            check=True,
            capture_output=True,
            env={"PATH": "/usr/bin:/bin", "PYTHON": sys.executable},
        )
        (made / "slack_bot_token").write_text(TOKEN)
        config = resolved(COMPOSE, SECRETS_DIR=str(made), **self._settings)
        for name, secret in config["secrets"].items():
            shutil.copy(secret["file"], self.folder / "secrets" / name)
        text = self.moved((ROOT / "compose" / "prometheus" / "prometheus.yml").read_text())
        if self._faster:
            text = text.replace("15s", "1s\n  scrape_timeout: 1s", 1).replace("15s", "1s")
        (self.folder / "etc" / "prometheus.yml").write_text(text)
        project = self.moved((ROOT / "compose" / "tritonwatch.yaml").read_text())
        (self.folder / "tritonwatch.yaml").write_text(project)
        services: dict[str, dict[str, Any]] = config["services"]
        return services
