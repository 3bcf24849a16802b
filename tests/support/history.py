"""Run a real Prometheus over a history backfilled with promtool, and query it at a fixed time."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from support.loopback import free_ports, started
from support.tools import prometheuses, promtools
from triton_exporter.catalogue import EXPORTER_JOB
from triton_exporter.family import escape

END = 1_760_000_400
"""The pinned "now" of backfilled histories: Unix time, a whole five minutes."""


Series = tuple[str, Mapping[str, str], Sequence[tuple[float, float]]]
"""Name, labels, and pairs of Unix time and value."""


def openmetrics(series: Iterable[Series]) -> str:
    """Write series as promtool reads them."""
    lines = []
    for name, labels, points in series:
        inside = ",".join(f'{key}="{escape(value)}"' for key, value in labels.items())
        lines += [f"{name}{{{inside}}} {value} {at:.3f}" for at, value in points]
    return "\n".join(lines) + "\n# EOF\n"


def counter(start: float, end: float, step: float, per_second: float) -> list[tuple[float, float]]:
    """Make a counter that grows evenly from 0 at `start`."""
    count = int((end - start) / step) + 1
    return [(start + i * step, i * step * per_second) for i in range(count)]


def backfilled(text: str | Path, data: Path) -> Path:
    """Write OpenMetrics text, or that of a file, as blocks into a folder; returns the folder."""
    data.mkdir(parents=True, exist_ok=True)
    file = data.with_name("history.om") if isinstance(text, str) else text
    if isinstance(text, str):
        file.write_text(text, encoding="utf-8")
    # Promtool allocates 128 MiB, which takes a quarter of a second in /dev/shm.
    with tempfile.TemporaryDirectory() as made:
        _create_blocks("--max-block-duration=2400h", "openmetrics", file, made)
        for block in Path(made).iterdir():
            shutil.move(block, data)
    return data


def record(rules: str, directory: Path, *spans: tuple[float, float, int]) -> None:
    """Add what a rule file records of the data of a directory; spans are start, end and step in seconds."""
    (directory / "rules.yml").write_text(rules, encoding="utf-8")
    with running(directory) as url:
        for start, end, step in spans:
            span = (f"--start={start:.0f}", f"--end={end:.0f}", f"--eval-interval={step}s")
            output = f"--output-dir={directory / 'data'}"
            _create_blocks("rules", f"--url={url}", *span, output, directory / "rules.yml")


def _create_blocks(*words: object) -> None:
    command = [str(word) for word in (promtools()[0], "tsdb", "create-blocks-from", *words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode or "failed" in done.stderr:
        raise RuntimeError(done.stdout[-500:] + done.stderr[-1500:])


@contextmanager
def running(
    directory: Path,
    config: Mapping[str, Any] | None = None,
    *,
    server: Path | None = None,
    flags: Iterable[str] = (),
    probe: Mapping[str, Any] | None = None,
    port: int = 0,
) -> Iterator[str]:
    """Run a Prometheus over the data of a directory until the block ends; yields the address.

    `server` is another Prometheus than the one on PATH, `flags` are added to its command line. With TLS, `probe` is
    what requests needs to ask it (verify, cert, auth). It listens on `port` if one is given.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "prometheus.yml").write_text(yaml.safe_dump(dict(config or {})), encoding="utf-8")
    address = f"127.0.0.1:{port or free_ports(1)[0]}"
    url = f"{'https' if probe else 'http'}://{address}"
    command = [
        server or prometheuses()[0],
        f"--config.file={directory / 'prometheus.yml'}",
        f"--storage.tsdb.path={directory / 'data'}",
        "--storage.tsdb.retention.time=20y",
        f"--web.listen-address={address}",
        *flags,
    ]
    with started(command, f"{url}/-/ready", directory / "prometheus.log", probe):
        yield url


@contextmanager
def serve(
    text: str,
    directory: Path,
    *,
    rules: Mapping[str, str] | None = None,
    scrape: str = "",
    targets: Path | None = None,
    every: str = "1s",
    settings: Mapping[str, Any] | None = None,
    **more: Any,
) -> Iterator[str]:
    """Backfill `text` and serve it; yields the address.

    Rule files (name -> text) are evaluated, and the exporter at `scrape` (host:port), or those that the file
    `targets` lists (`file_sd_configs`), are scraped, every second or every `every`. `settings` are added to the
    global ones of the configuration, and `more` is that of `running`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if text:
        backfilled(text, directory / "data")
    for name, content in (rules or {}).items():
        (directory / name).write_text(content, encoding="utf-8")
    discovery: dict[str, Any] = {"static_configs": [{"targets": [scrape]}]} if scrape else {}
    if targets is not None:
        discovery = {"file_sd_configs": [{"files": [str(targets)], "refresh_interval": "1s"}]}
    times = {"evaluation_interval": every, "scrape_interval": every, "scrape_timeout": every}
    config = {
        "global": {**times, **(settings or {})},
        "rule_files": list(rules or ()),
        "scrape_configs": [{"job_name": EXPORTER_JOB, **discovery}] if discovery else [],
    }
    with running(directory, config, **more) as url:
        yield url
