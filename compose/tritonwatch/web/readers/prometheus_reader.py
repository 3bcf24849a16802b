"""Queries to Prometheus: each is sent once per scrape interval for all viewers, and its answer is cached."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import requests

from triton_slo.prometheus import Prometheus, PrometheusError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CachedAnswer(Generic[T]):
    """Answer of Prometheus at Unix time `read_at`, None where it never answered.

    `problem` is why the answer is not newer; empty while Prometheus answers. `warnings` came with the answer and
    limit it; `infos` do not limit it.
    """

    value: T
    read_at: float | None
    problem: str = ""
    warnings: tuple[str, ...] = ()
    infos: tuple[str, ...] = ()


@dataclass(eq=False, slots=True)
class _Entry:
    lock: threading.Lock = field(default_factory=threading.Lock)
    answer: CachedAnswer[Any] | None = None
    fresh_until: float = 0.0


class PrometheusReader:
    """One Prometheus for all viewers; safe for threads.

    Nobody waits for a query that another viewer has sent, unless the last answer is older than two intervals.
    At most `max_answers` answers are cached; the least recently used one is dropped first.
    """

    def __init__(
        self,
        prometheus: Prometheus,
        interval_seconds: float,
        max_answers: int = 256,
        now: Callable[[], float] = time.time,
        retry_seconds: float | None = None,
    ) -> None:
        self._prometheus = prometheus
        self._interval = interval_seconds
        self._retry = interval_seconds if retry_seconds is None else retry_seconds
        self._max_answers = max_answers
        self._now = now
        self._lock = threading.Lock()
        self._entries: dict[Hashable, _Entry] = {}
        self._unreachable = ""
        self._unreachable_until = 0.0

    def sibling(self, interval_seconds: float, max_answers: int) -> PrometheusReader:
        """Return another reader of the same Prometheus, for answers that are cached longer, or are large.

        It repeats a failed query as soon as this one does.
        """
        return PrometheusReader(self._prometheus, interval_seconds, max_answers, self._now, self._retry)

    @property
    def prometheus(self) -> Prometheus:
        """The client, for queries that must not be cached; its methods raise PrometheusError."""
        return self._prometheus

    @property
    def now(self) -> float:
        """Unix time."""
        return self._now()

    def ask(self, key: Hashable, read: Callable[[Prometheus], T], empty: T) -> CachedAnswer[T]:
        """Return what `read` returns; `key` identifies it, and `empty` is for when it never succeeded."""
        entry = self._entry(key)
        if entry.answer is not None and self._now() < entry.fresh_until:
            return entry.answer
        is_outdated = entry.answer is None or self._now() > entry.fresh_until + self._interval
        if not entry.lock.acquire(blocking=is_outdated):
            assert entry.answer is not None
            return entry.answer
        try:
            if entry.answer is None or self._now() >= entry.fresh_until:
                entry.answer = self._ask_prometheus(read, entry.answer or CachedAnswer(empty, None))
                wait = self._retry if entry.answer.problem else self._interval
                entry.fresh_until = self._now() + wait
            return entry.answer
        finally:
            entry.lock.release()

    def _entry(self, key: Hashable) -> _Entry:
        with self._lock:
            entry = self._entries.pop(key, None) or _Entry()
            # Appended again, so that the first entry is always the one used longest ago.
            self._entries[key] = entry
            while len(self._entries) > self._max_answers:
                del self._entries[next(iter(self._entries))]
            return entry

    def _ask_prometheus(self, read: Callable[[Prometheus], T], last: CachedAnswer[T]) -> CachedAnswer[T]:
        # A page has several queries: it must not wait for the timeout of each.
        if self._now() < self._unreachable_until:
            return replace(last, problem=self._unreachable)
        try:
            with self._prometheus.collecting() as remarks:
                value = read(self._prometheus)
        except PrometheusError as error:
            if isinstance(error.__cause__, requests.RequestException):
                self._unreachable, self._unreachable_until = str(error), self._now() + self._retry
            return replace(last, problem=str(error))
        return CachedAnswer(value, self._now(), "", tuple(remarks.warnings), tuple(remarks.infos))
