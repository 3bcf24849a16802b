"""Sources of the pages: Prometheus, the bridge and a Triton, each asked once an interval for all viewers."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

import requests

from triton_alerts.bridge.incidents.history import RecordedIncident
from triton_exporter.common.problem import ProblemsError
from triton_exporter.doctor.checks import examine
from triton_exporter.doctor.finding import Finding, TritonFacts
from triton_slo.artifact import Options
from triton_slo.group_status import GroupStatus
from triton_slo.objective.model import Objective
from triton_slo.plan import Plan
from triton_slo.prometheus import Prometheus, PrometheusError
from tritonwatch.bridge_incidents import DATA_OPTION, BridgeAddress, incidents_of
from tritonwatch.objective_files import ObjectiveFiles

T = TypeVar("T")
log = logging.getLogger(__name__)
_BRIDGE_INTERVAL_SECONDS = 10.0
_PATIENCE_SECONDS = 3.0
"""Time for which a page waits for a Triton that has not been asked lately."""


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


@dataclass(eq=False)
class BridgeReader:
    """Reads by `read`, which raises ProblemsError; safe for threads."""

    read: Callable[[], list[RecordedIncident]]
    now: Callable[[], float] = time.time
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _answer: CachedAnswer[list[RecordedIncident]] = field(default_factory=lambda: CachedAnswer([], None))
    _fresh_until: float = 0.0

    def incidents(self) -> CachedAnswer[list[RecordedIncident]]:
        """Return the incidents, the oldest first; where reading fails, the last known ones with the reason."""
        with self._lock:
            if self.now() >= self._fresh_until:
                try:
                    self._answer = CachedAnswer(self.read(), self.now())
                except ProblemsError as error:
                    self._answer = replace(self._answer, problem=str(error))
                self._fresh_until = self.now() + _BRIDGE_INTERVAL_SECONDS
            return self._answer


@dataclass(frozen=True, slots=True)
class ModelFindings:
    """Findings about a model and its Triton, read at Unix time `read_at`.

    `problem` is why they are missing or outdated; no findings and no problem mean that there is nothing to change.
    """

    url: str
    findings: tuple[Finding, ...]
    read_at: float | None
    problem: str = ""


@dataclass(eq=False)
class DoctorReader:
    """Gathers the facts about the Triton at `url` by `gather`; safe for threads."""

    url: str
    gather: Callable[[], TritonFacts]
    interval_seconds: float
    now: Callable[[], float] = time.time
    patience_seconds: float = _PATIENCE_SECONDS
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _idle: threading.Event = field(default_factory=threading.Event)
    _answer: CachedAnswer[TritonFacts | None] = field(default_factory=lambda: CachedAnswer(None, None))
    _fresh_until: float = 0.0

    def __post_init__(self) -> None:
        self._idle.set()

    def of_model(self, model: str) -> ModelFindings:
        """Return the findings about a model and its server. A Triton that cannot be asked is a problem."""
        answer = self._latest_facts()
        facts, problem = answer.value, answer.problem
        if facts is None:
            return ModelFindings(self.url, (), None, f"could not be asked: {problem}")
        findings = tuple(examine(facts))
        if not problem and facts.snapshot.api_failure:
            problem = "could not be asked"
        elif facts.snapshot.index is not None and model not in {
            entry.model for entry in facts.snapshot.index
        }:
            return ModelFindings(self.url, (), answer.read_at, problem or "does not list this model")
        own = tuple(finding for finding in findings if not finding.models or model in finding.models)
        return ModelFindings(self.url, own, answer.read_at, problem)

    def _latest_facts(self) -> CachedAnswer[TritonFacts | None]:
        with self._lock:
            late = self.now() >= self._fresh_until + self.interval_seconds
            if self.now() >= self._fresh_until and self._idle.is_set():
                self._idle.clear()
                threading.Thread(target=self._examine, name="doctor", daemon=True).start()
        if late and not self._idle.wait(self.patience_seconds):
            return replace(self._answer, problem="it has not answered yet; open the page again")
        return self._answer

    def _examine(self) -> None:
        try:
            answer: CachedAnswer[TritonFacts | None] = CachedAnswer(self.gather(), self.now())
        except Exception:
            # A defect must not be shown as "no findings".
            log.exception("the Triton at %s could not be examined", self.url)
            answer = replace(self._answer, problem="the log of `tritonwatch web` has the reason")
        self._answer = answer
        self._fresh_until = self.now() + self.interval_seconds
        self._idle.set()


@dataclass(frozen=True, slots=True)
class Addresses:
    """Addresses at which a browser reaches the other servers of the stack; empty where not known."""

    prometheus: str = ""
    alertmanager: str = ""
    grafana: str = ""


@dataclass(frozen=True)
class Sources:
    """Everything that a page may read.

    `files` are those of --objectives, `options` how their rules were generated. `not_loaded` returns what Prometheus
    has not loaded of the objectives, given the status of all; `bridge_data` is the folder of the Slack bridge, or its
    address; `doctor` examines the Triton of --triton.
    """

    reader: PrometheusReader
    files: ObjectiveFiles = field(default_factory=ObjectiveFiles)
    options: Options = field(default_factory=Options)
    not_loaded: Callable[[Sequence[Objective], Sequence[GroupStatus]], str] = lambda _objectives, _rows: ""
    addresses: Addresses = Addresses()
    bridge_data: Path | BridgeAddress | None = None
    doctor: DoctorReader | None = None

    def incidents(self) -> CachedAnswer[list[RecordedIncident]]:
        """Return the incidents of the bridge, the oldest first; `read_at` is None without a bridge."""
        return CachedAnswer([], None) if self._bridge is None else self._bridge.incidents()

    @cached_property
    def _bridge(self) -> BridgeReader | None:
        bridge = self.bridge_data
        return None if bridge is None else BridgeReader(lambda: incidents_of(bridge, DATA_OPTION))

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """The objectives of the files as they are now."""
        return self.files.latest()[0]

    def plan(self, slo: str) -> Plan | None:
        """Return an objective with the options of its rules; None where the files have none of this name."""
        return next((Plan(each, self.options) for each in self.objectives if each.name == slo), None)
