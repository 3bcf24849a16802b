"""What a user of the demo sees, and the steps that this proves.

A row is a model in the demo's Prometheus, and a notice is a message that its bridge posted; a step has happened when both
show it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from triton_alerts.bridge.incidents.history import list_incidents
from triton_exporter.catalogue import state, triton
from triton_slo.prometheus import Prometheus, PrometheusError


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One model version; None means no data, never zero."""

    model: str
    version: str
    ready: float | None = None
    requests_per_second: float | None = None


def read_rows(prometheus: Prometheus) -> list[ModelRow]:
    """Return the models that Prometheus knows; none if it does not respond."""

    def by_version(query: str) -> dict[tuple[str, str], float]:
        try:
            samples = prometheus.instant(query)
        except PrometheusError:
            return {}
        return {(sample.labels["model"], sample.labels["version"]): sample.value for sample in samples}

    ready = by_version(f"min by (model, version) ({state.MODEL_READY})")
    rates = by_version(f"sum by (model, version) (rate({triton.REQUEST_SUCCESS}[10s]))")
    return [ModelRow(*key, ready.get(key), rates.get(key)) for key in sorted(ready.keys() | rates.keys())]


@dataclass(frozen=True, slots=True)
class Notice:
    """One alert about a model that was posted to on-call, and the reason from Triton."""

    status: str
    alert: str
    model: str
    reason: str = ""


def read_notices(data: Path) -> list[Notice]:
    """Return one notice for each model, alert and status posted so far; `data` is the bridge's folder."""
    notices = []
    for record in list_incidents(data):
        if not record.posted:
            continue
        evidence = record.incident.evidence
        reason = "\n".join(evidence.reasons.values()) if evidence is not None else ""
        for member in record.incident.members.values():
            alert, model = member.labels["alertname"], member.labels.get("model", "")
            for status in ("firing",) if member.firing else ("firing", "resolved"):
                notices.append(Notice(status, alert, model, reason))
    return notices


class MessageLog:
    """Messages in the log of the demo's bridge, read as they are appended; an empty line stands between two."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._last = b""
        self.newest = ""
        """The last message, which may be incomplete."""

    def new_messages(self) -> list[str]:
        """Return the messages appended since the last call; one that was incomplete then is returned again."""
        with self._path.open("rb") as log:
            log.seek(self._offset)
            appended = log.read()
        self._offset += len(appended)
        *complete, self._last = (self._last + appended).split(b"\n\n")
        messages = [part.decode(errors="replace").strip("\n") for part in (*complete, self._last)]
        new = messages[1:] if messages[0] == self.newest else messages
        self.newest = messages[-1]
        return new


def without_links(message: str) -> str:
    """Return a message without the lines of its links: an address of hundreds of characters hides the text."""
    return re.sub(r"^│ [\w ]+: +https?://\S*\n", "", message, flags=re.MULTILINE)


BROKEN = "broken"
SATURATED = "saturated"
TRITONS_REASON = "No such file or directory"
"""The text of the broken model's exception, which must reach on-call."""


@dataclass(frozen=True, slots=True)
class Observation:
    """The state at one time: the models, the messages to on-call, whether `broken` was repaired."""

    rows: Sequence[ModelRow]
    notices: Sequence[Notice]
    repaired: bool


def _notified(observation: Observation, status: str, alert: str, model: str, reason: str = "") -> bool:
    return any(
        (notice.status, notice.alert, notice.model) == (status, alert, model) and reason in notice.reason
        for notice in observation.notices
    )


def _traffic_flows(observation: Observation) -> bool:
    serving = [row for row in observation.rows if row.model != BROKEN]
    names = {(row.model, row.version) for row in serving}
    wanted = {
        ("embedder", "1"),
        ("classifier", "1"),
        ("classifier", "2"),
        ("pipeline", "1"),
        (SATURATED, "1"),
    }
    return wanted <= names and all((row.requests_per_second or 0) > 0 and row.ready == 1 for row in serving)


def _resolved(observation: Observation) -> bool:
    return observation.repaired and all(
        _notified(observation, "resolved", alert, BROKEN)
        for alert in ("TritonModelLoadFailed", "TritonModelDownEverywhere")
    )


def _repaired_and_ready(observation: Observation) -> bool:
    ready = {row.ready for row in observation.rows if row.model == BROKEN}
    return observation.repaired and ready == {1}


BEFORE_REPAIR: Mapping[str, Callable[[Observation], bool]] = {
    "every healthy model serves traffic": _traffic_flows,
    "on-call was notified that `broken` failed to load, with the reason from Triton": lambda seen: _notified(
        seen, "firing", "TritonModelLoadFailed", BROKEN, TRITONS_REASON
    ),
    "on-call was notified that no server serves `broken`": lambda seen: _notified(
        seen, "firing", "TritonModelDownEverywhere", BROKEN
    ),
    "on-call was notified that `saturated` burns its queue budget": lambda seen: _notified(
        seen, "firing", "TritonQueueBudgetBurn", SATURATED
    ),
}
"""Steps, and whether they have happened: in any order. Then the demo repairs `broken`."""

AFTER_REPAIR: Mapping[str, Callable[[Observation], bool]] = {
    "Triton loaded the repaired `broken`": _repaired_and_ready,
    "on-call was notified that `broken` recovered": _resolved,
}
STEPS = {**BEFORE_REPAIR, **AFTER_REPAIR}
