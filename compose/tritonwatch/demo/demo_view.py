"""The values of the demo's table, read from the demo's own Prometheus and Alertmanager."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from triton_alerts.alertmanager_client import Alertmanager, ListedAlert, ServerError
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
    "budget_left": f"min {_BY} ({names.PERIOD_BUDGET_REMAINING})",
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
    budget_left: float | None = None


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
