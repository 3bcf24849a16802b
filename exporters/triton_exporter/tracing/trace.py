"""Single requests from traces, before they enter the histograms, and the files of Triton's trace mode `triton`."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from triton_exporter.processor_time import CoreBudget
from triton_exporter.snapshot import ModelVersion

Outcome = Literal["completed", "queue_full", "refused", "not_executed"]

OUTCOMES: tuple[Outcome, ...] = ("completed", "queue_full", "refused", "not_executed")
"""Closed set of values of the label `outcome`: what the trace of one request shows.

`queue_full`: refused because the queue was full (503), which no metric of Triton counts; `refused`: refused though
its queue has no limit, such as a sequence without its start (400); `not_executed`: ended without an execution,
because it waited too long in the queue or the response cache answered it.
"""

LOSSES = ("overflow", "late", "orphan", "malformed", "ahead", "contradicts")
"""Closed set of values of the label `reason` of lost traces.

`overflow`: more came than can be stored; `late`: its interval had been closed without it; `orphan`: an execution
whose request never came; `malformed`: its times contradict each other; `ahead`: it ended in the future;
`contradicts`: the traces of its model and Triton's own counters cannot both be true.
"""

RESULTS = ("accepted", "busy", "malformed", "over_budget", "slow", "too_large", "unsupported")
"""Closed set of values of the label `result`. Triton does not send again what was refused: it is lost."""


CORE_SHARE = 0.25
"""Part of one core that traces may take in the long run, decoded and sorted into intervals."""

SAVED_SECONDS = 5.0
"""Processor time that may be saved up: a Triton that was cut off sends many traces at once."""


class Step(NamedTuple):
    """A call of a model within a request to another one."""

    model: str
    queue_seconds: float
    request_seconds: float


@dataclass(frozen=True, slots=True)
class TracedRequest:
    """One request to one model version; times in seconds, `ended` in Unix time.

    `queue_seconds` is None where the trace does not contain it (an ensemble has no queue of its own).
    """

    model: ModelVersion
    outcome: Outcome
    ended: float
    request_seconds: float
    queue_seconds: float | None
    trace_id: str
    steps: tuple[Step, ...] = ()
    """The models that it called."""


class Mailbox:
    """Hands requests from the threads that receive traces to the one that observes. Bounded.

    `rate` is one traced request in how many, as in Triton's trace setting (1 until it is known).
    Both threads charge their work to `budget`; once it is spent, no more traces are received.
    """

    def __init__(self, capacity: int = 100_000, budget: CoreBudget | None = None) -> None:
        self.budget = budget or CoreBudget(CORE_SHARE, SAVED_SECONDS)
        self._capacity = capacity
        self._lock = threading.Lock()
        self._requests: list[TracedRequest] = []
        self._lost: Counter[str] = Counter()
        self._batches: Counter[str] = Counter()
        self.rate = 1.0

    def put(self, requests: Iterable[TracedRequest]) -> None:
        """Add requests; those beyond the capacity are lost and counted."""
        given = list(requests)
        with self._lock:
            free = self._capacity - len(self._requests)
            self._requests += given[:free]
            self._lost["overflow"] += max(0, len(given) - free)

    def drain(self) -> list[TracedRequest]:
        """Remove and return the requests that were put since the last call."""
        with self._lock:
            taken, self._requests = self._requests, []
        return taken

    def count_lost(self, reason: str, count: int = 1) -> None:
        """Count traces that will never be observed, for one of LOSSES."""
        with self._lock:
            self._lost[reason] += count

    def count_batch(self, result: str) -> None:
        """Count one batch received, for one of RESULTS."""
        with self._lock:
            self._batches[result] += 1

    def lost(self) -> Mapping[str, int]:
        """Return lost traces by reason."""
        with self._lock:
            return dict(self._lost)

    def batches(self) -> Mapping[str, int]:
        """Return received batches by result."""
        with self._lock:
            return dict(self._batches)


_NANO = 1e-9
_LATEST = 1 << 62


@dataclass(frozen=True, slots=True)
class Timeline:
    """Nanoseconds since 1970 of what happened to one request to one model version; None where it did not.

    `seen_until` is the last moment known of it; `has_steps` that other models ran for it (an ensemble).
    Event names: https://docs.nvidia.com/deeplearning/triton-inference-server/user-guide/docs/user_guide/trace.html
    """

    model: ModelVersion
    trace_id: str
    request_start: int
    request_end: int | None
    queue_start: int | None
    compute_start: int | None
    seen_until: int
    has_steps: bool = False

    def request(self) -> TracedRequest | None:
        """Return the request; None where the moments contradict each other."""
        ended = self.seen_until if self.request_end is None else self.request_end
        if not 0 < self.request_start <= ended < _LATEST:
            return None
        executed = self.compute_start is not None or self.has_steps
        queue = None
        if self.compute_start is not None and self.queue_start is not None:
            queue = max(0, self.compute_start - self.queue_start) * _NANO
        return TracedRequest(
            self.model,
            # A request that does not fit in the queue is refused before it has an end.
            "queue_full" if self.request_end is None else "completed" if executed else "not_executed",
            ended * _NANO,
            (ended - self.request_start) * _NANO,
            queue,
            self.trace_id,
        )


MAX_FILE_BYTES = 64 * 1024 * 1024
"""A larger file is not read."""

_SINCE_1970 = 1_000_000_000 * 1_000_000_000
"""Times below this (2001) are of the clock that runs since the machine started."""


class TraceFiles:
    """Poller (see `app.exporter`) that reads `path` and, with log-frequency set, `path.0`, `path.1` and so on.

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
