"""Run a real VictoriaMetrics over a history that the test wrote."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import requests

from support.loopback import free_ports, started
from support.tools import victoria_metrics


def imported(text: str) -> str:
    """OpenMetrics text as the import API reads it, whose times are milliseconds."""
    rows = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return "".join(f"{sample} {round(1000 * float(at))}\n" for sample, at in rows)


@contextmanager
def serve_victoria(text: str, directory: Path) -> Iterator[str]:
    """Import OpenMetrics text; yields the address."""
    [port] = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    command = [
        victoria_metrics(),
        f"-storageDataPath={directory / 'victoria'}",
        "-retentionPeriod=1y",
        f"-httpListenAddr=127.0.0.1:{port}",
    ]
    with started(command, f"{url}/health", directory / "victoria.log") as process:
        body = imported(text).encode()
        requests.post(f"{url}/api/v1/import/prometheus", data=body, timeout=60).raise_for_status()
        requests.get(f"{url}/internal/force_flush", timeout=20).raise_for_status()
        yield url
        assert process.poll() is None, (directory / "victoria.log").read_text()[-2000:]
