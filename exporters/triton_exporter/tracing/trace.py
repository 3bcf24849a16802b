"""Single requests from traces, before they enter the histograms."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

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
