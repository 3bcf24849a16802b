"""The findings of `tritonwatch doctor` for all viewers: a Triton is asked at most once an interval, in a thread."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from triton_exporter.doctor.checks import examine
from triton_exporter.doctor.finding import Finding, TritonFacts
from tritonwatch.web.readers.prometheus_reader import CachedAnswer

log = logging.getLogger(__name__)
_PATIENCE_SECONDS = 3.0
"""Time for which a page waits for a Triton that has not been asked lately."""


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
