"""Test that the compose stack is safe by default, beyond what `docker compose config` checks."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import bcrypt
import pytest
import yaml

from support.stack.compose_policy import COMPOSE, problems_of, resolved
from support.tools import ROOT, amtools, promtools
from triton_alerts.bridge.settings import BridgeSettings
from triton_exporter.app.settings import Settings
from tritonwatch import project as project_file
from tritonwatch.cli import main


@pytest.fixture(scope="module")
def stack() -> dict[str, Any]:
    return resolved()


@pytest.fixture
def services(stack: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return stack["services"]


def test_the_compose_stack_keeps_the_policy(stack: dict[str, Any]) -> None:
    """Hardened, limited, pinned, on loopback, with named state, given what it needs, waiting for what it reads."""
    assert [] == problems_of(stack)


@pytest.mark.parametrize(
    ("password", "made"), [("my own pässword\n", True), ("a" * 73, False), (" \n", False)], ids=repr
)
def test_a_password_of_ones_own_is_hashed_as_the_services_read_it(
    tmp_path: Path, password: str, made: bool
) -> None:
    """The services strip blanks, and bcrypt ignores bytes after the 72nd. The containers can read the file."""
    (tmp_path / "stack_password").write_text(password)
    (tmp_path / "stack_password").chmod(0o600)
    done = subprocess.run(
        ["sh", str(ROOT / "compose" / "make-secrets.sh"), str(tmp_path)],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "PYTHON": sys.executable},
    )

    assert made is (done.returncode == 0), done.stderr
    if made:
        users = yaml.safe_load((tmp_path / "web_config.yml").read_text())["basic_auth_users"]
        assert bcrypt.checkpw(password.strip().encode(), users["tritonwatch"].encode())
        assert {0o444} == {path.stat().st_mode & 0o444 for path in tmp_path.iterdir()}
    else:
        assert "stack_password must have 1 to 72 bytes" in done.stderr
        assert not (tmp_path / "web_config.yml").exists()


@pytest.mark.parametrize(
    ("variable", "target"),
    [
        ("OBJECTIVES_DIR", "/objectives"),
        ("ALERTS_FILE", "/alerts.yaml"),
        ("PROJECT_FILE", "/tritonwatch.yaml"),
        ("MODEL_REPOSITORY", "/models"),
    ],
)
def test_a_path_that_does_not_exist_is_refused(variable: str, target: str) -> None:
    """Docker would make an empty folder of a misspelt path; a path may have a colon, and needs no `./`."""
    for path, source in (("mine", ROOT / "compose" / "mine"), ("/a b/c:d", Path("/a b/c:d"))):
        mounts = [
            mount
            for service in resolved(**{variable: path})["services"].values()
            for mount in service.get("volumes", [])
            if mount["target"] == target
        ]

        assert mounts
        assert {("bind", str(source), True)} == {
            (mount["type"], mount["source"], mount.get("read_only", False)) for mount in mounts
        }
        assert not any(mount["bind"].get("create_host_path", False) for mount in mounts)


def test_every_secret_comes_from_a_file_that_only_the_script_makes(tmp_path: Path) -> None:
    """No secret has a default: all are files under SECRETS_DIR, and make-secrets.sh makes all; Slack's is empty."""
    secrets = resolved(SECRETS_DIR=str(tmp_path))["secrets"]
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
        assert wanted <= set(made)
        assert ["slack_bot_token"] == [name for name, text in made.items() if not text]
        assert all(len(made[name]) == 32 for name in ("stack_password", "bridge_token"))
    assert all(Path(secret["file"]).parent == tmp_path for secret in secrets.values())
    assert 0o700 == tmp_path.stat().st_mode & 0o777
    promtool = promtools()[0]
    subprocess.run(
        [promtool, "check", "web-config", tmp_path / "web_config.yml"], check=True, capture_output=True
    )


def test_user_settings_reach_the_services() -> None:
    """One variable points the stack at the user's Triton; others move ports and addresses."""
    services = resolved(TRITON_URL="http://gpu1:8000", BIND_ADDRESS="10.1.2.3", GRAFANA_PORT="3333")[
        "services"
    ]

    for service in ("exporter", "web"):
        assert "http://gpu1:8000" == services[service]["environment"]["TRITONWATCH_EXPORTER_TRITON"]
    assert ["10.1.2.3", "3333"] == [services["grafana"]["ports"][0][key] for key in ("host_ip", "published")]


def test_the_exporter_shares_the_processes_of_a_triton_that_is_there() -> None:
    """As the user that runs Triton: the demo's, or root in NVIDIA's image."""
    shared = COMPOSE.with_name("share-processes.yml")
    by_default = resolved(COMPOSE, shared)
    on_gpu = resolved(COMPOSE, shared, TRITON_SERVICE="triton-gpu", TRITON_USER="0")

    assert ["service:triton-demo", "service:triton-gpu"] == [
        stack["services"]["exporter"]["pid"] for stack in (by_default, on_gpu)
    ]
    assert ["10001", "0"] == [stack["services"]["exporter"]["user"] for stack in (by_default, on_gpu)]
    assert [] == problems_of(by_default)


_STACK = yaml.safe_load(COMPOSE.read_text())
OTHERS = sorted({*_STACK["services"], *_STACK["volumes"]} - {"exporter"})


def _project(tmp_path: Path, *tritons: str) -> Path:
    """Return a copy of the stack's project file with this list, and paths of this machine."""
    paths = {
        "objectives": str(ROOT / "slo" / "objectives"),
        "alerts": str(ROOT / "alerts" / "alerts.yaml"),
        "out": str(tmp_path / "out"),
        "tritons": list(tritons),
    }
    project = tmp_path / "tritonwatch.yaml"
    given = yaml.safe_load((ROOT / "compose" / "tritonwatch.yaml").read_text())
    project.write_text(yaml.safe_dump(given | paths))
    return project


def test_the_list_of_the_project_file_starts_an_exporter_for_each_triton(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on the page: three Tritons, two on one host, and an exporter elsewhere; also the targets and the bridge read
    the list, and docker compose the services."""
    project = _project(
        tmp_path,
        "exporter:9401=http://a.example:8000",
        "exporter-2:9401=http://b.example:8000",
        "exporter-3:9401=http://b.example:8010,http://b.example:8012",
        "10.0.0.3:9402=10.0.0.3:8000",
    )
    assert 0 == main(["generate", "--project", str(project), "--format", "compose"])
    written = tmp_path / "exporters.yml"
    written.write_text(capsys.readouterr().out.replace("docker-compose.yml", str(COMPOSE)))
    stack = resolved(COMPOSE, written)
    services = stack["services"]

    assert [] == problems_of(stack)
    settings = {
        name: Settings.read({}, service["environment"])
        for name, service in services.items()
        if name.startswith("exporter")
    }
    assert {
        "exporter": ("http://a.example:8000", "http://a.example:8002/metrics", "auto"),
        "exporter-2": ("http://b.example:8000", "http://b.example:8002/metrics", "none"),
        "exporter-3": ("http://b.example:8010", "http://b.example:8012/metrics", "none"),
    } == {name: (each.triton, each.metrics_url, each.gpu) for name, each in settings.items()}
    assert {(name, name == "exporter") for name in settings} == {
        (volume["source"], "build" in services[name])
        for name in settings
        for volume in services[name]["volumes"]
        if volume["target"] == "/data"
    }
    environment = services["generator"]["environment"]
    assert environment == {"TRITONWATCH_TRITONS": ""} == services["reload"]["environment"]
    assert environment.items() <= services["bridge"]["environment"].items()
    bridge = BridgeSettings.read(
        {"dry_run": "true", "listen": "127.0.0.1:9096"},
        environment,
        project_file.load(argparse.Namespace(project=project), {}),
    )
    assert (
        "http://exporter:9401",
        *(f"http://exporter-{n}:9401" for n in (2, 3)),
        "http://10.0.0.3:9402",
    ) == (bridge.exporter)
    generate = [word.replace("/tritonwatch.yaml", str(project)) for word in services["generator"]["command"]]
    assert 0 == main(generate)
    targets = yaml.safe_load((tmp_path / "out" / "targets" / "triton.yml").read_text())
    assert [
        ("exporter:9401", "a.example:8000"),
        ("exporter-2:9401", "b.example:8000"),
        ("exporter-3:9401", "b.example:8010"),
        ("10.0.0.3:9402", "10.0.0.3:8000"),
    ] == [(target["targets"][0], target["labels"]["instance"]) for target in targets]


@pytest.mark.parametrize(
    ("triton", "reason"),
    [
        (
            "b:9401=http://a:8010",
            "its metrics cannot be at http://a:8002/metrics, where those of http://a:8000 are",
        ),
        ("b:9402=http://b:8000", "listens on port 9401 (fix: write b:9401)"),
        *((f"{name}:9401=http://b:8000", f"the name {name} is taken by the stack") for name in OTHERS),
    ],
)
def test_a_list_that_cannot_be_started_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], triton: str, reason: str
) -> None:
    """Before anything is printed, and named with its entry."""
    project = _project(tmp_path, "exporter:9401=http://a:8000", triton)

    assert 1 == main(["generate", "--project", str(project), "--format", "compose"])
    out, err = capsys.readouterr()
    assert "" == out
    assert f"tritons: {triton}: " in err
    assert reason in err


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
    """Every flag of a service's command is in the help of the verb it runs."""
    verb, *flags = services[service]["command"]
    assert 0 == main([verb, "--help-all"])
    words = capsys.readouterr().out.replace("[", " ").replace("]", " ").split()

    assert [] == [flag for flag in flags if flag.partition("=")[0] not in words]


def test_a_flag_whose_variable_is_not_set_counts_as_not_given(tmp_path: Path) -> None:
    """docker compose passes `--flag=` where a setting is empty; the default applies then."""
    out = str(tmp_path / "out")
    arguments = [
        "--objectives",
        str(ROOT / "slo/objectives"),
        f"--out={out}",
        "--webhook-url=",
        "--selector=",
    ]

    assert 0 == main(["generate", *arguments])
    assert "http://bridge:9096" in (tmp_path / "out" / "alertmanager" / "alertmanager.yml").read_text()


def test_the_generators_configuration_starts_a_real_alertmanager(
    services: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    """What the generator service writes, with its own flags and project file, is accepted by every amtool there is."""
    project = str(ROOT / "compose" / "tritonwatch.yaml")
    arguments = [word.replace("/tritonwatch.yaml", project) for word in services["generator"]["command"]]
    objectives = ["--objectives", str(ROOT / "slo/objectives"), "--alerts", str(ROOT / "alerts/alerts.yaml")]

    assert 0 == main([*arguments, *objectives, "--out", str(tmp_path)])
    config = tmp_path / "alertmanager" / "alertmanager.yml"
    assert "/run/secrets/bridge_token" in config.read_text()
    for amtool in amtools():
        done = subprocess.run([amtool, "check-config", config], capture_output=True, text=True)
        assert 0 == done.returncode, done.stderr
