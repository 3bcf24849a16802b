"""Probe every model the operator named, each in its own time, one request in flight for each."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from triton_exporter.catalogue import probe
from triton_exporter.family import Family
from triton_exporter.lifecycle.load_failures import LastFailure
from triton_exporter.lifecycle.tracker import Lifecycle
from triton_exporter.probe.payload import NoPayloadError, Tensor, made_up
from triton_exporter.probe.probe_settings import ProbeSettings
from triton_exporter.snapshot import ModelConfig, ModelVersion, Snapshot, claims

_DEAD = re.compile(r"Stub process .*is not healthy")
"""Answer of Triton's python backend for a model whose process has died, whatever the input.

https://github.com/triton-inference-server/python_backend/blob/main/src/python_be.cc
"""


@dataclass(frozen=True, slots=True)
class ProbeOutcome:
    """One of the catalogue's RESULTS, the duration, and Triton's text unless it worked."""

    result: str
    seconds: float
    text: str = ""

    @property
    def of_dead_process(self) -> bool:
        """True if the model's process is dead, whether its input has ever worked or not."""
        return self.result == "failed" and bool(_DEAD.search(self.text))


MEMORY_SECONDS = 900.0
"""Time for which the counters of a model are shown after it was last ready."""

RETRY_SECONDS = 3.0
"""Time after a failed probe until the model is probed again: a recovery, or a chance failure, shows at once.

Repetitions decide readiness and are not counted, so that each interval has the same weight in `probe` objectives.
"""

MAX_AT_ONCE = 4
"""Probes in flight altogether: a prober must not be what saturates a server."""


Send = Callable[[ModelVersion, Sequence[Tensor], bool], ProbeOutcome]
"""Sends one probe and waits for its end; the flag: whether the model is decoupled."""


@dataclass(slots=True)
class _Target:
    """One model version that is probed."""

    due: float
    next_counted: float
    inputs: tuple[Tensor, ...]
    decoupled: bool
    in_flight: bool = False
    ready: bool = True
    seen: float = 0.0
    last: ProbeOutcome | None = None
    last_error: LastFailure | None = None
    proven: bool = False  # these inputs have worked
    started: float = 0.0
    triton_successes: int = -1  # Triton's count of successes, probes included; negative: not known yet
    max_other_successes: int = 0  # the highest number of them that were no probes
    last_success: float = float("-inf")  # when that number last grew
    is_repetition: bool = False
    failures: int = 0  # repetitions among them
    results: Counter[str] = field(default_factory=Counter)
    probe_successes: int = 0


class Prober:
    """Poller, SnapshotObserver and Collector (see `app.exporter`).

    Only versions that Triton calls ready are probed. The result of the last probe is part of the readiness
    that the lifecycle shows. A probe that the model cannot take, or that never worked, shows nothing about the
    model, and none shows more than the requests of others that work.
    """

    interval_seconds = 0.1

    def __init__(
        self, settings: ProbeSettings, lifecycle: Lifecycle, send: Send, jitter: Callable[[], float]
    ) -> None:
        self._settings = settings
        self._lifecycle = lifecycle
        self._send = send
        self._jitter = jitter
        self._lock = threading.Lock()
        self._targets: dict[ModelVersion, _Target] = {}
        self._skipped: dict[ModelVersion, str] = {}
        self._configs: dict[ModelVersion, ModelConfig] = {}
        self._in_flight = 0

    def observe_snapshot(self, snapshot: Snapshot) -> None:
        """Update which versions are ready and their configuration; report failing models to the lifecycle."""
        ready = {key for key, claim in claims(snapshot).items() if claim.ready}
        successes = {statistics.key: statistics.success for statistics in snapshot.statistics or ()}
        with self._lock:
            for key in ready:
                if self._settings.covers(key.model) and key in snapshot.configs:
                    self._update_target(key, snapshot.configs[key], snapshot.at)
            for key, target in self._targets.items():
                target.ready = key in ready
                _note_others(target, successes.get(key), snapshot.at)
                if target.ready:
                    target.seen = snapshot.at
                else:
                    target.last = None  # what it did before it was reloaded shows nothing
            self._forget(snapshot.at)
            for key in self._skipped.keys() - ready:
                del self._skipped[key]
            self._lifecycle.failed_probes = {
                key: f"its last probe ended with {target.last.result}: {target.last.text}"
                for key, target in self._targets.items()
                if target.last is not None and self._shown_by_probe(target, snapshot.at) == "fails"
            }
            self._lifecycle.unproven = {key: why for key in ready if (why := self._unproven(key))}
            self._lifecycle.probe_failures = {key: target.failures for key, target in self._targets.items()}
            self._lifecycle.probe_errors = {
                key: target.last_error for key, target in self._targets.items() if target.last_error
            }

    def _unproven(self, key: ModelVersion) -> str:
        """Return why no probe has shown that a version works; empty where one has, or where none is sent."""
        target = self._targets.get(key)
        if not self._settings.covers(key.model) or key in self._skipped or (target and target.proven):
            return ""
        if target is None or target.last is None:
            return "no probe of it has ended yet"
        return f"no probe of it has worked yet; the last ended with {target.last.result}: {target.last.text}"

    def _shown_by_probe(self, target: _Target, now: float) -> Literal["works", "fails", "nothing"]:
        """Return what the last probe shows of the model."""
        if target.last is None or target.last.result in probe.INCONCLUSIVE:
            return "nothing"
        if target.last.result == "success":
            return "works"
        # A request that worked shows as much as a probe, for as long as a probe does.
        recent = max(self._settings.interval_seconds, RETRY_SECONDS)
        return "nothing" if now - target.last_success <= recent else "fails"

    def poll(self, now: float) -> None:
        """Start the probes that are due."""
        with self._lock:
            due = [
                key
                for key, target in self._targets.items()
                if target.ready and not target.in_flight and target.due <= now
            ]
            due.sort(key=lambda key: self._targets[key].due)
            started = due[: max(0, MAX_AT_ONCE - self._in_flight)]
            for key in started:
                target = self._targets[key]
                target.in_flight, target.started = True, now
                target.is_repetition = now < target.next_counted
                if not target.is_repetition:
                    target.next_counted = now + self._settings.interval_seconds * (0.9 + 0.2 * self._jitter())
                target.due = target.next_counted
                self._in_flight += 1
        for key in started:
            # Each probe has a daemon thread, so that a probe that hangs does not keep the exporter from ending.
            threading.Thread(target=self._probe, args=(key,), name="probe", daemon=True).start()

    def families(self, now: float) -> Iterable[Family]:
        """Yield the results of all probes so far."""
        with self._lock:
            targets = sorted(self._targets.items())
            results = (
                ((*key, result), target.results[result])
                for key, target in targets
                for result in probe.RESULTS
            )
            yield Family.of(probe.REQUESTS, results)
            shown = ((key, self._shown_by_probe(target, now)) for key, target in targets)
            yield Family.of(
                probe.SUCCESS, ((key, result == "works") for key, result in shown if result != "nothing")
            )
            skipped = (((*key, reason), 1) for key, reason in sorted(self._skipped.items()))
            yield Family.of(probe.UNPROBED, skipped)

    def _update_target(self, key: ModelVersion, config: ModelConfig, now: float) -> None:
        if self._configs.get(key) is config or self._configs.get(key) == config:
            return
        self._configs[key] = config
        self._skipped.pop(key, None)
        try:
            inputs = self._settings.payloads.get(key.model) or made_up(config)
            if config.decoupled and not self._settings.grpc_address:
                raise NoPayloadError("no_grpc")
        except NoPayloadError as error:
            self._skipped[key] = str(error)
            self._targets.pop(key, None)
            return
        known = self._targets.get(key)
        if known is not None:
            known.proven &= known.inputs == inputs
            known.inputs, known.decoupled = inputs, config.decoupled
        else:
            # Models that come together are spread, so that their probes never are a burst.
            spread = min(2.0, self._settings.interval_seconds) * self._jitter()
            self._targets[key] = _Target(now + spread, now + spread, inputs, config.decoupled)

    def _forget(self, now: float) -> None:
        gone = [key for key, target in self._targets.items() if now - target.seen > MEMORY_SECONDS]
        for key in gone:
            del self._targets[key], self._configs[key]

    def _probe(self, key: ModelVersion) -> None:
        with self._lock:
            target = self._targets.get(key)
        ended = ProbeOutcome("failed", 0.0, "")
        try:
            if target is not None:
                ended = self._send(key, target.inputs, target.decoupled)
        finally:
            with self._lock:
                self._in_flight -= 1
                if target is not None:
                    _record_outcome(target, ended)
                    if target.last is not None and target.last.result not in (
                        "success",
                        *probe.INCONCLUSIVE,
                    ):
                        target.due = min(target.due, target.started + ended.seconds + RETRY_SECONDS)


def _note_others(target: _Target, triton_successes: int | None, now: float) -> None:
    """Note when a request other than the probes has worked, by Triton's count of successes."""
    if triton_successes is None:
        return
    other_successes = triton_successes - target.probe_successes
    if target.triton_successes < 0 or triton_successes < target.triton_successes:  # a reload begins at 0
        target.max_other_successes = other_successes
    elif other_successes > target.max_other_successes:
        target.max_other_successes, target.last_success = other_successes, now
    target.triton_successes = triton_successes


def _record_outcome(target: _Target, ended: ProbeOutcome) -> None:
    target.in_flight = False
    inconclusive = not target.proven and not ended.of_dead_process
    unproven = inconclusive and ended.result not in ("success", "bad_input")
    target.last = replace(ended, result="unproven") if unproven else ended
    if not target.is_repetition:
        target.results[target.last.result] += 1
    if ended.result != "success":
        target.failures += 1
        at, result = target.started + ended.seconds, target.last.result
        target.last_error = LastFailure(at, "", f"{result}: {ended.text}", "probe")
        return
    target.proven = True
    target.probe_successes += 1
