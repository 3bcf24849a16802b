"""Judge a release: ask a Prometheus what the question needs, and judge each group by the rules of `gate`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from triton_slo.fields import error_budget
from triton_slo.indicators import indicator_class
from triton_slo.indicators.common.sources import HIDING
from triton_slo.prometheus.client import Prometheus
from triton_slo.verdict import gate, gate_queries
from triton_slo.verdict.canary import EventCount, compare
from triton_slo.verdict.group_status import GroupStatus
from triton_slo.verdict.judgement import FailureEvidence, Firing, GateLimits, Judgement


@dataclass(frozen=True, slots=True)
class VersionComparison:
    """Two versions of a model to compare over the same time.

    `margin` is the allowed increase of the error ratio; None: the error budget of each objective.
    """

    canary: str
    baseline: str
    window_seconds: float
    confidence: float
    margin: float | None
    minimum_events: float


@dataclass(frozen=True, slots=True)
class ReleaseQuestion:
    """The groups to judge (None and no objectives: all), at which Unix time (None: now) and within which limits."""

    objectives: tuple[str, ...]
    model: str | None
    version: str | None
    at: float | None
    limits: GateLimits
    versions: VersionComparison | None

    def concerns(self, row: GroupStatus) -> bool:
        """Return whether it is about this objective and group."""
        return (
            (not self.objectives or row.slo in self.objectives)
            and self.model in (None, row.model)
            and self.version in (None, row.version)
        )


@dataclass(frozen=True, slots=True)
class _Evidence:
    """Results of the queries that are sent once for all judgements.

    `slices_of(slo, group, seconds)` asks for the events of the last seconds.
    """

    rows: tuple[GroupStatus, ...]
    ages: gate_queries.Ages
    firing: tuple[Firing, ...]
    slices_of: Callable[[str, Mapping[str, str], float], tuple[EventCount, ...]]
    failures: FailureEvidence


def judge_release(
    prometheus: Prometheus, question: ReleaseQuestion, everything: Sequence[GroupStatus], now: float
) -> tuple[Judgement, ...]:
    """Judge the groups that the question is about, and return `hold` for objectives without data.

    `everything` is the status of all that is recorded, `now` a Unix time. Raises PrometheusError.
    """
    known = _evidence(prometheus, question, everything, now)
    stopped = _stopped_rules(prometheus, question, everything)
    versions = question.versions
    if versions is None:
        judged = gate.judge(known.rows, known.ages.of, known.firing, question.limits, known.failures)
        missing = _never_seen(question, question.objectives, known.rows)
    else:
        canaries = [row for row in known.rows if row.version == versions.canary]
        of_model = [
            row for row in known.rows if not row.version and indicator_class(row.indicator).counts_time
        ]
        judged = (
            *(_compared(row, versions, question.limits, known) for row in canaries),
            *(_ready_now(prometheus, row, question, versions, known) for row in of_model),
        )
        # Objectives that the baseline has must also be known for the canary.
        of_baseline = sorted({row.slo for row in known.rows if row.version == versions.baseline})
        missing = _never_seen(question, question.objectives or of_baseline, [*canaries, *of_model])
    return gate.hold_if_incomplete(judged + stopped + missing, prometheus.warnings)


def _evidence(
    prometheus: Prometheus, question: ReleaseQuestion, everything: Sequence[GroupStatus], now: float
) -> _Evidence:
    end = now if question.at is None else question.at

    def slices_of(slo: str, group: Mapping[str, str], seconds: float) -> tuple[EventCount, ...]:
        return gate_queries.slices(prometheus, slo, group, end - seconds, end)

    def events(row: GroupStatus) -> float:
        return sum(part.total for part in slices_of(row.slo, row.group, gate.EVIDENCE_SECONDS))

    rows = tuple(row for row in everything if question.concerns(row))
    firing = gate_queries.firing(prometheus, question.at)
    ages = gate_queries.ages(prometheus, question.at)
    doubted = {row.model for row in rows if HIDING.intersection(row.caveats)}
    of_doubted = [row for row in everything if row.model in doubted]
    failures = gate.failure_evidence(of_doubted, ages.of, firing, question.limits, events)
    return _Evidence(rows, ages, firing, slices_of, failures)


def _stopped_rules(
    prometheus: Prometheus, question: ReleaseQuestion, everything: Sequence[GroupStatus]
) -> tuple[Judgement, ...]:
    """Return `hold` for objectives whose rules stopped, which have no row; `_never_seen` covers chosen ones."""
    if question.objectives:
        return ()
    missed = set(gate_queries.stopped_objectives(prometheus, question.at)) - {row.slo for row in everything}
    return tuple(
        Judgement("hold", "unknown: not recorded any more", name, unknown=True) for name in sorted(missed)
    )


def _never_seen(
    question: ReleaseQuestion, wanted: Sequence[str], rows: Sequence[GroupStatus]
) -> tuple[Judgement, ...]:
    """Return `hold` for each wanted objective that has no data."""
    version = question.version if question.versions is None else question.versions.canary
    seen = {row.slo for row in rows}
    return tuple(
        Judgement("hold", "unknown: no data", name, question.model or "", version or "", unknown=True)
        for name in wanted
        if name not in seen
    )


def _ready_now(
    prometheus: Prometheus,
    row: GroupStatus,
    question: ReleaseQuestion,
    versions: VersionComparison,
    known: _Evidence,
) -> Judgement:
    both = (versions.canary, versions.baseline)
    servers = {
        version: gate_queries.ready_servers(prometheus, row.model, version, question.at) for version in both
    }
    ages = [known.ages.of(row.model, version) for version in both]
    return gate.judge_ready_servers(row, servers, ages, known.firing, question.limits)


def _compared(
    canary: GroupStatus, versions: VersionComparison, limits: GateLimits, known: _Evidence
) -> Judgement:
    ages = [known.ages.of(canary.model, version) for version in (versions.canary, versions.baseline)]
    # The seconds of one outage are not independent: a two-sample test would be overconfident.
    if indicator_class(canary.indicator).counts_time:
        return gate.judge_current_state(canary, ages, known.firing, limits)
    baseline = {**canary.group, "version": versions.baseline}
    budget = error_budget(canary.target) if canary.target is not None else 0.0
    comparison = compare(
        known.slices_of(canary.slo, canary.group, versions.window_seconds),
        known.slices_of(canary.slo, baseline, versions.window_seconds),
        margin=budget if versions.margin is None else versions.margin,
        confidence=versions.confidence,
        minimum_events=versions.minimum_events,
    )
    now = next((row for row in known.rows if (row.slo, row.group) == (canary.slo, baseline)), None)
    return gate.judge_canary(canary, comparison, ages, known.firing, limits, known.failures, now)
