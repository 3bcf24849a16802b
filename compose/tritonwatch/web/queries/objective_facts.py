"""Queries about objectives that pages need beside their status: owner and window, alerts, and past budgets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from triton_exporter.common.duration import DAY
from triton_slo import names
from triton_slo.group_status import GroupStatus
from triton_slo.prometheus import Prometheus, Sample, Series
from triton_slo.promql import Matchers, quote, regex_of
from tritonwatch.web.sources import CachedAnswer, Sources

SPARKLINE_DAYS = 30
_MAX_PATTERN_CHARACTERS = 4000
"""Characters of names in a query; many proxies refuse addresses of twice that."""
_BUDGET = names.PERIOD_BUDGET_REMAINING
_INFO = f'{{__name__=~"{names.INFO}|{names.PERIOD_DAYS}", {names.RECORDED_HERE}}}'
_ALERTS = f'{names.ALERTS}{{{names.COMPONENT}="slo", alertstate=~"pending|firing"}}'

RowKey = tuple[str, names.GroupLabels]
"""Objective and labels: one row of the status."""


@dataclass(frozen=True, slots=True)
class ObjectiveInfo:
    """The owner, description and window in an objective's file, as Prometheus has recorded them."""

    owner: str = ""
    description: str = ""
    window: str = ""
    period_days: float | None = None


@dataclass(frozen=True, slots=True)
class SloAlert:
    """An alert about an objective, which is firing or pending."""

    name: str
    state: str
    severity: str
    tier: str
    labels: Mapping[str, str]


def row_key(row: GroupStatus) -> RowKey:
    """Return the objective and labels that a row of the status is about."""
    return row.slo, tuple(sorted(row.group.items()))


def objective_infos(sources: Sources, at: float | None) -> CachedAnswer[Mapping[str, ObjectiveInfo]]:
    """Return the recorded owner, description and window of each objective, by its name."""

    def read(prometheus: Prometheus) -> Mapping[str, ObjectiveInfo]:
        return _objective_infos(prometheus.instant(_INFO, at))

    return sources.reader.ask(("objective infos", at), read, {})


def _objective_infos(samples: Iterable[Sample]) -> Mapping[str, ObjectiveInfo]:
    infos: dict[str, Mapping[str, str]] = {}
    days: dict[str, float] = {}
    for sample in samples:
        slo = sample.labels.get(names.SLO, "")
        if sample.labels.get("__name__") == names.INFO:
            infos[slo] = sample.labels
        else:
            days[slo] = sample.value
    return {slo: _objective_info(infos.get(slo, {}), days.get(slo)) for slo in infos.keys() | days.keys()}


def _objective_info(info: Mapping[str, str], days: float | None) -> ObjectiveInfo:
    return ObjectiveInfo(info.get(names.OWNER, ""), info.get("description", ""), info.get("window", ""), days)


def slo_alerts(sources: Sources, at: float | None) -> CachedAnswer[tuple[SloAlert, ...]]:
    """Return the alerts of all objectives, the most severe first."""

    def read(prometheus: Prometheus) -> tuple[SloAlert, ...]:
        alerts = [_slo_alert(sample.labels) for sample in prometheus.instant(_ALERTS, at)]
        return tuple(sorted(alerts, key=_urgency))

    return sources.reader.ask(("slo alerts", at), read, ())


def _slo_alert(labels: Mapping[str, str]) -> SloAlert:
    tier, severity = labels.get(names.TIER, ""), labels.get(names.SEVERITY, "")
    return SloAlert(labels.get("alertname", ""), labels.get("alertstate", ""), severity, tier, labels)


def _urgency(alert: SloAlert) -> tuple[str, int, str, str]:
    return alert.state, names.severity_rank(alert.severity), alert.name, alert.tier


def past_budgets(
    sources: Sources, rows: Sequence[GroupStatus], at: float | None
) -> CachedAnswer[Mapping[RowKey, Series]]:
    """Return the budget left of these rows, one point a day of the last 30; the present is in the rows."""
    step = DAY * sources.options.time_scale
    # Whole days, so that viewers of the same rows share the answer.
    end = (sources.reader.now if at is None else at) // step * step
    query = _budgets_of(rows)

    def read(prometheus: Prometheus) -> Mapping[RowKey, Series]:
        ranges = prometheus.range(query, end - (SPARKLINE_DAYS - 1) * step, end, step) if rows else ()
        return {
            (series.labels.get(names.SLO, ""), names.group_of(series.labels)): series for series in ranges
        }

    return sources.reader.ask(("past budgets", query, end), read, {})


def _budgets_of(rows: Sequence[GroupStatus]) -> str:
    slos = regex_of(sorted({row.slo for row in rows}))
    models = regex_of(sorted({row.model for row in rows}))
    of_slos = Matchers((names.RECORDED_HERE, f"{names.SLO}=~{quote(slos)}"))
    of_models = of_slos.also(f"model=~{quote(models)}")
    return f"{_BUDGET}{of_models if len(models) < _MAX_PATTERN_CHARACTERS else of_slos}"
