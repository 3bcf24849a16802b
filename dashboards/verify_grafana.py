"""Import the dashboards into real Grafanas (12.4 and 13.2) with Docker, and run every panel through their API.

    python dashboards/verify_grafana.py --prometheus http://host.docker.internal:9090

For people with Docker; no part of `make test`. It starts each Grafana on a free port of 127.0.0.1, provisions
the generated dashboards from dashboards/generated with a data source that asks the given Prometheus, asks
/api/health, the data source's health and every dashboard by uid, resolves the variables, runs each query of
each panel and annotation through /api/ds/query, and removes the container. Exits 1 if anything failed, 2 where
there is no Docker; a query without data is counted and is not a failure.
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
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import requests

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parents[1]
GENERATED = ROOT / "dashboards" / "generated"
IMAGES = ("grafana/grafana:12.4.0", "grafana/grafana:13.2.0")
SECONDS = 3600
START_SECONDS = 120
IMPORT_SECONDS = 60
"""Provisioning follows health; a large set on a slow disk takes its time."""
SOURCE = {"type": "prometheus", "uid": "prometheus"}


class CannotVerifyError(Exception):
    """There is no Grafana to ask; the message gives the reason."""


def main(argv: list[str]) -> int:
    """Verify each image; 0 when all is well."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--prometheus", required=True, help="address as seen from inside a container")
    parser.add_argument("--image", action="append", help=f"default: {' and '.join(IMAGES)}")
    args = parser.parse_args(argv)
    problems = []
    for image in args.image or IMAGES:
        try:
            with grafana(image, args.prometheus) as url:
                problems += [f"{image}: {line}" for line in verify(url, models())]
        except FileNotFoundError:
            print("verify-grafana needs Docker, and there is no `docker` on PATH", file=sys.stderr)
            return 2
        except CannotVerifyError as error:
            problems.append(f"{image}: {error}")
    print("\n".join(problems) or "every dashboard was imported and every query answered")
    return 1 if problems else 0


def models() -> tuple[Json, ...]:
    """Return the dashboards as they are committed."""
    return tuple(json.loads(path.read_text(encoding="utf-8")) for path in sorted(GENERATED.glob("*.json")))


def verify(url: str, expected: tuple[Json, ...], import_seconds: float = IMPORT_SECONDS) -> list[str]:
    """Return what is wrong with the dashboards in the Grafana at this address."""
    health = requests.get(f"{url}/api/datasources/uid/{SOURCE['uid']}/health", timeout=30)
    if not health.ok or _json(health).get("status") != "OK":
        return [f"the data source does not reach Prometheus: {_error_text(health)}"]
    problems = []
    deadline = time.monotonic() + import_seconds
    for model in expected:
        stored = _imported(url, model["uid"], deadline)
        mistakes = _lost(model, stored) if stored else ["was not imported"]
        if not mistakes:
            mistakes = query_all(url, model)
        problems += [f"{model['uid']}: {line}" for line in mistakes]
    return problems


def _imported(url: str, uid: str, deadline: float) -> Json | None:
    """Return the dashboard as Grafana stores it, once provisioning came to it."""
    while True:
        answer = requests.get(f"{url}/api/dashboards/uid/{uid}", timeout=30)
        if answer.ok:
            return dict(_json(answer).get("dashboard", {}))
        if time.monotonic() > deadline:
            return None
        time.sleep(1)


def _lost(model: Json, stored: Json) -> list[str]:
    """Panels that Grafana does not have, and those it took for Angular ones."""
    stored_panels = {panel["title"]: panel for panel in _panels(stored)}
    lost = [
        f"panel {panel['title']!r} was lost"
        for panel in _panels(model)
        if panel["title"] not in stored_panels
    ]
    angular = [
        title for title, panel in stored_panels.items() if "__angularMigration" in panel.get("options", {})
    ]
    return lost + [f"panel {title!r} was taken for an Angular one" for title in angular]


def _panels(model: Json) -> Iterator[Json]:
    return (panel for top in model["panels"] for panel in (top, *(top.get("panels") or ())))


def query_all(url: str, model: Json) -> list[str]:
    """Return the queries that Grafana cannot run, with variables at All and a model at the first there is."""
    problems: list[str] = []
    chosen: dict[str, str] = {}
    for variable in model["templating"]["list"]:
        if variable["type"] == "query":
            try:
                chosen[variable["name"]] = _choose(url, variable, chosen)
            except CannotVerifyError as problem:
                return [f"variable {variable['name']}: {problem}"]
    asked, empty = 0, 0
    for title, target in _targets(model):
        error, frames = _run(url, target, chosen)
        asked, empty = asked + 1, empty + (not frames)
        problems += [f"{title} {target['refId']}: {error}"] if error else []
    print(f"  {model['uid']}: {asked} queries, {len(problems)} failed, {empty} without data")
    return problems


def _targets(model: Json) -> Iterator[tuple[str, Json]]:
    for panel in _panels(model):
        yield from ((panel["title"], target) for target in panel.get("targets") or ())
    for annotation in model["annotations"]["list"]:
        if "target" in annotation:
            yield f"annotation {annotation['name']}", annotation["target"]


def _choose(url: str, variable: Json, chosen: Mapping[str, str]) -> str:
    """Return what Grafana lists for a variable, as a regular expression where the variable may be All."""
    asked = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"])
    if asked is None:
        raise CannotVerifyError(f"{variable['definition']} is not label_values()")
    path = f"/api/datasources/uid/{SOURCE['uid']}/resources/api/v1/label/{asked[2]}/values"
    now = int(time.time()) + 1
    span = {"start": str(now - SECONDS), "end": str(now)}
    answer = requests.get(url + path, {"match[]": fill(asked[1], chosen), **span}, timeout=30)
    if not answer.ok:
        raise CannotVerifyError(_error_text(answer))
    values = [str(value) for value in _json(answer).get("data", ())]
    if variable.get("allValue"):
        return str(variable["allValue"])
    if not values:
        raise CannotVerifyError("offers nothing: is this a Prometheus that scrapes the exporter?")
    return "|".join(map(re.escape, values)) if variable["includeAll"] else values[0]


def fill(expr: str, chosen: Mapping[str, str]) -> str:
    """Put our variables in; Grafana's own ($__rate_interval) are left to its data source."""
    return re.sub(
        r"\$(?!__)([a-z_]+)",
        lambda match: chosen[match[1]].replace("\\", "\\\\").replace('"', '\\"'),
        expr,
    )


def _run(url: str, target: Json, chosen: Mapping[str, str]) -> tuple[str, bool]:
    """Return what went wrong, if anything, and whether there was data."""
    instant = bool(target.get("instant"))
    query = {
        "refId": target["refId"],
        "expr": fill(target["expr"], chosen),
        "datasource": SOURCE,
        "instant": instant,
        "range": not instant,
        "intervalMs": 15_000,
        "maxDataPoints": 300,
    }
    body = {"queries": [query], "from": f"now-{SECONDS}s", "to": "now"}
    answer = requests.post(f"{url}/api/ds/query", json=body, timeout=60)
    result = _json(answer).get("results", {}).get(target["refId"])
    if not answer.ok or result is None or result.get("error"):
        return (result or {}).get("error") or _error_text(answer), False
    return "", any(any(frame["data"]["values"]) for frame in result.get("frames") or ())


def _json(answer: requests.Response) -> Json:
    try:
        content = answer.json()
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _error_text(answer: requests.Response) -> str:
    return f"{answer.status_code} {_json(answer).get('message', 'without a message')}"


@contextlib.contextmanager
def grafana(image: str, prometheus: str) -> Iterator[str]:
    """Run a temporary Grafana on loopback, provisioned from files; anonymous visitors may edit.

    Raises CannotVerifyError with Grafana's last words when it does not come up, FileNotFoundError without Docker.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        provision(Path(folder), prometheus)
        command = [
            "docker", "run", "--detach", "--publish", f"127.0.0.1:{port}:3000",
            "--add-host", "host.docker.internal:host-gateway",
            "--env", "GF_AUTH_ANONYMOUS_ENABLED=true", "--env", "GF_AUTH_ANONYMOUS_ORG_ROLE=Editor",
            "--env", "GF_ANALYTICS_CHECK_FOR_UPDATES=false", "--env", "GF_ANALYTICS_REPORTING_ENABLED=false",
            "--volume", f"{folder}:/etc/grafana/provisioning:ro",
            "--volume", f"{GENERATED}:/var/lib/dashboards:ro", image,
        ]  # fmt: skip
        started = subprocess.run(command, check=False, capture_output=True, text=True)
        if started.returncode != 0:
            raise CannotVerifyError(f"docker run failed: {started.stderr.strip()[-300:]}")
        container = started.stdout.strip()
        try:
            wait(f"http://127.0.0.1:{port}", container)
            yield f"http://127.0.0.1:{port}"
        finally:
            subprocess.run(["docker", "rm", "--force", container], check=False, capture_output=True)  # noqa: S607


def provision(folder: Path, prometheus: str) -> None:
    """Write a data source and a provider of dashboards."""
    source = {"name": "Prometheus", **SOURCE, "access": "proxy", "url": prometheus, "isDefault": True}
    files: dict[str, Json] = {
        "datasources": {"apiVersion": 1, "datasources": [source | {"jsonData": {"timeInterval": "15s"}}]},
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
    # Grafana runs as another user, and tempfile's folders are for their owner alone.
    folder.chmod(0o755)


def wait(url: str, container: str) -> None:
    """Wait for health."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(requests.RequestException):
            if _json(requests.get(f"{url}/api/health", timeout=2)).get("database") == "ok":
                return
        time.sleep(1)
    command = ["docker", "logs", "--tail", "5", container]
    logs = subprocess.run(command, check=False, capture_output=True, text=True)
    last_lines = (logs.stdout + logs.stderr).strip()
    raise CannotVerifyError(f"not healthy within {START_SECONDS} s; its last log lines are:\n{last_lines}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
