"""May a release go on? Promote, hold or roll back, from the status of the objectives. Fails closed.

Unknown or old data gives `hold`: a gate that promotes for lack of data is worse than none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from triton_exporter.common.duration import DAY, in_words
from triton_slo.amounts import budget_left, burn_rate
from triton_slo.indicators.common.sources import CAVEATS, CLIENTS, HIDING, SEES_FAILURES
from triton_slo.indicators.wrong_settings import WRONG_SETTINGS
from triton_slo.prometheus.remarks import WARNS
from triton_slo.verdict import estimate
from triton_slo.verdict.canary import Comparison, Verdict
from triton_slo.verdict.group_status import GroupStatus, burns, either_way
from triton_slo.verdict.judgement import FailureEvidence, Firing, GateLimits, Judgement

BUT = ", but "
"""Joins the reason to promote and the caveat that applies."""
_RANK: dict[Verdict, int] = {"promote": 0, "hold": 1, "rollback": 2}

EVIDENCE_SECONDS = 3.0 * DAY
"""Length of the past in which the events of an objective that sees failures are counted."""
_SURE = 0.95
"""Probability with which enough events would have shown a missed target."""


def judge_current_state(
    canary: GroupStatus, ages: Sequence[float | None], firing: Sequence[Firing], limits: GateLimits
) -> Judgement:
    """Judge a canary by whether it burns its budget now, where its seconds cannot be compared."""
    age = _oldest(ages)
    stopped = _forced_verdict(canary, _alerts_about(canary, firing)) or _stale_verdict(canary, age, limits)
    if stopped:
        verdict, reason = stopped
    elif canary.unknown_reasons or canary.burn_now is None:
        verdict, reason = "hold", f"unknown: {canary.unknown or 'not evaluated yet'}"
    elif burns(canary.burn_now):
        verdict, reason = "hold", f"not ready all the time: current burn rate {burn_rate(canary.burn_now)}"
    else:
        verdict, reason = "promote", f"ready, current burn rate {burn_rate(canary.burn_now)}"
    return _make_judgement(canary, verdict, reason, age, unknown=bool(canary.unknown_reasons))


def judge_ready_servers(
    row: GroupStatus,
    versions: Mapping[str, tuple[int, int]],
    ages: Sequence[float | None],
    firing: Sequence[Firing],
    limits: GateLimits,
) -> Judgement:
    """Judge a canary by where it is ready now: the readiness objective of its model says nothing about one version.

    `versions` has the servers that have a version ready, and those that have it, of the canary and its baseline.
    """
    age = _oldest(ages)
    (canary, (ready, servers)), (baseline, of_baseline) = versions.items()
    if stopped := _forced_verdict(row, _alerts_about(row, firing)) or _stale_verdict(row, age, limits):
        verdict, reason = stopped
    elif not servers:
        verdict, reason = "hold", f"unknown: no server has version {canary}"
    else:
        verdict = "promote" if ready == servers else "hold"
        reason = (
            f"ready on {ready} of {servers} servers that have it "
            f"(version {baseline}: on {of_baseline[0]} of {of_baseline[1]})"
        )
    return replace(_make_judgement(row, verdict, reason, age, unknown=not servers), version=canary)


def judge(
    rows: Iterable[GroupStatus],
    age_of: Callable[[str, str], float | None],
    firing: Sequence[Firing],
    limits: GateLimits,
    evidence: FailureEvidence = MappingProxyType({}),
) -> tuple[Judgement, ...]:
    """Judge each group; `age_of(model, version)` is the age of the exporter's data, None if unknown."""
    return tuple(
        hold_if_unproven(
            _judge_group(row, _age(row, age_of(row.model, row.version)), _alerts_about(row, firing), limits),
            row,
            limits,
            evidence,
        )
        for row in rows
    )


def failure_evidence(
    rows: Iterable[GroupStatus],
    age_of: Callable[[str, str], float | None],
    firing: Sequence[Firing],
    limits: GateLimits,
    events_of: Callable[[GroupStatus], float],
) -> dict[tuple[str, str], Judgement]:
    """Judge the objectives that see failed requests whatever a backend reports; the worst of each group.

    `events_of` counts the events that one has seen in the last EVIDENCE_SECONDS.
    """
    judged: dict[tuple[str, str], Judgement] = {}
    seeing = [row for row in rows if SEES_FAILURES.intersection(row.sources)]
    for row, judgement in zip(seeing, judge(seeing, age_of, firing, limits), strict=True):
        checked = _hold_if_too_few_events(judgement, row, events_of)
        key = (checked.model, checked.version)
        judged[key] = max((judged.get(key, checked), checked), key=lambda judgement: _RANK[judgement.verdict])
    return judged


def _hold_if_too_few_events(
    judgement: Judgement, row: GroupStatus, events_of: Callable[[GroupStatus], float]
) -> Judgement:
    """Return `hold` until a model that breaks the promise would have failed at least once, as good as surely.

    A probe every 30 s that has been answered four times cannot show that fewer than one request in five fails.
    """
    if judgement.verdict != "promote" or row.target is None:
        return judgement
    needed = math.ceil(math.log(1 - _SURE) / math.log(row.target))
    seen = events_of(row)
    if seen >= needed:
        return judgement
    reason = (
        f"only {seen:.0f} requests were counted in the last 3 days; {needed} are needed to be "
        f"{_SURE:.0%} sure that the target of {row.target:.4%} is met"
    )
    return replace(judgement, verdict="hold", reason=reason)


def hold_if_unproven(
    judgement: Judgement,
    row: GroupStatus,
    limits: GateLimits,
    evidence: FailureEvidence,
    baseline: GroupStatus | None = None,
) -> Judgement:
    """Return `hold` for a promotion on numbers that cannot show what would forbid it; the reason names what can.

    An estimate with a known error promotes where the error changes nothing.
    """
    if judgement.verdict != "promote":
        return judgement
    worst_case = _worst_case(judgement, row, limits, baseline)
    doubted = [source for source in row.caveats if source not in limits.trusted]
    for source in doubted:
        hides = source in HIDING
        doubt = _hidden_failures(row, source, evidence) if hides else _error_doubt(row, source, worst_case)
        if doubt:
            reason = f"{judgement.reason}{BUT}{doubt}; or accept this source with --trust {source}"
            return replace(judgement, verdict="hold", reason=reason)
    if worst_case is None or not worst_case.error or HIDING.issuperset(doubted):
        return judgement
    return replace(judgement, reason=judgement.reason + worst_case.words_if_acceptable)


def _hidden_failures(row: GroupStatus, source: str, evidence: FailureEvidence) -> str:
    """Return why failures may be hidden, and what settles it; empty where another objective sees none."""
    judged = evidence.get((row.model, row.version)) or evidence.get((row.model, ""))
    if judged is None:
        return _unresolved(source, CAVEATS[source].settled_by)
    if judged.verdict == "promote":
        return ""
    return _unresolved(source, f"see objective {judged.slo}, {judged.verdict}: {judged.reason}")


def _error_doubt(row: GroupStatus, source: str, worst_case: estimate.WorstCase | None) -> str:
    """Return why an estimate may be too far off, and what settles it; empty where its error changes nothing."""
    caveat = CAVEATS[source]
    if worst_case is None:
        return _unresolved(source, caveat.settled_by)
    if worst_case.is_acceptable:
        return ""
    doubt = f"{caveat.word} ({source}, {either_way(worst_case.error)}): {worst_case.words_if_not}"
    return f"{doubt}; to fix this, {estimate.settled_by(row, source)}"


def _unresolved(source: str, fix: str) -> str:
    caveat = CAVEATS[source]
    return f"{caveat.word} ({source}): {caveat.meaning}; to fix this, {fix}"


def _worst_case(
    judgement: Judgement, row: GroupStatus, limits: GateLimits, baseline: GroupStatus | None
) -> estimate.WorstCase | None:
    if judgement.comparison is not None:
        return estimate.worst_comparison(judgement.comparison, row, baseline)
    return estimate.worst_budget(row, limits.minimum_budget)


def judge_canary(
    canary: GroupStatus,
    comparison: Comparison,
    ages: Sequence[float | None],
    firing: Sequence[Firing],
    limits: GateLimits,
    evidence: FailureEvidence = MappingProxyType({}),
    baseline: GroupStatus | None = None,
) -> Judgement:
    """Judge a canary: by what pages for it, by the age of both versions' data, then by the comparison.

    The budget of the canary is not considered, because a new version has too little history.
    """
    age = _oldest(ages)
    stopped = _forced_verdict(canary, _alerts_about(canary, firing)) or _stale_verdict(canary, age, limits)
    verdict, reason = stopped or (comparison.verdict, comparison.reason)
    judgement = _make_judgement(canary, verdict, reason, age, comparison)
    return hold_if_unproven(judgement, canary, limits, evidence, baseline)


def hold_if_incomplete(judgements: Sequence[Judgement], warnings: Sequence[str]) -> tuple[Judgement, ...]:
    """Promote nothing on an answer that Prometheus itself calls incomplete."""
    if not warnings:
        return tuple(judgements)
    reason = f"{WARNS}{warnings[0]}"
    return tuple(
        replace(judgement, verdict="hold", reason=reason) if judgement.verdict == "promote" else judgement
        for judgement in judgements
    )


def worst(judgements: Iterable[Judgement]) -> Verdict:
    """Return the verdict on all together: the worst of them, and `hold` where there is nothing to judge."""
    return max((judgement.verdict for judgement in judgements), key=_RANK.__getitem__, default="hold")


def _age(row: GroupStatus, exporter: float | None) -> float | None:
    """Return the age of a group's data: that of the exporter's, or of the objective's own series if that is older.

    Clients and gateways count models that no exporter need know.
    """
    if exporter is None and CLIENTS not in row.sources:
        return None
    return max((age for age in (exporter, row.seen_seconds_ago) if age is not None), default=None)


def _judge_group(
    row: GroupStatus, age: float | None, firing: Sequence[Firing], limits: GateLimits
) -> Judgement:
    return _make_judgement(row, *_verdict(row, age, firing, limits), age, unknown=row.state == "unknown")


def _make_judgement(
    row: GroupStatus,
    verdict: Verdict,
    reason: str,
    age: float | None,
    comparison: Comparison | None = None,
    *,
    unknown: bool = False,
) -> Judgement:
    return Judgement(verdict, reason, row.slo, row.model, row.version, age, comparison, row.group, unknown)


def _verdict(
    row: GroupStatus, age: float | None, firing: Sequence[Firing], limits: GateLimits
) -> tuple[Verdict, str]:
    if stopped := _forced_verdict(row, firing, _pace(row)):
        return stopped
    if row.state == "unknown":
        return "hold", f"unknown: {row.unknown}{_settings_to_change(row)}"
    if stale := _stale_verdict(row, age, limits):
        return stale
    if firing:
        tickets = ", ".join(alert.tier for alert in firing)
        return "hold", f"the error budget burns: {tickets}{_pace(row)}"
    if row.budget_left is None:
        return "hold", "no events in the whole period"
    left = f"budget left: {budget_left(row.budget_left)}{_recorded_only(row)}"
    if row.budget_left <= limits.minimum_budget:
        return "hold", f"{left}; more than {limits.minimum_budget:.1%} is required (--min-budget)"
    return "promote", left + (", idle now" if row.state == "idle" else _pace(row))


def _recorded_only(row: GroupStatus) -> str:
    return "" if row.history_seconds is None else f" (only {in_words(row.history_seconds)} of data)"


def _alerts_about(row: GroupStatus, firing: Sequence[Firing]) -> list[Firing]:
    return [alert for alert in firing if row.concerned_by(alert.labels)]


def _forced_verdict(row: GroupStatus, firing: Sequence[Firing], pace: str = "") -> tuple[Verdict, str] | None:
    """Return the verdict that no number changes: on a page, even without new data, and in excluded time."""
    if pages := ", ".join(alert.tier for alert in firing if alert.severity == "critical"):
        return "rollback", f"a page fires: {pages}{pace}"
    return ("hold", f"an exclusion is active: {row.excluded}") if row.excluded else None


def _settings_to_change(row: GroupStatus) -> str:
    """Return what to change where a wrong setting leaves the group without data."""
    wrong = [WRONG_SETTINGS[reason] for reason in row.unknown_reasons if reason in WRONG_SETTINGS]
    return "".join(f": {meaning}; to fix this, {fix}" for meaning, fix in wrong)


def _stale_verdict(row: GroupStatus, age: float | None, limits: GateLimits) -> tuple[Verdict, str] | None:
    if row.retired:  # also where an exporter is fresh: it does not count what a gateway counts
        return "hold", (
            "the model was unloaded or replaced; load it again, or judge other groups (--version); "
            "if it serves, check that what counts it is scraped"
        )
    if age is None:
        return "hold", (
            "the age of the data is unknown: the exporter exports no series of this model; "
            "check that the exporter is scraped"
        )
    if age <= limits.max_age_seconds:
        return None
    return "hold", (
        f"the data is {age:.0f} s old, and at most {limits.max_age_seconds:.0f} s are allowed "
        "(--max-age); check that the exporter can read Triton's metrics"
    )


def _oldest(ages: Sequence[float | None]) -> float | None:
    """Return the age of the oldest data; None where one age is unknown."""
    known = [age for age in ages if age is not None]
    return max(known) if len(known) == len(ages) else None


def _pace(row: GroupStatus) -> str:
    return "" if row.burn_now is None else f", current burn rate {burn_rate(row.burn_now)}"
