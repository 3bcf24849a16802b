"""What a user of the demo sees, and the steps that this proves.

A view has the values of the demo's Prometheus and Alertmanager, and a notice is a message that its bridge posted; a step has
happened when both show it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from triton_alerts.alertmanager_client import Alertmanager, ListedAlert, ServerError
from triton_alerts.bridge.incidents.history import list_incidents
from triton_alerts.bridge.incidents.incident import Incident
from triton_exporter.catalogue import state, triton
from triton_slo import names
from triton_slo.prometheus import Prometheus, PrometheusError, Sample
from triton_slo.server_access import Access

_BY = "by (model, version)"
_WINDOW = "[10s]"


def _rate_by_version(metric: object) -> str:
    return f"sum {_BY} (rate({metric}{_WINDOW}))"


def _rate_ratio(part: object, whole: object) -> str:
    return f"{_rate_by_version(part)} / ({_rate_by_version(whole)} > 0)"


QUERIES: Mapping[str, str] = {
    "ready": f"min {_BY} ({state.MODEL_READY})",
    "requests_per_second": _rate_by_version(triton.REQUEST_SUCCESS),
    "mean_latency_seconds": f"{_rate_ratio(triton.REQUEST_DURATION_US, triton.REQUEST_SUCCESS)} / 1e6",
    "queue_share": _rate_ratio(triton.QUEUE_DURATION_US, triton.REQUEST_DURATION_US),
    "batch_size": _rate_ratio(triton.INFERENCE_COUNT, triton.EXEC_COUNT),
    "burn_rate": f"max {_BY} ({names.sli_error('5m')} / {names.ERROR_BUDGET_RATIO})",
}
"""Column -> PromQL, one value per model and version; of readiness per model, for all of its versions."""

SERVER_QUERIES: Mapping[str, str] = {
    "up": f"min({state.UP})",
    "live": f"min({state.SERVER_LIVE})",
    "ready": f"min({state.SERVER_READY})",
}


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One model version as the demo shows it; None means no data, never zero."""

    model: str
    version: str
    ready: float | None = None
    requests_per_second: float | None = None
    mean_latency_seconds: float | None = None
    queue_share: float | None = None
    batch_size: float | None = None
    burn_rate: float | None = None


@dataclass(frozen=True, slots=True)
class DemoView:
    """All models, alerts and states of the server at one time."""

    rows: Sequence[ModelRow] = ()
    alerts: Sequence[ListedAlert] = ()
    server: Mapping[str, float] = field(default_factory=dict)

    def row(self, model: str) -> ModelRow | None:
        """Return the first version of a model."""
        return next((row for row in self.rows if row.model == model), None)


def _worst(name: str, column: Mapping[tuple[str, str], float], model: str, version: str) -> float | None:
    """Return the value of a version or of its model, whichever is worse."""
    known = [column[key] for key in {(model, version), (model, "")} if key in column]
    return (max if name == "burn_rate" else min)(known, default=None)


class Viewer:
    """Reads the values; a server that does not respond leaves its columns empty."""

    def __init__(self, prometheus_url: str, alertmanager_url: str) -> None:
        self._prometheus = Prometheus(Access(prometheus_url))
        self._alertmanager = Alertmanager(Access(alertmanager_url, timeout_seconds=2.0))

    def poll(self) -> DemoView:
        """Query everything once."""
        columns = {name: self._by_model(query) for name, query in QUERIES.items()}
        keys = {key for column in columns.values() for key in column}
        with_version = {model for model, version in keys if version}
        rows = [
            ModelRow(
                model,
                version,
                **{name: _worst(name, column, model, version) for name, column in columns.items()},
            )
            for model, version in sorted(keys)
            if version or model not in with_version
        ]
        server = {
            name: sample.value
            for name, query in SERVER_QUERIES.items()
            for sample in self._finite_samples(query)
        }
        return DemoView(rows, self._alerts(), server)

    def _finite_samples(self, query: str) -> list[Sample]:
        try:
            return [sample for sample in self._prometheus.instant(query) if math.isfinite(sample.value)]
        except PrometheusError:
            return []

    def _by_model(self, query: str) -> dict[tuple[str, str], float]:
        return {
            (sample.labels["model"], sample.labels.get("version", "")): sample.value
            for sample in self._finite_samples(query)
            if sample.labels.get("model")
        }

    def _alerts(self) -> list[ListedAlert]:
        try:
            alerts = self._alertmanager.alerts()
        except ServerError:
            return []
        return sorted(
            alerts, key=lambda alert: (names.severity_rank(alert.severity), alert.name, alert.model)
        )


@dataclass(frozen=True, slots=True)
class Notice:
    """One alert about a model that was posted to on-call, and the reason from Triton."""

    status: str
    alert: str
    model: str
    reason: str = ""


def read_notices(data: Path) -> list[Notice]:
    """Return one notice for each model, alert and status posted so far; `data` is the bridge's folder."""
    return [
        notice for record in list_incidents(data) if record.posted for notice in _notices(record.incident)
    ]


def _notices(incident: Incident) -> Iterator[Notice]:
    reason = "\n".join(incident.evidence.reasons.values()) if incident.evidence is not None else ""
    for member in incident.members.values():
        for status in ("firing",) if member.firing else ("firing", "resolved"):
            yield Notice(status, member.labels["alertname"], member.labels.get("model", ""), reason)


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


BROKEN = "broken"
SATURATED = "saturated"
TRITONS_REASON = "No such file or directory"
"""The text of the broken model's exception, which must reach on-call."""


@dataclass(frozen=True, slots=True)
class Observation:
    """The state at one time: the view, the messages to on-call, whether `broken` was repaired."""

    view: DemoView
    notices: Sequence[Notice]
    repaired: bool


@dataclass(frozen=True, slots=True)
class Step:
    """One step: its name in the past tense, and the condition that it happened."""

    name: str
    happened: Callable[[Observation], bool]


def _notified(observation: Observation, status: str, alert: str, model: str, reason: str = "") -> bool:
    return any(
        (notice.status, notice.alert, notice.model) == (status, alert, model) and reason in notice.reason
        for notice in observation.notices
    )


def _traffic_flows(observation: Observation) -> bool:
    serving = [row for row in observation.view.rows if row.model != BROKEN]
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
    row = observation.view.row(BROKEN)
    return observation.repaired and row is not None and row.ready == 1


BEFORE_REPAIR: Sequence[Step] = (
    Step("every healthy model serves traffic", _traffic_flows),
    Step(
        "on-call was notified that `broken` failed to load, with the reason from Triton",
        lambda observation: _notified(observation, "firing", "TritonModelLoadFailed", BROKEN, TRITONS_REASON),
    ),
    Step(
        "on-call was notified that no server serves `broken`",
        lambda observation: _notified(observation, "firing", "TritonModelDownEverywhere", BROKEN),
    ),
    Step(
        "on-call was notified that `saturated` burns its queue budget",
        lambda observation: _notified(observation, "firing", "TritonQueueBudgetBurn", SATURATED),
    ),
)
"""These happen in any order; then the demo repairs `broken`."""

AFTER_REPAIR: Sequence[Step] = (
    Step("Triton loaded the repaired `broken`", _repaired_and_ready),
    Step("on-call was notified that `broken` recovered", _resolved),
)


@dataclass
class Progress:
    """The steps that have happened, each with its time (seconds since the start)."""

    done: dict[str, float] = field(default_factory=dict)

    def update(self, observation: Observation, elapsed_seconds: float) -> list[Step]:
        """Add the steps that have happened by now, and return the new ones."""
        new = [
            step
            for step in (*BEFORE_REPAIR, *AFTER_REPAIR)
            if step.name not in self.done and step.happened(observation)
        ]
        self.done |= {step.name: elapsed_seconds for step in new}
        return new

    @property
    def ready_for_repair(self) -> bool:
        return all(step.name in self.done for step in BEFORE_REPAIR)

    @property
    def missing(self) -> list[str]:
        return [step.name for step in (*BEFORE_REPAIR, *AFTER_REPAIR) if step.name not in self.done]
