"""Poll Triton's APIs once: index, health, statistics, and a bounded share of the per-model endpoints."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import quote

from triton_exporter.catalogue.state import NOT_TRITON
from triton_exporter.http.client import Answer, Client, FetchError
from triton_exporter.snapshot import IndexEntry, ModelConfig, ModelStatistics, ModelVersion, Snapshot
from triton_exporter.triton.answers import (
    AnswerError,
    error_text,
    parse_config,
    parse_index,
    parse_server,
    parse_statistics,
)

T = TypeVar("T")

PER_POLL = 32
"""One poll asks for so many ready endpoints, and so many configurations: the rest wait their turn, so
that 1,000 models cost Triton no burst."""

REREAD_PER_POLL = 2
"""Number of configurations that one poll reads again."""

READY_SHARE, ANSWERS_SHARE = 0.5, 0.8
"""Parts of the timeout after which a poll has waited long enough for the ready endpoint, and for all but the last
question: a poll takes no longer than one timeout, and a silent Triton is asked once more whether it lives."""

MOST_PAUSE_SECONDS = 60.0
"""A slow repository is polled once a minute at least."""

CountFailure = Callable[[str, str], None]
"""Called with endpoint and reason for every request that failed."""


@dataclass
class ApiPoller:
    """Remembers what need not be asked every time: configurations, the server's version, ready answers."""

    client: Client
    now: Callable[[], float]
    count_failure: CountFailure
    pause_seconds: float = field(default=0.0, init=False)  # least time until the next poll
    _configs: dict[ModelVersion, ModelConfig] = field(default_factory=dict, init=False)
    _ready: dict[ModelVersion, bool] = field(default_factory=dict, init=False)
    _last_statistics: tuple[ModelStatistics, ...] | None = field(default=None, init=False)
    _last_index: tuple[bytes | None, tuple[IndexEntry, ...]] = field(default=(None, ()), init=False)
    _next_statistics: float = field(default=0.0, init=False)
    _queue: list[ModelVersion] = field(default_factory=list, init=False)
    _config_turns: dict[ModelVersion, int] = field(default_factory=dict, init=False)  # when last asked for
    _turn: int = field(default=0, init=False)
    _configs_first: bool = field(default=True, init=False)
    _silent: bool = field(default=False, init=False)  # a question of this poll got no answer
    _version: str = field(default="", init=False)

    def poll(self) -> Snapshot:
        """Ask Triton everything once. Every failure is part of the snapshot, none is an exception."""
        # A connection kept between polls would go on being served after SIGTERM, hiding the drain, and hold
        # up Triton's end for its whole exit timeout (30 s).
        with closing(self.client):
            try:
                return self._poll_endpoints()
            finally:
                self.client.until = math.inf

    def _poll_endpoints(self) -> Snapshot:
        at, started = self.now(), time.monotonic()
        self._silent = False
        self._wait_until(started, 1.0)
        live, failure = self._health("live", "/v2/health/live")
        text = ""
        if not failure and not (live and self._version):
            failure, text = self._identify()
        if failure:
            return self._away(at, failure, text)
        self._wait_until(started, READY_SHARE)
        ready, _ = self._health("ready", "/v2/health/ready")
        self._wait_until(started, ANSWERS_SHARE)
        # The statistics come before the index, which may take all the remaining time.
        statistics = self._statistics()
        index = self._index()
        if not self._next_statistics:
            statistics = self._statistics()
        self._ask_models(_serving(index, statistics))
        if self._silent:
            # One slow endpoint is not an outage; a process that was stopped during this poll is.
            self._wait_until(started, 1.0)
            live, failure = self._health("live", "/v2/health/live")
            if failure:
                return self._away(at, failure)
        return Snapshot(
            at,
            live=live,
            ready=ready,
            triton_version=self._version,
            index=index,
            statistics=statistics,
            configs=dict(self._configs),
            ready_versions=dict(self._ready),
        )

    def _wait_until(self, started: float, share: float) -> None:
        self.client.until = started + share * self.client.limits.timeout_seconds

    def _late(self) -> bool:
        return time.monotonic() >= self.client.until

    def _away(self, at: float, failure: str, text: str = "") -> Snapshot:
        """Triton does not answer: asking on would only add timeouts, and after a restart all may be different.

        `text` has details where another server answers.
        """
        self._configs.clear()
        self._config_turns.clear()
        self._ready.clear()
        self._version = ""
        self._last_statistics = None
        return Snapshot(at, api_failure=failure, api_failure_text=text)

    def _identify(self) -> tuple[str, str]:
        """Ask who answers; the reason (of DOWN_REASONS) to discard its answer, and what it answered."""
        try:
            answer = self.client.get("/v2")
            if answer.status == 200:
                self._version = parse_server(answer.body)
                return "", ""
            reason, text = _other_server(answer), f"GET /v2 answers HTTP {answer.status}"
        except FetchError as error:
            reason, text = error.reason, str(error)
        except AnswerError as error:
            reason, text = NOT_TRITON, f"GET /v2: {error}"
        self.count_failure("metadata", reason or "http_error")
        return reason, text

    def _health(self, endpoint: str, path: str) -> tuple[bool, str]:
        try:
            return self.client.get(path).status == 200, ""
        except FetchError as error:
            self._unanswered(endpoint, error)
            return False, error.reason

    def _unanswered(self, endpoint: str, error: FetchError) -> None:
        self._silent = True
        self.count_failure(endpoint, error.reason)

    def _index(self) -> tuple[IndexEntry, ...] | None:
        started = time.monotonic()
        index = self._parsed("index", self.client.index, self._read_index)
        took = time.monotonic() - started
        # Triton lists the repository for each index, which on object storage takes seconds and money: that is
        # at most a fifth of the time, or half while it fails and the state is unknown.
        self.pause_seconds = took if index is None else min(MOST_PAUSE_SECONDS, 4 * took)
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
        """Statistics, asked for at most one thirtieth of the time: 1,000 models are half a megabyte."""
        started = time.monotonic()
        if self._last_statistics is None or started >= self._next_statistics:
            self._last_statistics = self._ask("statistics", "/v2/models/stats", parse_statistics)
            ended = time.monotonic()
            self._next_statistics = ended + 30 * (ended - started)
        return self._last_statistics

    def _ask(self, endpoint: str, path: str, parse: Callable[[bytes], T]) -> T | None:
        return self._parsed(endpoint, lambda: self.client.get(path), parse)

    def _parsed(self, endpoint: str, ask: Callable[[], Answer], parse: Callable[[bytes], T]) -> T | None:
        if self._late():
            return None
        try:
            answer = ask()
            if answer.status == 200:
                return parse(answer.body)
            self.count_failure(endpoint, "http_error")
        except FetchError as error:
            self._unanswered(endpoint, error)
        except AnswerError:
            self.count_failure(endpoint, "bad_response")
        return None

    def _ask_models(self, serving: frozenset[ModelVersion]) -> None:
        for known in (self._configs, self._ready, self._config_turns):
            for gone in known.keys() - serving:
                del known[gone]
        # Requests that hang take all the remaining time, so each poll begins with the other kind.
        kinds = (self._ask_configs, self._ask_whether_ready)
        for ask in kinds if self._configs_first else reversed(kinds):
            ask(serving)
        self._configs_first = not self._configs_first

    def _ask_configs(self, serving: frozenset[ModelVersion]) -> None:
        # The version asked for longest ago comes first: a configuration that cannot be read delays no other.
        # A hot reload can change a configuration without a trace, so those that are known are read again.
        new = sorted(serving - self._configs.keys(), key=self._config_turn)
        reread = sorted(self._configs, key=self._config_turn)
        for version in [*new[:PER_POLL], *reread[:REREAD_PER_POLL]]:
            self._ask_config(version)

    def _ask_whether_ready(self, serving: frozenset[ModelVersion]) -> None:
        # New versions first, then the others in turn; those that a hung model delayed come first in the next poll.
        waiting = [version for version in self._queue if version in serving]
        waiting = sorted(serving.difference(waiting)) + waiting
        asked = 0
        for version in waiting[:PER_POLL]:
            if self._late():
                break
            asked += 1
            if not self._ask_ready(version):
                break
        self._queue = waiting[asked:] + waiting[:asked]

    def _ask_ready(self, version: ModelVersion) -> bool:
        """Ask one ready endpoint; False when it gave no answer, so that one poll waits for one at most."""
        try:
            answer = self.client.get(f"{_path(version)}/ready")
        except FetchError as error:
            self._unanswered("model_ready", error)
            # A hung stub can block its ready endpoint: a model that does not answer is not ready.
            self._ready[version] = False
            return False
        if answer.status in (200, 400):
            self._ready[version] = answer.status == 200
        else:
            self.count_failure("model_ready", "http_error")
            self._ready.pop(version, None)
        return True

    def _config_turn(self, version: ModelVersion) -> tuple[int, ModelVersion]:
        return self._config_turns.get(version, 0), version

    def _ask_config(self, version: ModelVersion) -> None:
        if self._late():
            return
        self._turn += 1
        self._config_turns[version] = self._turn
        config = self._ask("config", f"{_path(version)}/config", parse_config)
        if config is not None:
            self._configs[version] = config


def _other_server(answer: Answer) -> str:
    """Return why a refusal of `/v2` is not Triton's, as one of DOWN_REASONS; empty if it is."""
    # Triton refuses in JSON, where its metadata is restricted or while it ends; it always has the path.
    if answer.status != 404 and error_text(answer.body):
        return ""
    # A proxy in front of Triton that wants credentials, or does not reach it.
    return "http_error" if answer.status in (401, 403, 407, 429) or answer.status >= 500 else NOT_TRITON


def _path(version: ModelVersion) -> str:
    model = f"/v2/models/{quote(version.model, safe='')}"
    return f"{model}/versions/{quote(version.version, safe='')}" if version.version else model


def _serving(
    index: Iterable[IndexEntry] | None, statistics: Iterable[ModelStatistics] | None
) -> frozenset[ModelVersion]:
    ready = {ModelVersion(e.model, e.version) for e in index or () if e.state == "READY"}
    return frozenset(ready | {ModelVersion(s.model, s.version) for s in statistics or ()})
