"""The report of a month or quarter, from Prometheus, the objectives' files and a bridge's incidents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from triton_alerts.bridge.incidents.history import RecordedIncident
from triton_alerts.bridge.review import listing
from triton_alerts.bridge.service import KEEP_SECONDS
from triton_slo import names
from triton_slo.objective.model import Objective
from triton_slo.prometheus import Prometheus
from triton_slo.report.period_outcome import Incident, ObjectiveOutcome, PeriodReport, outcome
from triton_slo.report.recorded_events import recorded_objectives
from triton_slo.report.reported_period import ReportedPeriod
from tritonwatch.command_error import CommandError
from tritonwatch.parser import did_you_mean
from tritonwatch.review.bridge_data import recorded_incidents


def period_report(
    prometheus: Prometheus,
    reported: ReportedPeriod,
    now: float,
    *,
    timezone: str = "UTC",
    objectives: Sequence[Objective] = (),
    owners: Sequence[str] = (),
    bridge_data: Path | None = None,
) -> PeriodReport:
    """Return the report of a period, of all owners or of some.

    Objectives of files of which nothing was recorded are unknown. Raises PrometheusError, and CommandError where
    nothing at all was recorded or the bridge's folder cannot be read.
    """
    outcomes = list(_outcomes(prometheus, reported, now, timezone, objectives))
    if not outcomes:
        raise CommandError(
            f"Prometheus has no record of any objective in {reported.name}: were the rules loaded then, and does "
            "it keep samples for so long (--storage.tsdb.retention.time)?"
        )
    known = {one.owner for one in outcomes}
    for owner in owners:
        if owner not in known:
            raise CommandError(f"no objective here has the owner {owner!r}{did_you_mean(owner, known)}")
    chosen = tuple(one for one in outcomes if not owners or one.owner in owners)
    report = PeriodReport(reported, timezone, now, chosen, warnings=tuple(prometheus.warnings))
    if bridge_data is None:
        return report
    incidents = _incidents(recorded_incidents(bridge_data, "--bridge-data"), report, owners)
    return PeriodReport(
        reported, timezone, now, chosen, tuple(incidents), now - KEEP_SECONDS, warnings=report.warnings
    )


def _outcomes(
    prometheus: Prometheus,
    reported: ReportedPeriod,
    now: float,
    timezone: str,
    objectives: Sequence[Objective],
) -> Iterator[ObjectiveOutcome]:
    filed = {one.name: one for one in objectives}
    recorded = recorded_objectives(prometheus, reported, now, timezone)
    for one in recorded:
        objective = filed.get(one.slo)
        counted = objective is not None and objective.unknown.policy == "bad"
        yield outcome(one, unknown_is_failed=counted)
    if recorded:
        for name in sorted(filed.keys() - {one.slo for one in recorded}):
            yield ObjectiveOutcome(name, filed[name].owner, None)


def _incidents(
    recorded: Iterable[RecordedIncident], report: PeriodReport, owners: Sequence[str]
) -> Iterator[Incident]:
    """Yield the incidents that were open at some time of the period, and whose alerts have one of the owners."""
    span = report.reported.in_zone(report.timezone)
    for one in recorded:
        incident = one.incident
        ended = None if incident.open else incident.ended_at
        if incident.since >= span.end or (ended is not None and ended < span.start):
            continue
        found = {member.labels.get(names.OWNER, "") for member in incident.members.values()} - {""}
        if not owners or found & set(owners):
            yield Incident(
                incident.name,
                listing.title(one),
                one.severity,
                incident.since,
                ended,
                one.acknowledged is not None,
                tuple(sorted(found)),
                listing.as_json(one),
            )
