"""Read Triton's log for the load failures that no API shows: hot reloads, configs, ensembles, start-up.

The lines come from model_lifecycle.cc and model_repository_manager.cc of Triton's core.
"""

from __future__ import annotations

import os
import re
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from triton_exporter.catalogue import own
from triton_exporter.family import Family
from triton_exporter.lifecycle.load_failures import UNAVAILABLE_STEPS, LastFailure
from triton_exporter.lifecycle.tracker import Lifecycle
from triton_exporter.snapshot import Snapshot

_ENDLESS = "Python model file not found in"
_PATTERNS = (
    re.compile(r"failed to load '(?P<model>[^']+)' version (?P<version>\d+): (?P<text>.*)"),
    re.compile(r"Poll failed for model directory '(?P<model>[^']+)': (?P<text>.*)"),
    re.compile(r"failed to load model '(?P<model>[^']+)': (?P<text>.*)"),
    # This load never ends, and no other line tells why. A copy of an object store's folder has no model's name.
    re.compile(
        rf"(?P<text>{_ENDLESS} "
        r"'(?:[^']*/)?(?!folder\w{6}/)(?P<model>[^'/]+)/(?P<version>\d+)/[^'/]+')"
    ),
)
_ENSEMBLE_PATTERNS = (
    re.compile(r"(?P<text>ensemble '(?P<model>[^']+)' depends on '.*)"),
    re.compile(r"(?P<text>ensemble (?P<model>\S+) contains models that are not available .*)"),
    re.compile(r"(?P<text>ensemble (?P<model>\S+) allows maximum batch size .*)"),
    re.compile(r"(?P<text>circular dependency between ensembles: (?P<model>.+?) -> .*)"),
    re.compile(r"Invalid argument: (?P<text>in ensemble (?P<model>[^,]+), .*)"),
)
_START_PATTERNS = (
    re.compile(r"^E\d{4} .* tritonserver\.cc:\d+\] \"?(?P<text>.*)"),
    re.compile(r"^error: creating server: (?P<text>.*)"),
)
_REQUEST = re.compile(
    # Named by the instance: the model, the number of its group and that in the group.
    r"Failed to process the request\(s\) for model (?:instance )?'(?P<model>.+?)(?:_\d+){2}', message: (?P<text>.*)"
)
"""The exception of a Python model that failed a batch of requests.

https://github.com/triton-inference-server/python_backend/blob/main/src/pb_stub.cc
"""
_STEP_ERROR = "failed with error:"
_WORDS = re.compile(r"[A-Za-z]{2,} \S")
_LOADED = re.compile(r"successfully (?P<what>un)?loaded '(?P<model>[^']+)'")
_STARTED = re.compile(
    r"_memory_manager\.cc:\d+\] \"?(?:Pinned memory pool is|Unable to allocate pinned|CUDA memory pool)"
)
_MAX_LINE_BYTES = 64 * 1024
"""A longer line is skipped."""

_MAX_POLL_BYTES = 4 * 1024 * 1024
"""Bytes read in one poll."""

_MAX_WAITING = 10_000
"""Failures that wait for the next poll of Triton's API."""

_MAX_EARLIER_BYTES = 1024 * 1024
"""Bytes of the log from before the exporter's start that are searched for reasons."""


@dataclass(frozen=True, slots=True)
class LoggedFailure:
    """One failed load in the log; the version is empty where the log names none.

    Without a model it is the start of the server that failed.
    """

    model: str
    version: str
    text: str
    of_ensemble: bool = False  # Triton could not put an ensemble together from its steps

    @property
    def endless(self) -> bool:
        """True if the load has not ended, and never will."""
        return self.text.startswith(_ENDLESS)

    @property
    def repeated(self) -> bool:
        """True if Triton wrote it without having tried the ensemble's step again: the step's error is missing."""
        return self.of_ensemble and self.text.endswith(_STEP_ERROR)


def logged_failure(line: str) -> LoggedFailure | None:
    """Return the failed load or start that a line of Triton's log reports, or None."""
    for pattern in (*_PATTERNS, *_ENSEMBLE_PATTERNS, *_START_PATTERNS):
        match = pattern.search(line)
        if match is not None:
            groups = match.groupdict()
            text = _unquoted(groups["text"])
            of_ensemble = pattern in _ENSEMBLE_PATTERNS
            if of_ensemble:
                text = _without_stray_bytes(text)
            return LoggedFailure(groups.get("model") or "", groups.get("version") or "", text, of_ensemble)
    return None


def failed_request(line: str) -> tuple[str, str] | None:
    """Return the model and the exception that a line of Triton's log reports of a failed request, or None."""
    match = _REQUEST.search(line)
    return (match["model"], _unquoted(match["text"]).rstrip("\n")) if match else None


def _unquoted(text: str) -> str:
    """Return a message of the log: since 24.09 they are quoted, with line ends escaped."""
    return text.rstrip('" \r').replace(r"\n", "\n")


def _without_stray_bytes(text: str) -> str:
    """Cut off bytes that are not words where the error of an ensemble's step belongs.

    Of a step that was not loaded again Triton has no error, and writes what happens to be in its memory: nothing,
    or some bytes, other ones each time.
    https://github.com/triton-inference-server/core/blob/main/src/model_repository_manager/model_repository_manager.cc
    """
    before, marker, error = text.rpartition(_STEP_ERROR)
    missing = before.endswith(("' ", "' loading ")) and not _WORDS.search(error)
    return before + marker if missing else text


def start_failure(failures: Iterable[LoggedFailure]) -> str:
    """Return in one line why the server did not start."""
    return "; ".join(
        f"model {failure.model}: {failure.text}" if failure.model else failure.text for failure in failures
    )


def standing_failures(lines: Iterable[str]) -> list[LoggedFailure]:
    """Return the last failure of each model that was not loaded or unloaded since, in the server's last run."""
    failures: dict[str, LoggedFailure] = {}
    for line in lines:
        failure, loaded = logged_failure(line), _LOADED.search(line)
        if failure is not None:
            if not (failure.repeated and failure.model in failures):
                failures[failure.model] = failure
        elif loaded is not None:
            before = failures.get(loaded["model"])
            # Triton unloads an ensemble because of its failure, and the old copy during a load that never ends.
            unloads = loaded["what"] and before is not None and (before.of_ensemble or before.endless)
            if before is not None and not unloads:
                del failures[before.model]
        elif _STARTED.search(line):
            failures.clear()
    return list(failures.values())


class LogTail:
    """New lines of a file that may be rotated, truncated or not there yet, or of a pipe.

    A file that is there at first is read from its end on, and `earlier` has the last lines before; one that
    appears later is read from its beginning. Never blocks.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None
        self._rest = b""
        self._skipping = False  # inside a line longer than the limit
        self._open(from_end=True)
        self.earlier = self._before()

    @property
    def readable(self) -> bool:
        """True if the file or pipe is open."""
        return self._fd is not None

    def lines(self) -> list[str]:
        """Return whole lines since the last call, at most 4 MiB of them."""
        if self._fd is None:
            self._open(from_end=False)
        data = self._read_bytes(_MAX_POLL_BYTES)
        if not data and self._replaced():
            self.close()
            # The end of an unfinished line is not in the new file.
            self._rest, self._skipping = b"", False
            self._open(from_end=False)
            data = self._read_bytes(_MAX_POLL_BYTES)
        return self._whole_lines(data)

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _open(self, *, from_end: bool) -> None:
        try:
            # Without O_NONBLOCK, opening a pipe waits for its writer.
            self._fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK)
            if from_end and self._path.is_file():
                os.lseek(self._fd, 0, os.SEEK_END)
        except OSError:
            self._fd = None

    def _before(self) -> list[str]:
        """Return whole lines of the last MiB before the end at which a file was opened."""
        if self._fd is None or not self._path.is_file():
            return []
        try:
            end = os.lseek(self._fd, 0, os.SEEK_CUR)
            start = max(0, end - _MAX_EARLIER_BYTES)
            data = os.pread(self._fd, end - start, start)
        except OSError:
            return []
        lines = self._whole_lines(data)
        return lines if start == 0 else lines[1:]

    def _read_bytes(self, limit: int) -> bytes:
        if self._fd is None:
            return b""
        chunks, size = [], 0
        try:
            while size < limit and (chunk := os.read(self._fd, min(limit - size, 1 << 16))):
                chunks.append(chunk)
                size += len(chunk)
        except BlockingIOError:
            pass  # a pipe with nothing in it
        except OSError:
            self.close()
        return b"".join(chunks)

    def _replaced(self) -> bool:
        """Return whether the path now names another file (rotated), or this one was cut (copytruncate)."""
        if self._fd is None:
            return False
        try:
            named, opened = self._path.stat(), os.fstat(self._fd)
        except OSError:
            return False  # rotated away; the new file is still to come
        if not self._path.is_file():
            return False
        if (named.st_dev, named.st_ino) != (opened.st_dev, opened.st_ino):
            return True
        return opened.st_size < os.lseek(self._fd, 0, os.SEEK_CUR)

    def _whole_lines(self, data: bytes) -> list[str]:
        *whole, rest = (self._rest + data).split(b"\n")
        if whole and self._skipping:
            whole, self._skipping = whole[1:], False
        if len(rest) > _MAX_LINE_BYTES:
            rest, self._skipping = b"", True
        self._rest = rest
        return [line.decode("utf-8", "replace") for line in whole if len(line) <= _MAX_LINE_BYTES]


class LogReader:
    """Poller that reads the log, and SnapshotObserver that hands over what it found under the exporter's lock."""

    def __init__(self, tail: LogTail, lifecycle: Lifecycle, interval_seconds: float = 1.0) -> None:
        self.interval_seconds = interval_seconds
        self._tail = tail
        self._lifecycle = lifecycle
        self._lock = threading.Lock()
        self._failures: list[LoggedFailure] = []
        self._held: deque[list[LoggedFailure]] = deque([[], []])
        self._request_errors: dict[str, str] = {}  # by model, the last of each
        self._lines = 0
        self._earlier = standing_failures(tail.earlier)
        self._of_start = {failure.model: failure for failure in self._earlier}
        tail.earlier.clear()
        lifecycle.load_failures.log_read = True

    def poll(self, now: float) -> None:
        lines = self._tail.lines()
        read = [failure for failure in map(logged_failure, lines) if failure is not None]
        errors = dict(error for error in map(failed_request, lines) if error is not None)
        with self._lock:
            self._lines += len(lines)
            self._request_errors |= errors
            # No poll takes them while Triton hangs. The oldest are dropped, so that an endless log fills no memory.
            self._failures = [*self._failures, *read][-_MAX_WAITING:]

    def observe_snapshot(self, snapshot: Snapshot) -> None:
        """Give the failures since the last poll to the lifecycle."""
        self._note_earlier(snapshot.at)
        with self._lock:
            failures, self._failures = self._failures, []
            errors, self._request_errors = self._request_errors, {}
        self._of_start |= {failure.model: failure for failure in failures}
        if snapshot.live:
            self._of_start.clear()
        self._lifecycle.start_failure = start_failure(self._of_start.values())
        self._lifecycle.note_request_errors(
            {model: LastFailure(snapshot.at, "", text, "log") for model, text in errors.items()}
        )
        # Two polls later the lifecycle has an index that was read after the line, with all steps that Triton knew then.
        self._held.append([failure for failure in failures if UNAVAILABLE_STEPS in failure.text])
        failures = [*self._held.popleft(), *(each for each in failures if UNAVAILABLE_STEPS not in each.text)]
        for failure in failures:
            if not failure.model:
                continue
            if failure.of_ensemble:
                if not failure.repeated:
                    self._lifecycle.load_failures.count_ensemble(failure.model, failure.text, snapshot.at)
            else:
                self._lifecycle.load_failures.count_logged(
                    failure.model, failure.version, failure.text, snapshot.at
                )

    def _note_earlier(self, at: float) -> None:
        """Hand over the reasons of failures from before the exporter's start, once it is known what is there."""
        index = self._lifecycle.snapshot.index
        if not self._earlier or index is None:
            return
        there = {entry.model for entry in index} | self._lifecycle.expected.keys()
        for failure in self._earlier:
            if failure.model in there:
                self._lifecycle.load_failures.remember_earlier(
                    failure.model, failure.version, failure.text, at
                )
        self._earlier = []

    def families(self, now: float) -> Iterable[Family]:
        """Yield whether the log can be read, and how much of it was."""
        yield Family.single(own.LOG_READABLE, self._tail.readable)
        yield Family.single(own.LOG_LINES, self._lines)

    def close(self) -> None:
        self._tail.close()
