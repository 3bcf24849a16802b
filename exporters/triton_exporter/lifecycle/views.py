"""Show the lifecycle of all models: as series, as JSON of /state, and in the exporter's log."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from triton_exporter.catalogue import Metric, state
from triton_exporter.catalogue.state import NOT_TRITON
from triton_exporter.common.moments import rfc3339
from triton_exporter.common.printable import printable
from triton_exporter.exposition.scrape import Reading
from triton_exporter.exposition.write import CachedSamples
from triton_exporter.family import Family, Sample, series_once
from triton_exporter.lifecycle.load_failures import LastFailure, classify
from triton_exporter.lifecycle.tracker import Lifecycle, Record
from triton_exporter.snapshot import NO_API, ModelVersion, Snapshot, what_to_check

AT_ZERO_SECONDS = 15.0
"""Time for which a failure counter stays at 0 after it first appears, unless Prometheus has taken the 0 before: a
counter that appears with 1 shows Prometheus no increase."""


@dataclass
class ModelStates:
    """SnapshotObserver and Collector over one Lifecycle."""

    lifecycle: Lifecycle
    _zero_since: dict[str, float] = field(default_factory=dict, init=False)
    """Models whose counters are shown as 0, and since when (Unix seconds)."""
    _shown: set[str] = field(default_factory=set, init=False)
    """Models whose counters have been shown."""
    _states: dict[ModelVersion, Set[str]] = field(default_factory=dict, init=False)
    """The states that each model version has been shown in."""
    _written: tuple[object, Sequence[Family]] = field(default=(None, ()), init=False)

    def observe_snapshot(self, snapshot: Snapshot) -> None:
        """Take in one poll."""
        self.lifecycle.observe_snapshot(snapshot)

    def note_scrape(self) -> None:
        """Note that Prometheus has scraped a whole page: counters that it saw at 0 may now grow."""
        self._zero_since.clear()

    def families(self, now: float) -> Iterable[Family]:
        """Yield readiness, state, expectation, load failures, episodes and load times of models."""
        models = self.lifecycle.load_failures.models
        self._zero_since = {
            model: since for model, since in self._zero_since.items() if now - since < AT_ZERO_SECONDS
        }
        self._zero_since |= dict.fromkeys(models - self._shown, now)
        self._shown = set(models)
        # At 1,000 models these families are a megabyte, and change a few times a day.
        current = (self.lifecycle.revision, frozenset(self._zero_since))
        if self._written[0] != current:
            self._written = (current, self._families())
        yield from self._written[1]

    def _families(self) -> Sequence[Family]:
        lifecycle = self.lifecycle
        records = sorted(lifecycle.records.items())
        self._states = {key: self._states.get(key, set()) | {record.claim.state} for key, record in records}
        expected = lifecycle.expected_models()
        # Of a model of which only the metrics are known, nobody can say that it should serve and does not.
        known = [] if lifecycle.metrics_only else records
        families = [
            _cached_family(state.MODEL_READY, ((key, record.claim.ready) for key, record in known)),
            _cached_family(
                state.MODEL_STATE,
                (
                    ((*key, name), name == record.claim.state)
                    for key, record in records
                    for name in state.MODEL_STATES
                    if name in self._states[key]
                ),
            ),
            _cached_family(
                state.MODEL_EXPECTED,
                (((model,), model in expected) for model in sorted({key.model for key, _ in known})),
            ),
            _cached_family(state.MODEL_LOAD_FAILURES, self._failures(lifecycle.load_failures.counts)),
            _cached_family(
                state.MODEL_NOT_READY_SINCE,
                (
                    (key, record.not_ready_since)
                    for key, record in records
                    if record.not_ready_since is not None
                ),
            ),
            _cached_family(
                state.MODEL_FIRST_LOAD, ((key, 1) for key, record in records if record.first_load)
            ),
            _cached_family(
                state.MODEL_LOAD_DURATION_ESTIMATED,
                ((key, record.load.seconds) for key, record in records if record.load.seconds is not None),
            ),
        ]
        if lifecycle.load_failures.log_read:
            families.append(
                _cached_family(state.MODEL_RELOAD_FAILURES, self._failures(lifecycle.load_failures.reloads))
            )
        return families

    def _failures(self, failures: Mapping[tuple[str, str], int]) -> Iterable[tuple[tuple[str, ...], float]]:
        for model in sorted(self.lifecycle.load_failures.models):
            for reason in state.LOAD_FAILURE_REASONS:
                yield (model, reason), 0 if model in self._zero_since else failures.get((model, reason), 0)


def _cached_family(metric: Metric, values: Iterable[tuple[tuple[str, ...], float]]) -> Family:
    return Family(
        metric, CachedSamples(Sample(series_once(metric, *labels), value) for labels, value in values)
    )


MAX_TEXT = 4000
"""Characters of Triton's reason shown; a Python traceback can be longer than a page."""


def report(lifecycle: Lifecycle, reading: Reading | None, triton_url: str) -> dict[str, Any]:
    """Return what /state answers; times are ISO 8601 in UTC."""
    expected = lifecycle.expected_models()
    snapshot = lifecycle.snapshot
    shown = phase(lifecycle, metrics_answer=reading is not None and reading.up)
    return {
        "triton": {
            "url": triton_url,
            "version": snapshot.triton_version,
            "looked_at": _rfc3339_or_none(snapshot.at),
            "up": reading is not None and is_up(lifecycle, reading),
            "metrics_failure": reading.reason if reading is not None else "",
            "metrics_failure_text": reading.detail[:MAX_TEXT] if reading is not None else "",
            "live": snapshot.live or shown == METRICS_ONLY,
            "ready": snapshot.ready,
            "api_failure": snapshot.api_failure,
            "api_failure_text": snapshot.api_failure_text[:MAX_TEXT],
            "phase": shown,
            "start_failure": "" if snapshot.live else lifecycle.start_failure[:MAX_TEXT],
        },
        "models": [
            _model(lifecycle, key, record, expected=key.model in expected)
            for key, record in sorted(lifecycle.records.items())
        ],
    }


def server_families(lifecycle: Lifecycle, reading: Reading | None) -> Iterable[Family]:
    """Yield whether the server is live and ready, as far as it is known."""
    snapshot = lifecycle.snapshot
    shown = phase(lifecycle, metrics_answer=reading is None or reading.up)
    known = shown != "unknown"
    yield Family.of(state.SERVER_LIVE, [((), snapshot.live or shown == METRICS_ONLY)] if known else [])
    yield Family.of(
        state.SERVER_READY, [((), snapshot.ready)] if known and snapshot.ready is not None else []
    )


def is_up(lifecycle: Lifecycle, reading: Reading) -> bool:
    """Return whether a Triton answers at the address of the metrics, and not another server at that of its API."""
    return reading.up and phase(lifecycle, metrics_answer=True) != OTHER_SERVER


METRICS_ONLY = "metrics only"
OTHER_SERVER = "not Triton"


def phase(lifecycle: Lifecycle, *, metrics_answer: bool) -> str:
    """Return the phase, from both ports: the API ends at once on SIGTERM, metrics when all is drained.

    The API's port closes (seen in 2.51), or goes on answering that the server is not live (seen in 2.41). A Triton
    that was never live and does the same has failed to start, or has no HTTP.
    """
    failure = lifecycle.snapshot.api_failure
    if not failure:
        if not lifecycle.snapshot.live:
            return "draining" if lifecycle.was_live and not lifecycle.has_closed else "failed to start"
        return "serving" if metrics_answer else "serving, metrics do not answer"
    if failure == NO_API:
        return METRICS_ONLY if metrics_answer else "does not answer"
    # A front end of Triton without the KServe API (OpenAI's) has the metrics, and 404 for all of /v2.
    if failure == NOT_TRITON and not (metrics_answer and not lifecycle.was_live):
        return OTHER_SERVER
    # It runs, and neither a wrong address or header nor a certificate says more of it.
    if metrics_answer and (failure == "tls" or not lifecycle.was_live):
        return "unknown"
    if metrics_answer and failure in ("refused", "bad_response", NOT_TRITON):
        return "draining"
    if failure == "refused":
        return "down or starting"
    return "does not answer"


def _model(lifecycle: Lifecycle, key: ModelVersion, record: Record, *, expected: bool) -> dict[str, Any]:
    return {
        "model": key.model,
        "version": key.version,
        "state": record.claim.state,
        "since": _rfc3339_or_none(record.since),
        "ready": record.claim.ready,
        "expected": expected,
        "expected_by": [
            *(["operator"] if key.model in lifecycle.expected else []),
            *(["asked to load"] if record.load_requested else []),
        ],
        "not_ready_since": _rfc3339_or_none(record.not_ready_since),
        "load_duration_estimated_seconds": None
        if record.load.seconds is None
        else round(record.load.seconds, 3),
        "reason": record.claim.reason[:MAX_TEXT],
        "source": record.claim.source,
        "last_load_failure": _failure(lifecycle.load_failures.last.get(key.model), "version", "source"),
        "last_request_error": _failure(lifecycle.request_errors.get(key.model)),
        "last_probe_error": _failure(lifecycle.probe_errors.get(key)),
    }


def _failure(failure: LastFailure | None, *more: str) -> dict[str, Any] | None:
    if failure is None:
        return None
    other = {name: getattr(failure, name) for name in more}
    return {"at": _rfc3339_or_none(failure.at), "text": failure.text[:MAX_TEXT], **other}


def _rfc3339_or_none(at: float | None) -> str | None:
    return None if not at else rfc3339(at, "milliseconds")


_LOG = logging.getLogger(__name__)

QUIET_SECONDS = 600.0
"""Time for which the same words about a model are not repeated: poll mode tries again every few seconds."""

_MAX_TEXT = 1000


class FailureLog:
    """SnapshotObserver (see `app.exporter`); comes after the lifecycle it reads."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle
        self._logged: dict[str, LastFailure] = {}

    def observe_snapshot(self, _snapshot: Snapshot) -> None:
        """Log what failed since the last poll."""
        failures = self._lifecycle.load_failures.last
        self._logged = {model: logged for model, logged in self._logged.items() if model in failures}
        for model, failure in failures.items():
            logged = self._logged.get(model)
            if (
                logged is None
                or (failure.version, failure.text) != (logged.version, logged.text)
                or failure.at >= logged.at + QUIET_SECONDS
            ):
                self._logged[model] = failure
                version = f" version {_log_text(failure.version)}" if failure.version else ""
                text = _log_text(" ".join(failure.text.split()))
                name, reason = _log_text(model), classify(failure.text)
                _LOG.warning("model %s%s failed to load (%s): %s", name, version, reason, text)


def _log_text(text: str) -> str:
    """Return the text in one line that cannot steer a terminal."""
    return printable(text[:_MAX_TEXT])


class ReachabilityLog:
    """SnapshotObserver (see `app.exporter`): one line for each change, also of the reason."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._failure: str | None = None

    def observe_snapshot(self, snapshot: Snapshot) -> None:
        """Write whether this poll was answered, or why not, if it is not as the last one was."""
        before, self._failure = self._failure, snapshot.api_failure
        if self._failure == before or snapshot.api_failure == NO_API:
            return
        if snapshot.api_failure:
            check = what_to_check(snapshot.api_failure)
            seen = _log_text(snapshot.api_failure_text or snapshot.api_failure)
            _LOG.warning("Triton at %s does not answer (%s): %s", self._url, seen, check)
        else:
            again = "" if before is None else " again"
            _LOG.info("Triton %s at %s answers%s", snapshot.triton_version, self._url, again)
