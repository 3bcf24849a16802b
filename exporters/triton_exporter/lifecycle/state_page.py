"""The state of one Triton as JSON: every model, its state, since when, why, and by which source."""

from __future__ import annotations

from typing import Any

from triton_exporter.catalogue.state import NOT_TRITON
from triton_exporter.common.moments import rfc3339
from triton_exporter.exposition.scrape import Reading
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
            "phase": _phase(lifecycle, reading),
        },
        "models": [
            _model(lifecycle, key, record, expected=key.model in expected)
            for key, record in sorted(lifecycle.records.items())
        ],
    }


def _phase(lifecycle: Lifecycle, reading: Reading | None) -> str:
    """Return the phase, from both ports: the API ends at once on SIGTERM, metrics when all is drained.

    The API's port closes (seen in 2.51), or goes on answering that the server is not live (seen in 2.41).
    """
    metrics = reading is not None and reading.up
    if not lifecycle.snapshot.api_failure:
        if not lifecycle.snapshot.live:
            return "draining"
        return "serving" if metrics else "serving, metrics do not answer"
    if lifecycle.snapshot.api_failure == NOT_TRITON:
        return "not Triton"
    if lifecycle.snapshot.api_failure in ("refused", "bad_response") and metrics:
        return "draining"
    if lifecycle.snapshot.api_failure == "refused":
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
