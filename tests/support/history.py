"""A real Prometheus over a history we wrote: backfilled with promtool, asked at a pinned time."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests
import yaml

from support.tools import prometheuses, promtools
from triton_exporter.catalogue import EXPORTER_JOB
from tritonwatch.local.triton import free_ports

END = 1_760_000_400
"""The pinned "now" of backfilled histories: Unix time, a whole five minutes."""

_BACKFILL = ("tsdb", "create-blocks-from", "--max-block-duration=240h", "openmetrics")


def openmetrics(series: Iterable[tuple[str, Mapping[str, str], Iterable[tuple[float, float]]]]) -> str:
    """Write series (name, labels, (Unix time, value) pairs) as promtool reads them."""
    lines = []
    for name, labels, points in series:
        inside = ",".join(f'{key}="{_escaped(value)}"' for key, value in labels.items())
        lines += [f"{name}{{{inside}}} {value} {at:.3f}" for at, value in points]
    return "\n".join(lines) + "\n# EOF\n"


def counter(start: float, end: float, step: float, per_second: float) -> list[tuple[float, float]]:
    """A counter that grows evenly from 0 at `start`."""
    count = int((end - start) / step) + 1
    return [(start + i * step, i * step * per_second) for i in range(count)]


@contextmanager
def serve(
    text: str,
    directory: Path,
    *,
    rules: Mapping[str, str] | None = None,
    scrape: str = "",
    targets: Path | None = None,
    every: str = "1s",
    server: Path | None = None,
    web_config: str = "",
    probe: Mapping[str, Any] | None = None,
    flags: Iterable[str] = (),
    settings: Mapping[str, Any] | None = None,
    port: int = 0,
) -> Iterator[str]:
    """Backfill `text` and serve it; yields the address.

    Rule files (name -> text) are evaluated, and the exporter at `scrape` (host:port), or those that the file
    `targets` lists (`file_sd_configs`), are scraped, every second or every `every`.
    `server` is another Prometheus than the one on PATH, `flags` are added to its command line and `settings` to the
    global ones of its configuration; `probe` is what requests needs to see whether it is up (verify, cert).
    It listens on `port` if one is given.
    """
    data = directory / "data"
    data.mkdir(parents=True, exist_ok=True)
    if text:
        (directory / "history.om").write_text(text, encoding="utf-8")
        subprocess.run(
            [promtools()[0], *_BACKFILL, directory / "history.om", data],
            check=True,
            capture_output=True,
        )
    for name, content in (rules or {}).items():
        (directory / name).write_text(content, encoding="utf-8")
    discovery: dict[str, Any] = {"static_configs": [{"targets": [scrape]}]} if scrape else {}
    if targets is not None:
        discovery = {"file_sd_configs": [{"files": [str(targets)], "refresh_interval": "1s"}]}
    config = {
        "global": {
            "evaluation_interval": every,
            "scrape_interval": every,
            "scrape_timeout": every,
            **(settings or {}),
        },
        "rule_files": list(rules or ()),
        "scrape_configs": [{"job_name": EXPORTER_JOB, **discovery}] if discovery else [],
    }
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    port = port or free_ports(1)[0]
    command = [
        str(server or prometheuses()[0]),
        f"--config.file={directory / 'prometheus.yml'}",
        f"--storage.tsdb.path={data}",
        "--storage.tsdb.retention.time=20y",
        f"--web.listen-address=127.0.0.1:{port}",
        *flags,
    ]
    if web_config:
        (directory / "web.yml").write_text(web_config, encoding="utf-8")
        command.append(f"--web.config.file={directory / 'web.yml'}")
    with (directory / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            scheme = "https" if "tls_server_config" in web_config else "http"
            _wait_ready(f"{scheme}://127.0.0.1:{port}", process, directory / "prometheus.log", probe or {})
            yield f"{scheme}://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(20)


def _wait_ready(url: str, process: subprocess.Popen[bytes], log: Path, probe: Mapping[str, Any]) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise AssertionError(f"Prometheus ended: {log.read_text(encoding='utf-8')[-2000:]}")
        try:
            # Any answer but 503 means that the storage is open (401 where the test sets a password).
            if requests.get(f"{url}/-/ready", timeout=2, **probe).status_code != 503:
                return
        except requests.RequestException:
            pass
        time.sleep(0.05)
    raise AssertionError(f"Prometheus was not ready: {log.read_text(encoding='utf-8')[-2000:]}")


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
