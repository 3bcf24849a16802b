"""Prometheus and Alertmanager on loopback: where the binaries are, how they are started and configured."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from triton_exporter.catalogue import EXPORTER_JOB
from tritonwatch.local.triton import CannotStartError


def find_binary(*names: str) -> str:
    """Return the first of these programs that is on PATH; Debian names Alertmanager's binary differently."""
    for name in names:
        if path := shutil.which(name):
            return path
    raise CannotStartError(f"{names[0]} is not on PATH; `make tools` installs it, or see the README")


def alertmanager_binary() -> str:
    """Return the path of Alertmanager under either of its names."""
    return find_binary("alertmanager", "prometheus-alertmanager")


def prometheus_config(
    exporter: str,
    alertmanager: str,
    rule_files: Sequence[str],
    others: Mapping[str, str],
    interval_seconds: float,
    triton: str = "",
) -> str:
    """Return a prometheus.yml that scrapes the exporter (and through it Triton) and sends alerts to Alertmanager.

    `exporter`, `alertmanager` and the values of `others` (job -> target) are host:port; `triton` is the instance
    of the exporter's series, by default its own address.
    """
    interval = f"{round(interval_seconds * 1000)}ms"
    jobs = {EXPORTER_JOB: exporter, "alertmanager": alertmanager, **others}
    labels = {"labels": {"instance": triton}} if triton else {}
    config = {
        "global": {"scrape_interval": interval, "evaluation_interval": interval, "scrape_timeout": interval},
        "rule_files": list(rule_files),
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
        "scrape_configs": [
            {
                "job_name": job,
                "static_configs": [{"targets": [target], **(labels if job == EXPORTER_JOB else {})}],
            }
            for job, target in jobs.items()
        ],
    }
    return yaml.safe_dump(config, sort_keys=False)


def prometheus_command(config: Path, data: Path, port: int) -> list[str]:
    """Return the command line of a Prometheus on 127.0.0.1."""
    return [
        find_binary("prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={data}",
        "--storage.tsdb.retention.time=1d",
        "--enable-feature=exemplar-storage",
        f"--web.listen-address=127.0.0.1:{port}",
        f"--web.external-url=http://127.0.0.1:{port}",
    ]


def alertmanager_command(config: Path, data: Path, port: int) -> list[str]:
    """Return the command line of a single Alertmanager on 127.0.0.1, with clustering off."""
    return [
        alertmanager_binary(),
        f"--config.file={config}",
        f"--storage.path={data}",
        f"--web.listen-address=127.0.0.1:{port}",
        f"--web.external-url=http://127.0.0.1:{port}",
        "--cluster.listen-address=",
    ]
