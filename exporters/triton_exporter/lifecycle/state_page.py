"""The state of one Triton as JSON: every model, its state, since when, why, and by which source."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from triton_exporter.catalogue import state
from triton_exporter.catalogue.state import NOT_TRITON
from triton_exporter.common.moments import rfc3339
from triton_exporter.exposition.scrape import Reading
from triton_exporter.family import Family
from triton_exporter.lifecycle.tracker import Lifecycle, Record
from triton_exporter.snapshot import ModelVersion

MAX_TEXT = 4000
"""Characters of Triton's reason shown; a Python traceback can be longer than a page."""


def report(lifecycle: Lifecycle, reading: Reading | None, triton_url: str) -> dict[str, Any]:
    """Return what /state answers; times are ISO 8601 in UTC."""
    expected = lifecycle.expected_models()
    snapshot = lifecycle.snapshot
    return {
        "triton": {
            "url": triton_url,
            "version": snapshot.triton_version,
            "looked_at": _rfc3339_or_none(snapshot.at),
            "up": reading is not None and reading.up and snapshot.api_failure != NOT_TRITON,
            "metrics_failure": reading.reason if reading is not None else "",
            "metrics_failure_text": reading.detail[:MAX_TEXT] if reading is not None else "",
            "live": snapshot.live,
            "ready": snapshot.ready,
            "api_failure": snapshot.api_failure,
            "api_failure_text": snapshot.api_failure_text[:MAX_TEXT],
            "phase": phase(lifecycle, metrics_answer=reading is not None and reading.up),
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
    known = phase(lifecycle, metrics_answer=reading is None or reading.up) != "unknown"
    yield Family.of(state.SERVER_LIVE, [((), snapshot.live)] if known else [])
    yield Family.of(
        state.SERVER_READY, [((), snapshot.ready)] if known and snapshot.ready is not None else []
    )


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
    if failure == NOT_TRITON:
        return "not Triton"
    if failure in ("refused", "bad_response") and metrics_answer:
        return "draining" if lifecycle.was_live else "unknown"
    if failure == "refused":
        return "down or starting"
    return "does not answer"


def _model(lifecycle: Lifecycle, key: ModelVersion, record: Record, *, expected: bool) -> dict[str, Any]:
    failure = lifecycle.load_failures.last.get(key.model)
    return {
        "model": key.model,
        "version": key.version,
        "state": record.claim.state,
        "since": _rfc3339_or_none(record.since),
        "ready": record.claim.ready,
        "expected": expected,
        "expected_by": _expected_by(lifecycle, key, record),
        "not_ready_since": _rfc3339_or_none(record.not_ready_since),
        "load_duration_estimated_seconds": _rounded(record.load.seconds),
        "reason": record.claim.reason[:MAX_TEXT],
        "source": record.claim.source,
        "last_load_failure": None
        if failure is None
        else {
            "at": _rfc3339_or_none(failure.at),
            "version": failure.version,
            "text": failure.text[:MAX_TEXT],
            "source": failure.source,
        },
    }


def _expected_by(lifecycle: Lifecycle, key: ModelVersion, record: Record) -> list[str]:
    return [
        *(["operator"] if key.model in lifecycle.expected else []),
        *(["asked to load"] if record.load_requested else []),
    ]


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _rfc3339_or_none(at: float | None) -> str | None:
    return None if not at else rfc3339(at, "milliseconds")
