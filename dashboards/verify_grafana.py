"""Import the dashboards into real Grafanas (12.4 and 13.2) with Docker, and run every panel through their API.

    python dashboards/verify_grafana.py --prometheus http://host.docker.internal:9090

For people with Docker; no part of `make test`. It starts each Grafana on a free port of 127.0.0.1, provisions
the generated dashboards from dashboards/generated with a data source that asks the given Prometheus, asks
/api/health and every dashboard by uid, runs each query of each panel through /api/ds/query, and removes the
container. Exits 1 if anything failed; a panel without data is reported and is no failure.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import requests

ROOT = Path(__file__).resolve().parents[1]
GENERATED = ROOT / "dashboards" / "generated"
IMAGES = ("grafana/grafana:12.4.0", "grafana/grafana:13.2.0")
SECONDS = 3600


def main(argv: list[str]) -> int:
    """Verify each image; 0 when all is well."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--prometheus", required=True, help="address as seen from inside a container")
    parser.add_argument("--image", action="append", help=f"default: {' and '.join(IMAGES)}")
    args = parser.parse_args(argv)
    problems = [line for image in args.image or IMAGES for line in verify(image, args.prometheus)]
    print("\n".join(problems) or "every dashboard was imported and every query answered")
    return 1 if problems else 0


def verify(image: str, prometheus: str) -> list[str]:
    """What is wrong with the dashboards in one Grafana."""
    with grafana(image, prometheus) as url:
        problems = []
        for path in sorted(GENERATED.glob("*.json")):
            model = json.loads(path.read_text(encoding="utf-8"))
            answer = requests.get(f"{url}/api/dashboards/uid/{model['uid']}", timeout=30)
            if not answer.ok:
                problems.append(f"{image}: {model['uid']} was not imported ({answer.status_code})")
                continue
            found = [f"{image}: {model['uid']}: {line}" for line in query_all(url, model)]
            print(f"{image}: {model['uid']}: imported, {len(found)} queries failed")
            problems += found
        return problems


def query_all(url: str, model: dict[str, Any]) -> list[str]:
    """Queries that Grafana could not run; all variables at All, the model the first there is."""
    problems, empty = [], 0
    for panel in (one for top in model["panels"] for one in (top, *top.get("panels", ()))):
        for target in panel.get("targets", ()):
            query = {
                "refId": target["refId"],
                "expr": re.sub(r"\$(?!__)[a-z_]+", ".*", target["expr"]),
                "datasource": {"type": "prometheus", "uid": "prometheus"},
                "instant": target["instant"],
                "range": not target["instant"],
                "intervalMs": 15_000,
                "maxDataPoints": 300,
            }
            body = {"queries": [query], "from": f"now-{SECONDS}s", "to": "now"}
            answer = requests.post(f"{url}/api/ds/query", json=body, timeout=60)
            result = answer.json().get("results", {}).get(target["refId"], {}) if answer.ok else {}
            if not answer.ok or result.get("error"):
                problems.append(f"{panel['title']}: {result.get('error', answer.status_code)}")
            empty += not any(frame["schema"]["fields"] for frame in result.get("frames", ()))
    print(f"  {model['uid']}: {empty} queries without data")
    return problems


@contextlib.contextmanager
def grafana(image: str, prometheus: str) -> Iterator[str]:
    """A throw-away Grafana on loopback, provisioned from files; anonymous visitors may edit."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        provision(Path(folder), prometheus)
        command = [
            "docker", "run", "--detach", "--rm", "--publish", f"127.0.0.1:{port}:3000",
            "--add-host", "host.docker.internal:host-gateway",
            "--env", "GF_AUTH_ANONYMOUS_ENABLED=true", "--env", "GF_AUTH_ANONYMOUS_ORG_ROLE=Editor",
            "--volume", f"{folder}:/etc/grafana/provisioning:ro",
            "--volume", f"{GENERATED}:/var/lib/dashboards:ro", image,
        ]  # fmt: skip
        container = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
        try:
            wait(f"http://127.0.0.1:{port}", image)
            yield f"http://127.0.0.1:{port}"
        finally:
            subprocess.run(["docker", "stop", container], check=False, capture_output=True)  # noqa: S607


def provision(folder: Path, prometheus: str) -> None:
    """Write a data source and a provider of dashboards."""
    source = {"name": "Prometheus", "uid": "prometheus", "type": "prometheus", "access": "proxy"}
    files: dict[str, dict[str, Any]] = {
        "datasources": {"apiVersion": 1, "datasources": [source | {"url": prometheus, "isDefault": True}]},
        "dashboards": {
            "apiVersion": 1,
            "providers": [
                {"name": "tritonwatch", "folder": "Triton", "type": "file",
                 "options": {"path": "/var/lib/dashboards"}}
            ],
        },
    }  # fmt: skip
    for name, content in files.items():
        (folder / name).mkdir()
        # JSON is YAML.
        (folder / name / "tritonwatch.yaml").write_text(json.dumps(content), encoding="utf-8")
    folder.chmod(0o755)


def wait(url: str, image: str) -> None:
    """Wait for health and for the provisioned dashboards."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with contextlib.suppress(requests.RequestException, ValueError):
            if requests.get(f"{url}/api/health", timeout=2).json().get("database") == "ok":
                time.sleep(5)  # provisioning follows health
                return
        time.sleep(1)
    raise SystemExit(f"{image} was not healthy within two minutes; see docker logs")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
