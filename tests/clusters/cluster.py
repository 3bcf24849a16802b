"""Provide a Kubernetes cluster: the one of CONTEXT, or an API server with etcd of our own, which runs no pods."""

from __future__ import annotations

import base64
import gzip
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.loopback import free_ports
from support.tools import ROOT
from support.waiting import eventually

TOOLS = ROOT / ".cache" / "kubernetes"
"""Programs that tests/support/fetch-kubernetes-tools.sh builds."""
_INSTALL = "run `sh tests/support/fetch-kubernetes-tools.sh .cache/kubernetes`"


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Kubernetes API, reached by kubectl and Helm."""

    kubeconfig: Path

    @property
    def environment(self) -> dict[str, str]:
        """Variables for kubectl, Helm and the operator."""
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig)}

    def run(self, *words: object, stdin: str | None = None) -> str:
        """Run a command against the cluster and return what it writes. It must succeed."""
        command = [str(word) for word in words]
        done = subprocess.run(
            command, capture_output=True, text=True, input=stdin, env=self.environment, check=False
        )
        assert 0 == done.returncode, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def apply(self, *words: object, stdin: str | None = None) -> str:
        """Apply on the server, which validates against the real types."""
        done = self.run("kubectl", "apply", "--server-side", "--validate=strict", *words, stdin=stdin)
        print(done, end="")
        return done

    def find(self, namespace: str, kind: str, name: str) -> Any:
        """Return an object, or None where there is none of this name."""
        printed = self.run("kubectl", "-n", namespace, "get", kind, name, "--ignore-not-found", "-o", "json")
        return json.loads(printed) if printed else None

    def secret(self, namespace: str, name: str) -> dict[str, str]:
        """Return the files of a secret that the operator writes, or none while it does not exist."""
        document = self.find(namespace, "secret", name) or {}
        raw = {key: base64.b64decode(value) for key, value in document.get("data", {}).items()}
        return {
            key.removesuffix(".gz"): (gzip.decompress(value) if key.endswith(".gz") else value).decode()
            for key, value in raw.items()
        }


@contextmanager
def _running(log: Path, *words: object, **environment: str) -> Iterator[None]:
    with log.open("wb") as out:
        server = subprocess.Popen(
            [str(word) for word in words], stdout=out, stderr=out, env={**os.environ, **environment}
        )
        try:
            yield
        finally:
            server.terminate()
            server.wait(120)


@contextmanager
def operator(cluster: Cluster, folder: Path, *namespaces: str) -> Iterator[None]:
    """Run the real prometheus-operator beside the cluster, for these namespaces."""
    if not (TOOLS / "operator").exists():
        pytest.skip(f"prometheus-operator is not installed; {_INSTALL}")
    words = (f"-namespaces={','.join(namespaces)}", f"-web.listen-address=127.0.0.1:{free_ports(1)[0]}")
    with _running(folder / "operator.log", TOOLS / "operator", *words, KUBECONFIG=str(cluster.kubeconfig)):
        yield


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Yield the cluster of CONTEXT, else an API server of our own; skip with a reason where there is none."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed here")
    kubeconfig = folder / "kubeconfig"
    if context := os.environ.get("CONTEXT"):
        command = ["kubectl", "config", "view", "--minify", "--flatten", "--context", context]
        kubeconfig.write_text(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        yield Cluster(kubeconfig)
        return
    missing = [name for name in ("etcd", "kube-apiserver") if not (TOOLS / name).exists()]
    if missing:
        pytest.skip(
            f"{' and '.join(missing)} are not installed; {_INSTALL}, or set CONTEXT to a cluster's context"
        )
    with ExitStack() as servers:
        _control_plane(servers, folder, kubeconfig)
        made = Cluster(kubeconfig)
        eventually(
            lambda: (
                0
                == subprocess.run(
                    ["kubectl", "version"], capture_output=True, env=made.environment
                ).returncode
            ),
            lambda: (folder / "kube-apiserver.log").read_text()[-2000:],
        )
        yield made


def _control_plane(servers: ExitStack, folder: Path, kubeconfig: Path) -> None:
    store, peers, api = (f"127.0.0.1:{port}" for port in free_ports(3))
    servers.enter_context(
        _running(
            folder / "etcd.log",
            TOOLS / "etcd",
            f"--data-dir={folder / 'etcd'}",
            f"--listen-client-urls=http://{store}",
            f"--advertise-client-urls=http://{store}",
            f"--listen-peer-urls=http://{peers}",
            f"--initial-advertise-peer-urls=http://{peers}",
            f"--initial-cluster=default=http://{peers}",
        )
    )
    key = folder / "service-accounts.key"
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], capture_output=True, check=True)
    tokens = folder / "tokens.csv"
    tokens.write_text("verify,admin,admin,system:masters\n")
    servers.enter_context(
        _running(
            folder / "kube-apiserver.log",
            TOOLS / "kube-apiserver",
            f"--etcd-servers=http://{store}",
            "--bind-address=127.0.0.1",
            f"--secure-port={api.rpartition(':')[2]}",
            f"--cert-dir={folder / 'certificates'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            f"--token-auth-file={tokens}",
            "--authorization-mode=RBAC",
            # No controller makes the default account of a namespace here.
            "--disable-admission-plugins=ServiceAccount",
            "--service-cluster-ip-range=10.0.0.0/24",
        )
    )
    named = {
        "clusters": [
            {"name": "verify", "cluster": {"server": f"https://{api}", "insecure-skip-tls-verify": True}}
        ],
        "users": [{"name": "verify", "user": {"token": "verify"}}],
        "contexts": [{"name": "verify", "context": {"cluster": "verify", "user": "verify"}}],
    }
    kubeconfig.write_text(
        yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "current-context": "verify", **named})
    )
