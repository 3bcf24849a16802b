"""Triton's reasons why a model of the incident is not ready, from the exporters' `/state`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from triton_alerts.bridge.evidence.enrich import Source
from triton_alerts.bridge.incidents.incident import Incident, SourceFacts
from triton_slo.prometheus.server_access import Access, session_for

MAX_REASON_LENGTH = 8_000
MAX_STATE_BYTES = 8 * 1024 * 1024
_GONE = ("missing", "not_loaded", "unloaded", "unknown")


def source(exporters: Sequence[Access]) -> Source:
    """Return the source of Triton's own words for each model of the incident."""

    def ask(incident: Incident) -> SourceFacts:
        wanted = {m.labels["model"] for m in incident.members.values() if m.labels.get("model")}
        reasons: dict[str, str] = {}
        for access in exporters if wanted else ():
            reasons.update(reasons_in(_state_page(access), wanted))
        return SourceFacts(reasons=reasons)

    return ask


def reasons_in(state: Any, models: set[str]) -> dict[str, str]:
    """Return the reasons in an exporter's state document, by model and version; ignore unknown content."""
    reasons: dict[str, str] = {}
    for entry in state.get("models", []) if isinstance(state, dict) else []:
        if not isinstance(entry, dict) or entry.get("model") not in models or entry.get("ready"):
            continue
        failure = entry.get("last_load_failure")
        failure = failure if isinstance(failure, dict) else {}
        # While Triton retries, the model is LOADING without a reason; the reason of the last failure is the cause.
        # It still is where the model was unloaded or deleted since.
        texts = [entry.get("reason"), failure.get("text")]
        if entry.get("state") in _GONE:
            texts.reverse()
        reason = str(texts[0] or texts[1] or "")
        version = str(entry.get("version") or failure.get("version") or "")
        if reason:
            reasons[f"{entry['model']} v{version}" if version else str(entry["model"])] = reason[
                :MAX_REASON_LENGTH
            ]
    return reasons


def _state_page(access: Access) -> Any:
    url = f"{access.url.rstrip('/')}/state"
    with (
        session_for(access) as session,
        session.get(url, timeout=access.timeout_seconds, stream=True) as response,
    ):
        response.raise_for_status()
        body = response.raw.read(MAX_STATE_BYTES + 1, decode_content=True)
    if len(body) > MAX_STATE_BYTES:
        raise ValueError(f"{url} answered more than {MAX_STATE_BYTES} bytes")
    return json.loads(body)
