"""Provide a Docker engine and the base images: the user's, or stand-ins where nothing can be pulled."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.tools import ROOT, alertmanagers, prometheuses, promtools
from support.waiting import eventually

_PYTHON = next(
    line.removeprefix("ARG PYTHON=").strip()
    for line in (ROOT / "compose" / "Dockerfile").read_text().splitlines()
    if line.startswith("ARG PYTHON=")
)
_STAND_IN = """\
FROM python:local
RUN ln -sf /bin/busybox /usr/bin/wget && install -d -o 65534 -g 65534 {data}
COPY bin /bin
COPY share /usr/share/prometheus
USER 65534
WORKDIR {data}
ENTRYPOINT ["/bin/{binary}"]
"""


@dataclass(frozen=True, slots=True)
class Engine:
    """A Docker engine, and the versions that the compose file must be given for images that exist here."""

    environment: Mapping[str, str]
    versions: Mapping[str, str]
    real_images: bool

    def docker(
        self, *words: object, fails: bool = False, stdin: bytes | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """Run `docker WORDS`; with `fails`, for any exit code."""
        command = ["docker", *map(str, words)]
        done = subprocess.run(command, capture_output=True, env=self.environment, input=stdin, check=False)
        assert fails or done.returncode == 0, f"{command}\n{done.stdout.decode()}\n{done.stderr.decode()}"
        return done


@contextmanager
def engine(folder: Path) -> Iterator[Engine]:
    """Yield the engine that answers, else one of our own, which needs root; skip where there is none."""
    plugins = folder / "config" / "cli-plugins"
    plugins.mkdir(parents=True)
    shutil.copy(Path(sys.executable).parent / "docker-compose", plugins / "docker-compose")
    environment = {**os.environ, "DOCKER_CONFIG": str(folder / "config")}
    if shutil.which("docker") is None:
        pytest.skip("no `docker` here: install it (Debian: apt-get install docker.io iptables debootstrap)")
    if _answers(environment):
        yield _with_images(Engine(environment, {}, True), folder)
        return
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        pytest.skip("no Docker engine answers, and to start one here takes root and dockerd")
    socket = folder / "docker.sock"
    environment["DOCKER_HOST"] = f"unix://{socket}"
    words = ["--data-root", "data", "--exec-root", "exec", "--pidfile", "pid"]
    paths = [word if word.startswith("-") else str(folder / word) for word in words]
    with (folder / "dockerd.log").open("wb") as log:
        daemon = subprocess.Popen(["dockerd", *paths, "-H", f"unix://{socket}"], stdout=log, stderr=log)
        try:
            eventually(lambda: _answers(environment), (folder / "dockerd.log").read_text)
            yield _with_images(Engine(environment, {}, True), folder)
        finally:
            daemon.terminate()
            daemon.wait(60)


def _answers(environment: Mapping[str, str]) -> bool:
    done = subprocess.run(
        ["docker", "info", "-f", "{{.ServerVersion}}"], capture_output=True, env=environment
    )
    return done.returncode == 0


def _with_images(docker: Engine, folder: Path) -> Engine:
    if docker.docker("pull", "-q", f"python:{_PYTHON}", fails=True).returncode == 0:
        return docker
    print("\nno image can be pulled here: bases of debootstrap and local binaries instead, and no Grafana")
    if shutil.which("debootstrap") is None:
        pytest.skip("no image can be pulled, and debootstrap is not here to make a base image")
    if docker.docker("image", "inspect", "python:local", fails=True).returncode:
        _python_local(docker, folder / "base")
    for image, binary, data, more in (
        ("prom/prometheus", prometheuses()[-1], "/prometheus", {"promtool": promtools()[-1]}),
        ("prom/alertmanager", alertmanagers()[-1], "/alertmanager", {}),
    ):
        context = folder / image.replace("/", "-")
        (context / "bin").mkdir(parents=True)
        name = image.rpartition("/")[2]
        for program, path in {name: binary, **more}.items():
            shutil.copy(path, context / "bin" / program)
        # Debian's Alertmanager reads its default templates from a folder.
        shutil.copytree(
            binary.parents[1] / "share" / "prometheus" / "alertmanager", context / "share" / "alertmanager"
        )
        (context / "Dockerfile").write_text(_STAND_IN.format(binary=name, data=data))
        docker.docker("build", "-q", "-t", f"{image}:local", context)
    versions = {"PROMETHEUS_VERSION": "local", "ALERTMANAGER_VERSION": "local"}
    return Engine(docker.environment, versions, False)


def _python_local(docker: Engine, base: Path) -> None:
    """Make the image python:local of this machine's distribution, with its mirror and certificates."""
    source = Path("/etc/apt/sources.list.d/debian.sources")
    mirror = next(line.split()[1] for line in source.read_text().splitlines() if line.startswith("URIs:"))
    packages = "python3,python3-venv,python3-pip,libpython3.11,ca-certificates,busybox"
    command = ["debootstrap", "--variant=minbase", f"--include={packages}", "bookworm", str(base), mirror]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (base / "usr/bin/python").symlink_to("python3")
    # As in the image of Docker Hub, pip installs for the whole system.
    next(base.glob("usr/lib/python3*/EXTERNALLY-MANAGED")).unlink()
    certificates = "etc/ssl/certs/ca-certificates.crt"
    shutil.copy(Path("/") / certificates, base / certificates)
    if Path("/etc/pip.conf").exists():
        shutil.copy("/etc/pip.conf", base / "etc/pip.conf")
    change = f"ENV PIP_CERT=/{certificates} PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    with subprocess.Popen(["tar", "-C", str(base), "-c", "."], stdout=subprocess.PIPE) as packed:
        subprocess.run(
            ["docker", "import", "-c", change, "-", "python:local"],
            stdin=packed.stdout,
            env=docker.environment,
            check=True,
            capture_output=True,
        )
    assert packed.returncode == 0
    shutil.rmtree(base)
