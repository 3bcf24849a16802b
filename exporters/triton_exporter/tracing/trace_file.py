"""Read the trace files of Triton's own trace mode (`--trace-config mode=triton`)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from triton_exporter.snapshot import ModelVersion
from triton_exporter.tracing.trace import Mailbox, Timeline

MAX_FILE_BYTES = 64 * 1024 * 1024
"""A larger file is not read."""

_SINCE_1970 = 1_000_000_000 * 1_000_000_000
"""Times below this (2001) are of the clock that runs since the machine started."""


class TraceFiles:
    """Poller (see `app.parts`) that reads `path` and, with log-frequency set, `path.0`, `path.1` and so on.

    Each file is read once, when it is complete. Triton stamps with the machine's monotonic clock, so it must
    run on the same machine (a container beside it does); `clock_offset_ns` returns how far that clock is behind
    Unix time. Files are never written or removed.
    """

    interval_seconds = 1.0

    def __init__(
        self,
        path: Path,
        mailbox: Mailbox,
        clock_offset_ns: Callable[[], int] = lambda: time.time_ns() - time.monotonic_ns(),
    ) -> None:
        self._path = path
        self._mailbox = mailbox
        self._clock_offset_ns = clock_offset_ns
        self._done: dict[Path, tuple[int, int, int]] = {}

    def poll(self, now: float) -> None:
        """Read what is new."""
        for path in self._files():
            try:
                status = path.stat()
            except OSError:
                continue
            identity = (status.st_ino, status.st_size, status.st_mtime_ns)
            if status.st_size and self._done.get(path) != identity and self._read_file(path, status.st_size):
                self._done[path] = identity

    def _files(self) -> list[Path]:
        numbered = [
            path for path in self._path.parent.glob(f"{self._path.name}.*") if path.suffix[1:].isdecimal()
        ]
        rotated = sorted(numbered, key=lambda path: int(path.suffix[1:]))
        if self._path.is_file():
            rotated.append(self._path)
        self._done = {path: self._done[path] for path in rotated if path in self._done}
        return rotated

    def _read_file(self, path: Path, size: int) -> bool:
        """Return whether the file is done with; one that is not JSON yet is still being written."""
        if size > MAX_FILE_BYTES:
            self._mailbox.count_batch("too_large")
            return True
        try:
            document = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return False
        requests = [line.request() for line in timelines(document, self._clock_offset_ns())]
        self._mailbox.count_lost("malformed", requests.count(None))
        self._mailbox.put(request for request in requests if request)
        self._mailbox.count_batch("accepted")
        return True


def timelines(document: Any, clock_offset_ns: int) -> Iterator[Timeline]:
    """Put the records of one file together by their id; anything that is not a record is skipped."""
    moments: dict[str, dict[str, int]] = {}
    models: dict[str, tuple[ModelVersion, str]] = {}
    for record in document if isinstance(document, list) else ():
        if not isinstance(record, dict):
            continue
        key = str(record.get("id"))
        if "model_name" in record:
            version = ModelVersion(str(record["model_name"]), str(record.get("model_version", "")))
            models[key] = (version, str(record.get("parent_id", "")))
        for name, nanoseconds in _stamps(record.get("timestamps")):
            moments.setdefault(key, {}).setdefault(name, nanoseconds)
    with_steps = {parent for _, parent in models.values() if parent}
    for key, (version, _) in models.items():
        stamps = moments.get(key, {})
        shift = clock_offset_ns if max(stamps.values(), default=0) < _SINCE_1970 else 0
        at = {name: nanoseconds + shift for name, nanoseconds in stamps.items()}
        start = at.get("REQUEST_START")
        if start is not None:
            end, queue, compute = (at.get(name) for name in ("REQUEST_END", "QUEUE_START", "COMPUTE_START"))
            until = max(start, queue or 0)
            yield Timeline(version, key, start, end, queue, compute, until, key in with_steps)


def _stamps(timestamps: Any) -> Iterator[tuple[str, int]]:
    for stamp in timestamps if isinstance(timestamps, list) else ():
        if isinstance(stamp, dict) and isinstance(stamp.get("ns"), int):
            yield str(stamp.get("name")), stamp["ns"]
