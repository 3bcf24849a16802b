"""The report of a period, as the rules recorded it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from triton_slo.objective.model import Objective
from triton_slo.prometheus import Prometheus
from triton_slo.report.judged_period import outcome
from triton_slo.report.period_outcome import ObjectiveOutcome, PeriodReport
from triton_slo.report.recorded_events import recorded_objectives
from triton_slo.report.reported_period import ReportedPeriod


def recorded_report(
    prometheus: Prometheus,
    reported: ReportedPeriod,
    now: float,
    timezone: str = "UTC",
    objectives: Sequence[Objective] = (),
) -> PeriodReport:
    """Return the report of all owners, without incidents.

    Objectives of files of which nothing was recorded are unknown. Raises PrometheusError.
    """
    with prometheus.collecting() as remarks:
        outcomes = tuple(_outcomes(prometheus, reported, now, timezone, objectives))
    return PeriodReport(reported, timezone, now, outcomes, warnings=tuple(remarks.warnings))


def _outcomes(
    prometheus: Prometheus,
    reported: ReportedPeriod,
    now: float,
    timezone: str,
    objectives: Sequence[Objective],
) -> Iterator[ObjectiveOutcome]:
    filed = {objective.name: objective for objective in objectives}
    recorded = recorded_objectives(prometheus, reported, now, timezone)
    yield from map(outcome, recorded)
    if recorded:
        for name in sorted(filed.keys() - {objective.slo for objective in recorded}):
            yield ObjectiveOutcome(name, filed[name].owner, None)
