"""Run the compose stack on a real Docker engine, as docs/compose.md describes; `make test-docker` runs it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from containers.engine import Engine, engine
from support.slack.server import SlackServer
from support.slack.workspace import TOKEN, Workspace
from support.stack.mounted_stack import PASSWORD
from support.tools import ROOT
from support.waiting import eventually

_PROJECT = "tritonwatch-test"
_SERVICES = ("exporter", "prometheus", "alertmanager", "bridge", "web", "triton-demo")
_LOGIN = requests.auth.HTTPBasicAuth("tritonwatch", PASSWORD.encode())
_COMPOSE = ROOT / "compose" / "docker-compose.yml"


@dataclass
class Stack:
    """The stack of docs/compose.md in a project of its own, with Slack's stand-in on the host."""

    engine: Engine
    folder: Path
    slack: SlackServer
    services: tuple[str, ...]
    settings: dict[str, str] = field(default_factory=dict)

    def compose(self, *words: str, fails: bool = False) -> subprocess.CompletedProcess[bytes]:
        """Run `docker compose WORDS` with the settings of its .env file, as a user has them in compose/.env."""
        env_file = self.folder / "env"
        env_file.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))
        files = ["-f", _COMPOSE, "-f", self.folder / "override.yml"]
        return self.engine.docker(
            "compose",
            "-p",
            _PROJECT,
            "--env-file",
            env_file,
            *files,
            "--profile",
            "demo",
            *words,
            fails=fails,
        )

    def up(self, *words: str) -> None:
        """Start what can run here and wait until all is healthy."""
        self.compose("up", "-d", "--wait", "--wait-timeout", "300", *words, *self.services)

    def get(self, service: str, path: str) -> Any:
        """Ask Prometheus or Alertmanager on its published port, logged in."""
        port = self.settings[f"{service.upper()}_PORT"]
        return requests.get(f"http://127.0.0.1:{port}{path}", auth=_LOGIN, timeout=10).json()

    def states(self) -> dict[str, str]:
        """Health of every running service."""
        lines = self.compose("ps", "--format", "json").stdout.splitlines()
        return {line["Service"]: line["Health"] for line in map(json.loads, lines)}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("docker")
    workspace = Workspace(channels={"C0ALERTS": "#triton-alerts"})
    with engine(folder) as docker, SlackServer(workspace, host="0.0.0.0") as slack:
        objectives = folder / "objectives"
        objectives.mkdir(mode=0o755)
        for path in (ROOT / "slo" / "objectives").glob("*.yaml"):
            (objectives / path.name).write_text(path.read_text())
        services = _SERVICES if not docker.real_images else (*_SERVICES, "grafana")
        settings = {
            "OBJECTIVES_DIR": str(objectives),
            "SECRETS_DIR": str(folder / "secrets"),
            "SLACK_CHANNEL": "C0ALERTS",
            "PROMETHEUS_PORT": "19090",
            "ALERTMANAGER_PORT": "19093",
            "GRAFANA_PORT": "13000",
            "WEB_PORT": "19097",
            **docker.versions,
        }
        running = Stack(docker, folder, slack, services, settings)
        (folder / "override.yml").write_text("services: {}\n")
        for path in (folder, folder.parent, folder.parent.parent):
            path.chmod(0o755)
        _override(running)
        try:
            yield running
        finally:
            (ROOT / ".cache" / "test-docker.log").write_bytes(
                running.compose("logs", "--no-color", fails=True).stdout
            )
            running.compose("down", "-v", "--timeout", "50", fails=True)


def _override(stack: Stack) -> None:
    """Name the stand-in's address, which no variable does, to the bridge."""
    services = json.loads(stack.compose("config", "--format", "json").stdout)["services"]
    command = [
        *services["bridge"]["command"],
        f"--slack-url=http://host.docker.internal:{stack.slack.server_address[1]}/api/",
    ]
    arguments: dict[str, Any] = (
        {} if stack.engine.real_images else {"build": {"args": {"PYTHON": "local", "PROMETHEUS": "local"}}}
    )
    override = {name: arguments for name in ("generator", "exporter", "triton-demo") if arguments}
    override["bridge"] = {"command": command, "extra_hosts": ["host.docker.internal:host-gateway"]}
    (stack.folder / "override.yml").write_text(yaml.safe_dump({"services": override}))


def test_secrets_are_made_without_a_python_of_the_host(stack: Stack) -> None:
    """The stack's own image hashes the password: a Docker host needs nothing else."""
    names = {"PYTHON": "/nonexistent", "COMPOSE_PROJECT_NAME": _PROJECT}
    environment = {**stack.engine.environment, **stack.settings, **names}
    folder = stack.folder / "secrets"
    built = stack.compose("build", "generator")
    # Without buildx, compose exits with 0 when a build fails.
    assert b"failed to solve" not in built.stderr, built.stdout.decode()
    folder.mkdir()
    (folder / "stack_password").write_text(PASSWORD + "\n")
    done = subprocess.run(
        ["sh", str(ROOT / "compose" / "make-secrets.sh"), str(folder)],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "$2b$10$" in (folder / "web_config.yml").read_text()
    token = folder / "slack_bot_token"
    token.chmod(0o644)
    token.write_text(TOKEN)


def test_a_misspelt_folder_is_refused_and_not_made(stack: Stack) -> None:
    """Docker names the path of OBJECTIVES_DIR, and the generator does not start on an empty folder."""
    right, wrong = stack.settings["OBJECTIVES_DIR"], stack.folder / "objektives"
    stack.settings["OBJECTIVES_DIR"] = str(wrong)
    done = stack.compose("run", "--rm", "-T", "generator", fails=True)
    stack.settings["OBJECTIVES_DIR"] = right
    assert str(wrong) in done.stderr.decode()
    assert not wrong.exists()


def test_all_services_start_and_are_healthy(stack: Stack) -> None:
    """`up -d --wait`, the first time, with the images built."""
    stack.up("--build")
    assert dict.fromkeys(stack.services, "healthy") == stack.states(), stack.compose(
        "ps", "-a"
    ).stdout.decode()


def test_every_target_is_up_and_the_rules_are_evaluated(stack: Stack) -> None:
    """Prometheus sees the exporter, the bridge, Alertmanager and itself."""

    def healths() -> list[str]:
        targets = stack.get("prometheus", "/api/v1/targets")["data"]["activeTargets"]
        return [target["health"] for target in targets]

    eventually(lambda: healths() == ["up"] * 4, lambda: str(healths()))
    groups = stack.get("prometheus", "/api/v1/rules")["data"]["groups"]
    assert len(groups) > 10
    eventually(
        lambda: all(rule["health"] == "ok" for group in _groups(stack) for rule in group["rules"]),
        lambda: str(
            [
                (group["name"], rule)
                for group in _groups(stack)
                for rule in group["rules"]
                if rule["health"] == "err"
            ]
        ),
        seconds=120,
    )


def _groups(stack: Stack) -> list[dict[str, Any]]:
    answer: list[dict[str, Any]] = stack.get("prometheus", "/api/v1/rules")["data"]["groups"]
    return [group for group in answer if float(group["interval"]) <= 15]


def test_the_web_page_shows_the_objectives_to_those_who_log_in(stack: Stack) -> None:
    """It names the demo's models, and refuses a request without a password."""
    address = f"http://127.0.0.1:{stack.settings['WEB_PORT']}/"

    def page() -> str:
        return requests.get(address, auth=_LOGIN, timeout=10).text

    assert 401 == requests.get(address, timeout=10).status_code
    eventually(lambda: "classifier" in page(), page)


@pytest.mark.parametrize("service", ["exporter", "bridge", "web", "prometheus", "alertmanager"])
def test_a_container_can_write_only_where_it_keeps_something(stack: Stack, service: str) -> None:
    """Read-only root, not root, no capability, no new privileges; seen in the running container."""
    script = "touch /written 2>/dev/null; echo $? $(id -u) $(grep -E 'CapEff|NoNewPrivs' /proc/self/status)"
    code, uid, *rest = stack.compose("exec", "-T", service, "sh", "-c", script).stdout.decode().split()
    assert ("1", "CapEff:", "0000000000000000", "NoNewPrivs:", "1") == (code, *rest)
    assert uid != "0"


def test_a_broken_model_is_in_slack_with_its_cause(stack: Stack) -> None:
    """The demo's `broken` cannot load; the message shows the cause."""
    eventually(
        lambda: any("broken" in root.shown for root in stack.slack.workspace.roots()),
        lambda: str([root.text for root in stack.slack.workspace.roots()]),
        seconds=240,
    )
    [shown] = {
        root.shown
        for root in stack.slack.workspace.roots()
        if "broken" in root.shown and "weights" in root.shown
    }
    assert "localhost:13000" in shown


def test_nothing_is_lost_or_doubled_by_a_kill(stack: Stack) -> None:
    """Every container killed at once and started again: healthy, and the incidents that were open stay the same."""
    before = {root.ts: "broken" in root.shown for root in stack.slack.workspace.roots()}
    stack.compose("kill", *stack.services)
    stack.up()
    assert dict.fromkeys(stack.services, "healthy") == stack.states()
    eventually(lambda: "firing" in _alerts(stack), lambda: "nothing fires any more")
    after = {root.ts: "broken" in root.shown for root in stack.slack.workspace.roots()}
    assert set(before) <= set(after)
    assert sum(before.values()) == sum(after.values())


def _alerts(stack: Stack) -> list[str]:
    return [alert["state"] for alert in stack.get("prometheus", "/api/v1/alerts")["data"]["alerts"]]


def test_an_edited_objective_is_in_force_after_the_documented_command(stack: Stack) -> None:
    """`run --rm reload` uses the settings of the .env file: the user's objectives, not the samples."""
    latency = stack.folder / "objectives" / "latency.yaml"
    latency.write_text(latency.read_text().replace("name: latency", "name: my-latency"))
    done = stack.compose("--profile", "reload", "run", "--rm", "-T", "reload")
    assert "loaded them" in done.stdout.decode() + done.stderr.decode()
    assert any("my-latency" in group["name"] for group in _groups(stack))


def test_a_mistake_in_an_objective_changes_nothing(stack: Stack) -> None:
    """It is named with file, line and fix, and the old rules stay."""
    latency = stack.folder / "objectives" / "latency.yaml"
    good = latency.read_text()
    latency.write_text(good.replace("target:", "tarrget:"))
    done = stack.compose("--profile", "reload", "run", "--rm", "-T", "reload", fails=True)
    latency.write_text(good)
    # Not its exit code: the compose of the wheel always returns 0.
    printed = done.stderr.decode() + done.stdout.decode()
    assert "latency.yaml:" in printed
    assert "unknown field (fix: " in printed
    assert "nothing written" in printed
    assert any("my-latency" in group["name"] for group in _groups(stack))


def test_the_documented_upgrade_loads_the_new_rules(stack: Stack) -> None:
    """`up -d --build --force-recreate`: rules, configuration and passwords are read again."""
    latency = stack.folder / "objectives" / "latency.yaml"
    latency.write_text(latency.read_text().replace("name: my-latency", "name: upgraded-latency"))
    stack.up("--build", "--force-recreate")
    eventually(
        lambda: any("upgraded-latency" in group["name"] for group in _groups(stack)),
        lambda: str(_groups(stack)),
    )
    assert not any("my-latency" in group["name"] for group in _groups(stack))


def test_the_stack_runs_without_slack(stack: Stack) -> None:
    """SLACK_DRY_RUN=1 and an empty token: the bridge is healthy and prints."""
    token = stack.folder / "secrets" / "slack_bot_token"
    token.write_text("")
    stack.settings["SLACK_DRY_RUN"] = "1"
    stack.up("--force-recreate")
    assert stack.states()["bridge"] == "healthy"
