"""A Grafana on loopback, provisioned with the generated dashboards, where its binary is on PATH."""

from __future__ import annotations

import shutil
from pathlib import Path

import yaml

from tritonwatch.local.process import Child


def grafana_child(directory: Path, port: int, prometheus_url: str, dashboards: Path) -> Child | None:
    """Return a Grafana that reads our dashboards and data source; None where there is no `grafana` on PATH.

    Anonymous access is read-only and on loopback only; nobody can sign in.
    """
    binary = shutil.which("grafana")
    if binary is None:
        return None
    home = directory / "grafana"
    provisioning = home / "provisioning"
    _write_yaml(provisioning / "datasources" / "tritonwatch.yml", _datasource(prometheus_url))
    _write_yaml(provisioning / "dashboards" / "tritonwatch.yml", _provider(dashboards))
    environment = {
        "GF_SERVER_HTTP_ADDR": "127.0.0.1",
        "GF_SERVER_HTTP_PORT": str(port),
        "GF_PATHS_DATA": str(home / "data"),
        "GF_PATHS_LOGS": str(home / "logs"),
        "GF_PATHS_PROVISIONING": str(provisioning),
        "GF_AUTH_ANONYMOUS_ENABLED": "true",
        "GF_AUTH_ANONYMOUS_ORG_ROLE": "Viewer",
        "GF_AUTH_DISABLE_LOGIN_FORM": "true",
        "GF_ANALYTICS_REPORTING_ENABLED": "false",
        "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
        "GF_USERS_DEFAULT_THEME": "system",
    }
    command = [binary, "server"]
    for path in (Path("/usr/share/grafana"), Path(binary).resolve().parents[1]):
        if (path / "conf" / "defaults.ini").exists():
            command += ["--homepath", str(path)]
            break
    return Child("Grafana", command, directory / "logs" / "grafana.log", environment)


def _datasource(prometheus_url: str) -> object:
    return {
        "apiVersion": 1,
        "datasources": [
            {
                "name": "Prometheus",
                "uid": "prometheus",
                "type": "prometheus",
                "access": "proxy",
                "url": prometheus_url,
                "isDefault": True,
                "jsonData": {"timeInterval": "1s"},
            }
        ],
    }


def _provider(dashboards: Path) -> object:
    options = {"path": str(dashboards)}
    provider = {"name": "tritonwatch", "folder": "Triton", "type": "file", "options": options}
    return {"apiVersion": 1, "providers": [provider]}


def _write_yaml(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content, sort_keys=False))
