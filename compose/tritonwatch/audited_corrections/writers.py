"""Get samples of the past into a server: blocks for Prometheus, its import API for VictoriaMetrics."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import requests

from triton_exporter.exposition.series_text import Series
from triton_slo import names
from triton_slo.correction.samples import samples_of
from triton_slo.prometheus.server_access import Access, innermost_reason, session_for
from tritonwatch.audited_corrections.trail import Entry
from tritonwatch.command_error import CommandError, UsageError

TRAIL_FOLDER = "tritonwatch-corrections"
"""Folder beside the blocks, with a trail of all corrections that are written there."""
_HEAD_SECONDS = 3 * 3600.0
"""Prometheus has newer samples in memory: a block of that time would hide samples of its log after a restart."""
_BLOCKS_SECONDS = 600
_LINES = 20_000
"""Samples of one request."""
_VISIBLE_SECONDS = 30.0
"""Limit of the wait until imported samples are visible in queries."""


class Writer(Protocol):
    """Destination of samples. Methods raise CommandError."""

    @property
    def place(self) -> Mapping[str, str]:
        """Kind and address of the destination, as the trail stores it to find the destination again."""

    @property
    def trail_folder(self) -> Path | None:
        """Folder of the destination's own trail; None if written samples are visible at once."""

    def writable_until(self, now: float) -> float:
        """Return the Unix time before which samples can be written."""

    def check(self) -> None:
        """Check that samples can be written, without writing any."""

    def write(self, file: Path, text: str, entry_id: str) -> None:
        """Write the samples of a file that are not there yet."""

    def next_step(self) -> str:
        """Return what must happen until the budgets have changed."""


class Blocks:
    """Blocks that promtool makes in a folder: the data directory of a Prometheus, or one to copy from."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def place(self) -> Mapping[str, str]:
        """The folder."""
        return {"blocks": str(self._folder.resolve())}

    @property
    def trail_folder(self) -> Path:
        """A folder that Prometheus ignores; a block that was written is not visible for up to a minute."""
        return self._folder / TRAIL_FOLDER

    def writable_until(self, now: float) -> float:
        """Return the time before which Prometheus has its samples only on disk."""
        return now - _HEAD_SECONDS

    def check(self) -> None:
        """Raise UsageError if promtool is not installed or the folder is not writable."""
        if shutil.which("promtool") is None:
            raise UsageError("promtool is not installed; it comes with Prometheus and makes the blocks")
        if not self._folder.is_dir():
            raise UsageError(f"--blocks {self._folder}: no such folder")
        if not os.access(self._folder, os.W_OK | os.X_OK):
            raise UsageError(f"--blocks {self._folder}: not writable; run it as the user of Prometheus")

    def write(self, file: Path, text: str, entry_id: str) -> None:
        """Make the blocks; those of an earlier attempt have the same samples, of which Prometheus reads one."""
        command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(file), str(self._folder)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_BLOCKS_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CommandError(f"promtool could not be run: {error}") from error
        if done.returncode != 0:
            raise CommandError(f"promtool made no blocks: {(done.stderr + done.stdout).strip()[-500:]}")

    def next_step(self) -> str:
        """Return when the blocks are read."""
        if (self._folder / "wal").is_dir():
            return "Prometheus loads the blocks within a minute; budgets change at the next evaluation"
        return f"move the folders in {self._folder} into the data directory of Prometheus"


class VictoriaMetrics:
    """The import API of VictoriaMetrics."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._url = access.url.rstrip("/")

    @property
    def place(self) -> Mapping[str, str]:
        """The address."""
        return {"import": self._url}

    @property
    def trail_folder(self) -> None:
        """None: imported samples are found before the import has ended."""

    def writable_until(self, now: float) -> float:
        """Return now: all past samples can be written."""
        return now

    def check(self) -> None:
        """Raise CommandError unless there is a VictoriaMetrics that exports."""
        self._present("tritonwatch-check")

    def write(self, file: Path, text: str, entry_id: str) -> None:
        """Import what is not there yet: VictoriaMetrics would count a sample twice that it has twice."""
        wanted = list(samples_of(text))
        missing = self._missing(wanted, entry_id)
        for first in range(0, len(missing), _LINES):
            lines = missing[first : first + _LINES]
            body = "".join(f"{series} {value!r} {round(1000 * at)}\n" for series, value, at in lines)
            self._request("POST", "/api/v1/import/prometheus", body=body.encode())
        deadline = time.monotonic() + _VISIBLE_SECONDS
        while self._missing(wanted, entry_id):
            if time.monotonic() > deadline:
                raise CommandError(
                    f"{self._url} does not show all samples that it took; resume {entry_id} later"
                )
            time.sleep(0.2)
        # Cached results of queries about the past do not contain the new samples.
        self._request("GET", "/internal/resetRollupResultCache", required=False)

    def next_step(self) -> str:
        """Return when rules read the samples."""
        return "budgets change at the next evaluation of the rules"

    def _missing(
        self, wanted: list[tuple[str, float, float]], entry_id: str
    ) -> list[tuple[str, float, float]]:
        present = self._present(entry_id)
        # A model may be named like a sample: series are compared as a whole, by their labels.
        return [
            sample
            for sample in wanted
            if round(1000 * sample[2]) not in present.get(labels_of(sample[0]), frozenset())
        ]

    def _present(self, entry_id: str) -> Mapping[frozenset[tuple[str, str]], set[int]]:
        self._request("GET", "/internal/force_flush", required=False)
        times_by_labels: dict[frozenset[tuple[str, str]], set[int]] = defaultdict(set)
        match = f'{{{names.CORRECTION}="{entry_id}"}}'
        answer = self._request("GET", "/api/v1/export", params={"match[]": match, "start": "0"})
        try:
            for line in answer.splitlines():
                row = json.loads(line)
                times_by_labels[frozenset(row["metric"].items())].update(row["timestamps"])
        except (ValueError, KeyError, TypeError) as error:
            raise CommandError(f"{self._url} does not answer as VictoriaMetrics does") from error
        return times_by_labels

    def _request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes = b"",
        required: bool = True,
    ) -> bytes:
        with session_for(self._access) as session:
            try:
                answer = session.request(
                    method,
                    f"{self._url}{path}",
                    params=params,
                    data=body or None,
                    timeout=self._access.timeout_seconds,
                    allow_redirects=False,
                )
            except requests.RequestException as error:
                raise CommandError(
                    f"VictoriaMetrics at {self._url} is not reachable: {innermost_reason(error)}"
                ) from error
        if required and not 200 <= answer.status_code < 300:
            reason = " ".join(answer.text.split())[:300]
            raise CommandError(f"{self._url}{path} answers HTTP {answer.status_code}: {reason}")
        return answer.content


def labels_of(series: str) -> frozenset[tuple[str, str]]:
    """Return the labels of a series as this program writes it, its name among them."""
    parsed = Series(series)
    return frozenset({"__name__": parsed.name, **parsed.labels}.items())


def chosen_writer(blocks: Path | str | None, import_url: str, access_to: Callable[[str], Access]) -> Writer:
    """Return the checked writer of blocks into a folder, or without one that of imports. Raises CommandError.

    `access_to` returns the access to the address of --import.
    """
    writer: Writer = VictoriaMetrics(access_to(import_url)) if blocks is None else Blocks(Path(blocks))
    writer.check()
    return writer


def original_writer(entry: Entry, access_to: Callable[[str], Access]) -> Writer:
    """Return the checked writer to the destination of an entry. Raises CommandError."""
    return chosen_writer(entry.place.get("blocks"), entry.place.get("import", ""), access_to)
