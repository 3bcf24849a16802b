"""Poll Triton's APIs once: health, statistics, index, and a bounded share of the per-model endpoints.

No request is sent after the poll's deadline, and each that fails is counted (`PollRequests`). The configurations of
models, and whether each is ready, are asked for in turn (`ModelEndpoints`).

First the answers, read into frozen values: what is missing or of the wrong type becomes its default.
"""

from __future__ import annotations

import json
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import Any, TypeVar

from triton_exporter.catalogue.state import NOT_TRITON
from triton_exporter.http.client import (
    LIVE_PATH,
    READY_PATH,
    SERVER_PATH,
    STATISTICS_PATH,
    Answer,
    Client,
    FetchError,
    model_path,
)
from triton_exporter.snapshot import (
    NO_API,
    BatchStatistics,
    EnsembleStep,
    IndexEntry,
    InputTensor,
    InstanceGroup,
    MemoryUse,
    ModelConfig,
    ModelStatistics,
    ModelVersion,
    QueuePolicy,
    Snapshot,
)

_PAST_ANY = 2**64
"""No number of Triton's is this large: one that is would not fit a float."""

_MAX_DIGITS = len(str(-_PAST_ANY))


class AnswerError(ValueError):
    """The body is not a response of this endpoint."""


def parse_index(body: bytes) -> tuple[IndexEntry, ...]:
    """Return the repository index. Entries without a name are dropped; raises AnswerError when it is not a list."""
    entries = _json(body)
    if not isinstance(entries, list):
        raise AnswerError("the repository index is not a list")
    return tuple(
        IndexEntry(
            _string(entry, "name"),
            _string(entry, "version"),
            _string(entry, "state"),
            _string(entry, "reason"),
        )
        for entry in _objects(entries)
        if _string(entry, "name")
    )


def parse_statistics(body: bytes) -> tuple[ModelStatistics, ...]:
    """Return the statistics of every ready model version. Raises AnswerError."""
    answer = _json(body)
    if not isinstance(answer, dict) or not isinstance(answer.get("model_stats"), list):
        raise AnswerError("the statistics hold no list model_stats")
    return tuple(
        _model_statistics(model) for model in _objects(answer["model_stats"]) if _string(model, "name")
    )


def parse_config(body: bytes) -> ModelConfig:
    """Return the normalised configuration of one model version. Raises AnswerError."""
    config = _json(body)
    if not isinstance(config, dict):
        raise AnswerError("the configuration is not an object")
    dynamic = _object(config, "dynamic_batching")
    sequence = _object(config, "sequence_batching")
    oldest = _object(sequence, "oldest")
    return ModelConfig(
        model=_string(config, "name"),
        backend=_string(config, "backend"),
        platform=_string(config, "platform"),
        max_batch_size=_integer(config, "max_batch_size"),
        instance_groups=tuple(_instance_group(group) for group in _object_list(config, "instance_group")),
        dynamic_batching="dynamic_batching" in config,
        sequence_batching="sequence_batching" in config,
        preferred_batch_sizes=_integers(dynamic.get("preferred_batch_size")),
        priority_levels=_integer(dynamic, "priority_levels"),
        rate_limiter=any(
            _object_list(_object(group, "rate_limiter"), "resources")
            for group in _object_list(config, "instance_group")
        ),
        max_queue_delay_microseconds=_integer(dynamic, "max_queue_delay_microseconds")
        or _integer(oldest, "max_queue_delay_microseconds"),
        queue=_queue_policy(_object(dynamic, "default_queue_policy")),
        priority_queues={
            int(level): _queue_policy(policy)
            for level, policy in _object(dynamic, "priority_queue_policy").items()
            if level.isdecimal() and isinstance(policy, dict)
        },
        response_cache=_object(config, "response_cache").get("enable") is True,
        decoupled=_object(config, "model_transaction_policy").get("decoupled") is True,
        inputs=tuple(_input(tensor) for tensor in _object_list(config, "input")),
        steps=tuple(
            EnsembleStep(_string(step, "model_name"), _integer(step, "model_version"))
            for step in _object_list(_object(config, "ensemble_scheduling"), "step")
        ),
        parameters={
            name: _string(value, "string_value")
            for name, value in _object(config, "parameters").items()
            if isinstance(value, dict)
        },
    )


def parse_server(body: bytes) -> str:
    """Return the version of the server. Raises AnswerError if it is not a Triton."""
    answer = _json(body)
    if not isinstance(answer, dict):
        raise AnswerError("the server metadata is not an object")
    extensions = answer.get("extensions")
    # `tritonserver --id` changes the name, and other servers of this protocol have none of these extensions.
    if (name := _string(answer, "name")) != "triton" and not (
        isinstance(extensions, list) and "model_configuration" in extensions
    ):
        raise AnswerError(f"the server is named {name[:40]!r}")
    return _string(answer, "version")


def error_text(body: bytes) -> str:
    """Return Triton's own error text, or empty."""
    try:
        answer = _json(body)
    except AnswerError:
        return ""
    return _string(answer, "error") if isinstance(answer, dict) else ""


def _model_statistics(model: dict[str, Any]) -> ModelStatistics:
    totals = _object(model, "inference_stats")
    return ModelStatistics(
        model=_string(model, "name"),
        version=_string(model, "version"),
        executions=_integer(model, "execution_count"),
        success=_integer(_object(totals, "success"), "count"),
        batches=tuple(_batch(batch) for batch in _object_list(model, "batch_stats")),
        memory=tuple(
            MemoryUse(_string(use, "type"), _integer(use, "id"), _integer(use, "byte_size"))
            for use in _object_list(model, "memory_usage")
        ),
    )


def _batch(batch: dict[str, Any]) -> BatchStatistics:
    infer = _object(batch, "compute_infer")
    return BatchStatistics(
        size=_integer(batch, "batch_size"),
        executions=_integer(infer, "count"),
        input_ns=_integer(_object(batch, "compute_input"), "ns"),
        infer_ns=_integer(infer, "ns"),
        output_ns=_integer(_object(batch, "compute_output"), "ns"),
    )


def _instance_group(group: dict[str, Any]) -> InstanceGroup:
    gpus = group.get("gpus")
    ordinals = gpus if isinstance(gpus, list) else []
    return InstanceGroup(
        _string(group, "kind"),
        _integer(group, "count"),
        tuple(gpu for gpu in ordinals if isinstance(gpu, int)),
    )


def _input(tensor: dict[str, Any]) -> InputTensor:
    return InputTensor(
        _string(tensor, "name"),
        # The configuration has TYPE_STRING where requests have BYTES.
        _string(tensor, "data_type").removeprefix("TYPE_").replace("STRING", "BYTES"),
        _integers(tensor.get("dims")),
        tensor.get("optional") is True,
        tensor.get("is_shape_tensor") is True,
    )


def _queue_policy(policy: dict[str, Any]) -> QueuePolicy:
    return QueuePolicy(
        _integer(policy, "max_queue_size"),
        _integer(policy, "default_timeout_microseconds"),
        _string(policy, "timeout_action"),
    )


def _json(body: bytes) -> Any:
    """Return the document, with text that can be written as UTF-8: a model folder's name can be any bytes."""
    try:
        answer = json.loads(body.decode("utf-8", "replace"))
        if b"\\u" in body:  # an escape can name half a character, which no page and no path can contain
            answer = json.loads(json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace"))
        return answer
    except (ValueError, RecursionError) as error:
        raise AnswerError(f"not JSON: {error}") from error


def _objects(values: list[Any]) -> Iterator[dict[str, Any]]:
    return (value for value in values if isinstance(value, dict))


def _object(value: dict[str, Any], name: str) -> dict[str, Any]:
    member = value.get(name)
    return member if isinstance(member, dict) else {}


def _object_list(value: dict[str, Any], name: str) -> list[dict[str, Any]]:
    member = value.get(name)
    return list(_objects(member)) if isinstance(member, list) else []


def _string(value: dict[str, Any], name: str) -> str:
    member = value.get(name)
    return member if isinstance(member, str) else ""


def _integer(value: dict[str, Any], name: str) -> int:
    """Return a whole number; gRPC's JSON writes 64-bit ones as strings."""
    return _as_integer(value.get(name))


def _integers(values: object) -> tuple[int, ...]:
    return tuple(map(_as_integer, values)) if isinstance(values, list) else ()


def _as_integer(value: object) -> int:
    if isinstance(value, str) and len(value) <= _MAX_DIGITS and value.removeprefix("-").isdecimal():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        return 0
    return value if abs(value) < _PAST_ANY else 0


T = TypeVar("T")

CountFailure = Callable[[str, str], None]
"""Called with endpoint and reason for every request that failed."""


@dataclass
class PollRequests:
    """Requests to one Triton, poll after poll; `unanswered` is true once one of this poll got no answer."""

    client: Client
    count_failure: CountFailure
    unanswered: bool = field(default=False, init=False)
    _began: float = field(default=0.0, init=False)  # time.monotonic()

    def begin(self) -> None:
        """Begin a poll, which has one timeout for all its requests."""
        self._began = time.monotonic()
        self.unanswered = False
        self.allow(1.0)

    def allow(self, share: float) -> None:
        """Let the next requests last until this share of the timeout has passed since the poll began."""
        self.client.until = self._began + share * self.client.limits.timeout_seconds

    @property
    def is_late(self) -> bool:
        """True if the time for requests has passed."""
        return time.monotonic() >= self.client.until

    def answer(self, endpoint: str, path: str) -> Answer | FetchError:
        """Return the answer with any status, or why there is none."""
        try:
            return self.client.get(path)
        except FetchError as error:
            self._count_unanswered(endpoint, error)
            return error

    def parsed(self, endpoint: str, ask: Callable[[], Answer], parse: Callable[[bytes], T]) -> T | None:
        """Return the parsed body of an answer with status 200; None after any failure, and when it is late."""
        if self.is_late:
            return None
        try:
            answer = ask()
            if answer.status == 200:
                return parse(answer.body)
            self.count_failure(endpoint, "http_error")
        except FetchError as error:
            self._count_unanswered(endpoint, error)
        except AnswerError:
            self.count_failure(endpoint, "bad_response")
        return None

    def _count_unanswered(self, endpoint: str, error: FetchError) -> None:
        self.unanswered = True
        self.count_failure(endpoint, error.reason)


PER_POLL = 32
"""Number of new configurations that one poll asks for: the rest wait their turn, so that 1,000 models cost Triton no burst."""

REREAD_PER_POLL = 2
"""Number of configurations that one poll reads again."""

READY_PER_POLL = 8
"""Number of ready endpoints that one poll asks: they refute the index where a model's process has died, which its
requests show sooner."""

AGAIN_SECONDS = 15.0
"""A known configuration is not read again sooner, nor is a version asked again that was ready."""

_MODEL = b'{"name":'
"""How each model begins in Triton's statistics; within a string its quotes would be escaped."""

RESTING_SECONDS = 60.0
RESTING_STATISTICS_SECONDS = 5.0
"""Statistics that have been the same for a minute are asked for less often. Those that move are read in each poll: advice
compares them with the counters of the same moment."""


@dataclass
class ModelEndpoints:
    """The last answers of the endpoints of each serving model version."""

    requests: PollRequests
    configs: Mapping[ModelVersion, ModelConfig] = field(default_factory=dict, init=False)
    """Replaced as a whole when one changes."""
    ready: dict[ModelVersion, bool] = field(default_factory=dict, init=False)
    ready_asked: dict[ModelVersion, float] = field(default_factory=dict, init=False)
    """When the ready endpoint of each was last asked (`time.monotonic()`), longest ago first."""
    _serving: frozenset[ModelVersion] = field(default_factory=frozenset, init=False)
    _addressable: frozenset[ModelVersion] = field(default_factory=frozenset, init=False)
    _config_asked: dict[ModelVersion, float] = field(default_factory=dict, init=False)
    """When each was last asked for (`time.monotonic()`), longest ago first."""
    _configs_first: bool = field(default=True, init=False)

    def forget(self) -> None:
        """Forget all answers: they may be different after a restart."""
        self.configs = {}
        self._config_asked.clear()
        self.ready.clear()

    def ask(self, serving: frozenset[ModelVersion]) -> None:
        """Ask the versions whose turn it is, as far as the time of the poll allows."""
        if serving is not self._serving:
            self._serving = serving
            # What cannot be asked is not known: Triton's index alone has the state of such a model.
            self._addressable = frozenset(
                version for version in serving if self.requests.client.can_ask(*version)
            )
            configs = dict(self.configs)
            for known in (configs, self.ready, self._config_asked, self.ready_asked):
                for gone in known.keys() - self._addressable:
                    del known[gone]
            self.configs = configs
        # Requests that hang take all the remaining time, so each poll begins with the other kind.
        kinds = (self._ask_configs, self._ask_whether_ready)
        for ask in kinds if self._configs_first else reversed(kinds):
            ask()
        self._configs_first = not self._configs_first

    def _ask_configs(self) -> None:
        # The version asked for longest ago comes first: a configuration that cannot be read delays no other.
        # A hot reload can change a configuration without a trace, so those that are known are read again.
        unknown = self._addressable - self.configs.keys()
        never_asked = sorted(unknown - self._config_asked.keys())
        failed = (version for version in self._config_asked if version in unknown)
        new = [*never_asked, *failed][:PER_POLL] if unknown else []
        now = time.monotonic()
        known = (
            version
            for version, asked in self._config_asked.items()
            if version in self.configs and now - asked >= AGAIN_SECONDS
        )
        for version in [*new, *islice(known, REREAD_PER_POLL)]:
            if self.requests.is_late:
                return
            self._config_asked.pop(version, None)
            self._config_asked[version] = now
            path = f"{model_path(*version)}/config"
            config = self.requests.parsed("config", partial(self.requests.client.get, path), parse_config)
            if config is not None and config != self.configs.get(version):
                self.configs = {**self.configs, version: config}

    def _ask_whether_ready(self) -> None:
        # New versions first, then those asked longest ago: those that a hung model delayed come first in the next poll.
        now = time.monotonic()
        due = (
            version
            for version, asked in self.ready_asked.items()
            if not self.ready.get(version) or now - asked >= AGAIN_SECONDS
        )
        new = sorted(self._addressable - self.ready_asked.keys())
        for version in [*islice(chain(new, due), READY_PER_POLL)]:
            if self.requests.is_late:
                break
            self.ready_asked.pop(version, None)
            self.ready_asked[version] = now
            if not self._ask_ready(version):
                break

    def _ask_ready(self, version: ModelVersion) -> bool:
        """Ask one ready endpoint; False when it gave no answer, so that one poll waits for one at most."""
        answer = self.requests.answer("model_ready", f"{model_path(*version)}/ready")
        if isinstance(answer, FetchError):
            # A hung stub can block its ready endpoint: a model that does not answer is not ready.
            self.ready[version] = False
            return False
        if answer.status in (200, 400):
            self.ready[version] = answer.status == 200
        else:
            self.requests.count_failure("model_ready", "http_error")
            self.ready.pop(version, None)
        return True


READY_SHARE = 0.5
"""Part of the timeout after which a poll no longer waits for the ready endpoint."""

ANSWERS_SHARE = 0.8
"""Part of the timeout after which a poll no longer waits for any request but the last. The last one asks a Triton
that did not respond whether it is live, so a poll takes no longer than one timeout."""

MAX_PAUSE_SECONDS = 60.0
"""A slow repository is polled at least once a minute."""


@dataclass
class ApiPoller:
    """Polls Triton's API, and remembers between polls: the server's version, statistics, the parsed index."""

    client: Client
    now: Callable[[], float]
    count_failure: CountFailure
    pause_seconds: float = field(default=0.0, init=False)  # minimum time until the next poll
    _last_statistics: tuple[ModelStatistics, ...] | None = field(default=None, init=False)
    _read_statistics: tuple[list[bytes], dict[bytes, ModelStatistics], tuple[ModelStatistics, ...]] = field(
        default=([], {}, ()), init=False
    )
    """The last body in parts, what each part of a model says, and all of it."""
    _last_serving: tuple[object, frozenset[ModelVersion]] = field(default=(None, frozenset()), init=False)
    """The index and the versions with statistics of the last poll, and which versions serve by them."""
    _last_index: tuple[bytes | None, tuple[IndexEntry, ...]] = field(default=(None, ()), init=False)
    _index_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=2), init=False)
    _next_statistics: float = field(default=0.0, init=False)
    _statistics_moved_at: float = field(default=0.0, init=False)
    _version: str = field(default="", init=False)
    _health: tuple[bool, int] = field(default=(False, 0), init=False)
    """Of the last poll: whether the server was ready, and the status of the answer whether it is live."""

    def __post_init__(self) -> None:
        self._requests = PollRequests(self.client, self.count_failure)
        self._models = ModelEndpoints(self._requests)

    def poll(self) -> Snapshot:
        """Ask Triton everything once. Every failure is part of the snapshot, none is an exception."""
        try:
            return self._poll_endpoints()
        finally:
            self.client.end_poll()
            self.client.until = math.inf

    def _poll_endpoints(self) -> Snapshot:
        at = self.now()
        self._requests.begin()
        self._requests.allow(READY_SHARE)
        ready = alive = self._requests.answer("ready", READY_PATH)
        self._requests.allow(1.0)
        is_ready = isinstance(ready, Answer) and ready.status == 200
        if not is_ready:  # a Triton that is ready is live
            alive = self._requests.answer("live", LIVE_PATH)
        if isinstance(alive, FetchError):
            return self._failed_poll(at, alive.reason, str(alive))
        if not (alive.status == 200 and self._version):
            failure, text = self._identify()
            if failure:
                return self._failed_poll(at, failure, text)
        self._requests.allow(ANSWERS_SHARE)
        # The statistics come before the index, which may take all the remaining time.
        statistics = self._statistics()
        index = self._index()
        if not self._next_statistics:
            statistics = self._statistics()
        if self._health != (is_ready, alive.status):
            self._health = is_ready, alive.status
            # A drain, or a process that has died: models are not ready either, and are due.
            self._models.ready_asked = dict.fromkeys(self._models.ready_asked, -math.inf)
        before = dict(self._models.ready)
        self._models.ask(self._serving(index, statistics))
        if any(not is_ready and before.get(key, True) for key, is_ready in self._models.ready.items()):
            # An unload that began since the index was read would be a version in state ready that is not ready.
            again = self._requests.parsed("index", self.client.index, self._read_index)
            index = index if again is None else again
        if self._requests.unanswered:
            # One slow endpoint is not an outage; a process that was stopped during this poll is.
            self._requests.allow(1.0)
            alive = self._requests.answer("live", LIVE_PATH)
            if isinstance(alive, FetchError):
                return self._failed_poll(at, alive.reason, str(alive))
        live = alive.status == 200
        if _is_refused(alive):
            if index is None and statistics is None:
                return self._failed_poll(at, "http_error", self._what_answers(LIVE_PATH, alive))
            live = index is not None  # a Triton that is not live refuses it
        return Snapshot(
            at,
            live=live,
            ready=None if _is_refused(ready) else is_ready,
            triton_version=self._version,
            index=index,
            statistics=statistics,
            configs=self._models.configs,
            ready_versions=dict(self._models.ready),
        )

    def _serving(
        self, index: tuple[IndexEntry, ...] | None, statistics: tuple[ModelStatistics, ...] | None
    ) -> frozenset[ModelVersion]:
        """Return the versions that serve: the same object as in the last poll if its answers were the same."""
        shown, before = self._last_serving
        current = index, [each.key for each in statistics or ()]
        if current != shown:
            listed = (
                ModelVersion(entry.model, entry.version) for entry in index or () if entry.state == "READY"
            )
            ready = frozenset([*listed, *current[1]])
            self._last_serving = current, before if ready == before else ready
        return self._last_serving[1]

    def _failed_poll(self, at: float, failure: str, text: str) -> Snapshot:
        """Forget all answers, because all may be different after a restart, and return a failed poll."""
        self._models.forget()
        self._version = ""
        self._last_statistics = None
        return Snapshot(at, api_failure=failure, api_failure_text=text)

    def _identify(self) -> tuple[str, str]:
        """Remember the server's version; return why it is no Triton that answers (of DOWN_REASONS), with details.

        Both are empty if it is one.
        """
        try:
            answer = self.client.get(SERVER_PATH)
            if answer.status == 200:
                self._version = parse_server(answer.body)
                return "", ""
            text = self._what_answers(SERVER_PATH, answer)
            if answer.status != 404 and error_text(answer.body):
                # Triton refuses in JSON, where its metadata is restricted or while it ends; it always has the path.
                failure = ""
            elif answer.status in (401, 403, 407, 429) or answer.status >= 500:
                failure = (
                    "http_error"  # a proxy in front of Triton that wants credentials, or does not reach it
                )
            else:
                failure = NOT_TRITON
        except FetchError as error:
            failure, text = error.reason, str(error)
        except AnswerError as error:
            failure, text = NOT_TRITON, f"{self.client.describe(SERVER_PATH, 200)}: {error}"
        self.count_failure("metadata", failure or "http_error")
        return failure, text

    def _what_answers(self, path: str, answer: Answer) -> str:
        error = error_text(answer.body)
        return self.client.describe(path, answer.status) + (f": {error}" if error else "")

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
                "statistics", lambda: self.client.get(STATISTICS_PATH), self._parse_statistics
            )
            ended = time.monotonic()
            rests = ended - self._statistics_moved_at > RESTING_SECONDS
            self._next_statistics = ended + max(
                RESTING_STATISTICS_SECONDS if rests else 0.0, 30 * (ended - started)
            )
        return self._last_statistics

    def _parse_statistics(self, body: bytes) -> tuple[ModelStatistics, ...]:
        """Return the statistics; the text of a model that rests is not parsed again: at 1,000 models that takes long."""
        begin, *texts = parts = body.split(_MODEL)
        before, known, statistics = self._read_statistics
        if parts != before:
            self._statistics_moved_at = time.monotonic()
            # The last one is there always: it ends the document.
            new = [text for text in texts[:-1] if text not in known] + texts[-1:]
            parsed = parse_statistics(_MODEL.join([begin, *new]))
            names = [f'"{each.model}"'.encode() for each in parsed]
            if len(names) == len(new) and all(map(bytes.startswith, map(bytes.lstrip, new), names)):
                known = dict(zip(new, parsed, strict=True)) | known
                statistics = tuple(known[text] for text in texts)
                known = dict(zip(texts, statistics, strict=True))
            else:  # written in another way
                known, statistics = {}, parse_statistics(body)
            self._read_statistics = parts, known, statistics
        return statistics


@dataclass
class NoApi:
    """In place of the poller where the operator named the metrics alone."""

    now: Callable[[], float]
    pause_seconds: float = field(default=5.0, init=False)  # what is known moves with the metrics alone

    def poll(self) -> Snapshot:
        return Snapshot(self.now(), api_failure=NO_API, ready=None)


def _is_refused(answer: Answer | FetchError) -> bool:
    """Return whether a restricted endpoint, or a proxy, wants a header: what it would answer is not known."""
    return isinstance(answer, Answer) and answer.status in (401, 403)
