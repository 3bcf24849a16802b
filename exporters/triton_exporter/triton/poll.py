"""Poll Triton's APIs once: health, statistics, index, and a bounded share of the per-model endpoints."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple

from triton_exporter.catalogue.state import NOT_TRITON
from triton_exporter.http import triton_paths
from triton_exporter.http.client import Answer, Client, FetchError
from triton_exporter.snapshot import IndexEntry, ModelStatistics, ModelVersion, Snapshot
from triton_exporter.triton.answers import (
    AnswerError,
    error_text,
    parse_index,
    parse_server,
    parse_statistics,
)
from triton_exporter.triton.model_endpoints import ModelEndpoints
from triton_exporter.triton.poll_requests import CountFailure, PollRequests

READY_SHARE = 0.5
"""Part of the timeout after which a poll no longer waits for the ready endpoint."""

ANSWERS_SHARE = 0.8
"""Part of the timeout after which a poll no longer waits for any request but the last. The last one asks a Triton
that did not respond whether it is live, so a poll takes no longer than one timeout."""

MAX_PAUSE_SECONDS = 60.0
"""A slow repository is polled at least once a minute."""


class _Identification(NamedTuple):
    """The reason (of DOWN_REASONS) why a server is not a Triton that answers, and details; "" if it is one."""

    failure: str = ""
    text: str = ""


@dataclass
class ApiPoller:
    """Polls Triton's API, and remembers between polls: the server's version, statistics, the parsed index."""

    client: Client
    now: Callable[[], float]
    count_failure: CountFailure
    pause_seconds: float = field(default=0.0, init=False)  # minimum time until the next poll
    _last_statistics: tuple[ModelStatistics, ...] | None = field(default=None, init=False)
    _last_index: tuple[bytes | None, tuple[IndexEntry, ...]] = field(default=(None, ()), init=False)
    _index_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=2), init=False)
    _next_statistics: float = field(default=0.0, init=False)
    _version: str = field(default="", init=False)

    def __post_init__(self) -> None:
        self._requests = PollRequests(self.client, self.count_failure)
        self._models = ModelEndpoints(self._requests)

    def poll(self) -> Snapshot:
        """Ask Triton everything once. Every failure is part of the snapshot, none is an exception."""
        # A connection left open between polls would go on being served after SIGTERM, hiding the drain, and
        # delay Triton's end for its whole exit timeout (30 s).
        with closing(self.client):
            try:
                return self._poll_endpoints()
            finally:
                self.client.until = math.inf

    def _poll_endpoints(self) -> Snapshot:
        at = self.now()
        self._requests.begin()
        alive = self._requests.answer("live", triton_paths.LIVE)
        if isinstance(alive, str):
            return self._failed_poll(at, alive)
        if not (alive.status == 200 and self._version) and (identification := self._identify()).failure:
            return self._failed_poll(at, identification.failure, identification.text)
        self._requests.allow(READY_SHARE)
        ready = self._requests.answer("ready", triton_paths.READY)
        self._requests.allow(ANSWERS_SHARE)
        # The statistics come before the index, which may take all the remaining time.
        statistics = self._statistics()
        index = self._index()
        if not self._next_statistics:
            statistics = self._statistics()
        before = dict(self._models.ready)
        self._models.ask(_serving(index, statistics))
        if any(not is_ready and before.get(key, True) for key, is_ready in self._models.ready.items()):
            # An unload that began since the index was read would be a version in state ready that is not ready.
            again = self._requests.parsed("index", self.client.index, self._read_index)
            index = index if again is None else again
        if self._requests.unanswered:
            # One slow endpoint is not an outage; a process that was stopped during this poll is.
            self._requests.allow(1.0)
            alive = self._requests.answer("live", triton_paths.LIVE)
            if isinstance(alive, str):
                return self._failed_poll(at, alive)
        live = alive.status == 200
        if _is_refused(alive):
            if index is None and statistics is None:
                return self._failed_poll(at, "http_error", _what_answers(triton_paths.LIVE, alive))
            live = index is not None  # a Triton that is not live refuses it
        return Snapshot(
            at,
            live=live,
            ready=None if _is_refused(ready) else isinstance(ready, Answer) and ready.status == 200,
            triton_version=self._version,
            index=index,
            statistics=statistics,
            configs=dict(self._models.configs),
            ready_versions=dict(self._models.ready),
        )

    def _failed_poll(self, at: float, failure: str, text: str = "") -> Snapshot:
        """Forget all answers, because all may be different after a restart, and return a failed poll.

        `text` has details where another server answers.
        """
        self._models.forget()
        self._version = ""
        self._last_statistics = None
        return Snapshot(at, api_failure=failure, api_failure_text=text)

    def _identify(self) -> _Identification:
        """Return whether the server is a Triton that answers, and remember its version."""
        try:
            answer = self.client.get(triton_paths.SERVER)
            if answer.status == 200:
                self._version = parse_server(answer.body)
                return _Identification()
            failure, text = _other_server(answer), _what_answers(triton_paths.SERVER, answer)
        except FetchError as error:
            failure, text = error.reason, str(error)
        except AnswerError as error:
            failure, text = NOT_TRITON, f"GET /v2: {error}"
        self.count_failure("metadata", failure or "http_error")
        return _Identification(failure, text)

    def _index(self) -> tuple[IndexEntry, ...] | None:
        started = time.monotonic()
        index = self._requests.parsed("index", self.client.index, self._read_index)
        took = time.monotonic() - started
        self._index_seconds.append(took)
        # Triton lists the repository for each index, which on object storage takes seconds and money: that is
        # at most a fifth of the time, or half while it fails and the state is unknown. One slow answer is that of
        # a busy machine, or of a load that begins, and a pause would hide the load.
        self.pause_seconds = took if index is None else min(MAX_PAUSE_SECONDS, 4 * min(self._index_seconds))
        return index

    def _read_index(self, body: bytes) -> tuple[IndexEntry, ...]:
        """Return the index; one with the same bytes as the last is not parsed again."""
        if body != self._last_index[0]:
            before, after = self._last_index[1], parse_index(body)
            self._last_index = body, after
            # A model whose folder was deleted goes on serving, and only current statistics show it.
            if not {entry.model for entry in before} <= {entry.model for entry in after}:
                self._next_statistics = 0.0
        return self._last_index[1]

    def _statistics(self) -> tuple[ModelStatistics, ...] | None:
        """Return statistics, asked for at most a thirtieth of the time: 1,000 models are half a megabyte."""
        started = time.monotonic()
        if self._last_statistics is None or started >= self._next_statistics:
            self._last_statistics = self._requests.parsed(
                "statistics", lambda: self.client.get(triton_paths.STATISTICS), parse_statistics
            )
            ended = time.monotonic()
            self._next_statistics = ended + 30 * (ended - started)
        return self._last_statistics


def _is_refused(answer: Answer | str) -> bool:
    """Return whether a restricted endpoint, or a proxy, wants a header: what it would answer is not known."""
    return isinstance(answer, Answer) and answer.status in (401, 403)


def _what_answers(path: str, answer: Answer) -> str:
    error = error_text(answer.body)
    return f"GET {path} answers HTTP {answer.status}" + (f": {error}" if error else "")


def _other_server(answer: Answer) -> str:
    """Return why a refusal of `/v2` is not Triton's, as one of DOWN_REASONS; empty if it is."""
    # Triton refuses in JSON, where its metadata is restricted or while it ends; it always has the path.
    if answer.status != 404 and error_text(answer.body):
        return ""
    # A proxy in front of Triton that wants credentials, or does not reach it.
    return "http_error" if answer.status in (401, 403, 407, 429) or answer.status >= 500 else NOT_TRITON


def _serving(
    index: Iterable[IndexEntry] | None, statistics: Iterable[ModelStatistics] | None
) -> frozenset[ModelVersion]:
    ready = {ModelVersion(e.model, e.version) for e in index or () if e.state == "READY"}
    return frozenset(ready | {ModelVersion(s.model, s.version) for s in statistics or ()})
