"""May a release go on? Promote, hold or roll back, from the status of the objectives. Fails closed.

Unknown or old data gives `hold`: a gate that promotes for lack of data is worse than none. First what is judged, then
what Prometheus is asked, the rules of a verdict, and the release as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from triton_exporter.catalogue import own, state
from triton_exporter.common.duration import DAY, in_words
from triton_slo import estimate, names
from triton_slo.amounts import burn_rate, ratio
from triton_slo.canary import Comparison, EventCount, Verdict, compare
from triton_slo.fields import error_budget
from triton_slo.group_status import GroupStatus, either_way
from triton_slo.indicators import indicator_class
from triton_slo.indicators.histograms import WRONG_SETTINGS
from triton_slo.prometheus import WARNS, Prometheus
from triton_slo.promql import Matchers
from triton_slo.sources import CAVEATS, CLIENTS, HIDING, SEES_FAILURES


@dataclass(frozen=True, slots=True)
class Firing:
    """A burn alert that fires now, with all its labels."""

    severity: str
    tier: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Judgement:
    """One verdict with its reason, about one objective and group; data age in seconds, None if unknown.

    `unknown`: nothing is known of the group. `comparison` has the numbers where a canary was compared with
    its baseline.
    """

    verdict: Verdict
    reason: str
    slo: str
    model: str = ""
    version: str = ""
    data_age_seconds: float | None = None
    comparison: Comparison | None = None
    group: Mapping[str, str] = field(default_factory=dict)
    unknown: bool = False


@dataclass(frozen=True, slots=True)
class GateLimits:
    """Limits of a gate: the age of data, and the budget that must be left (`minimum_budget`, 0 to 1).

    `trusted` are sources with a caveat that promote all the same.
    """

    max_age_seconds: float = 300.0
    minimum_budget: float = 0.0
    trusted: frozenset[str] = frozenset()


FailureEvidence = Mapping[tuple[str, str], Judgement]
"""Worst judgement, by model and version, on the objectives that see failures which Triton does not count.

Its reason is what to do until it promotes.
"""


COMPARISON_SLICE_SECONDS = 300.0
"""Length of the slices into which a comparison is cut."""


@dataclass(frozen=True, slots=True)
class Ages:
    """Age of the last poll of Triton, in seconds: by (model, version), and over all exporters."""

    by_group: Mapping[tuple[str, str], float]
    overall: float | None

    def of(self, model: str, version: str) -> float | None:
        """Return the age of a group's data; None if unknown.

        Without a version it is the oldest of the model's versions, without a model that of all data.
        """
        if not model:
            return self.overall
        if version:
            return self.by_group.get((model, version))
        return max((age for (of_group, _), age in self.by_group.items() if of_group == model), default=None)


def read_ages(prometheus: Prometheus, at: float | None = None) -> Ages:
    """Return the age of the data.

    A scrape may be fresh and its content old (Triton hangs), or the other way round (the exporter is gone and
    Prometheus still shows its last answer), so the exporter's own time of its last complete poll decides; of
    several servers, that of the one polled longest ago.
    """
    polled = f"max by (cluster, job, instance) ({own.LAST_SUCCESS})"
    by_group = (
        f"min by (model, version) (0 * {state.MODEL_READY} + on (cluster, job, instance) group_left {polled})"
    )
    samples = prometheus.instant(by_group, at)
    oldest = prometheus.instant(f"min({own.LAST_SUCCESS})", at)
    return Ages(
        {(s.labels.get("model", ""), s.labels.get("version", "")): s.at - s.value for s in samples},
        oldest[0].at - oldest[0].value if oldest else None,
    )


def read_firing(prometheus: Prometheus, at: float | None = None) -> tuple[Firing, ...]:
    """Return the burn alerts that fire now, as Prometheus evaluates them."""
    matchers = f'alertstate="firing", {names.COMPONENT}="slo", {names.TIER}!=""'
    return tuple(
        Firing(sample.labels.get(names.SEVERITY, ""), sample.labels.get(names.TIER, ""), sample.labels)
        for sample in prometheus.instant(f"{names.ALERTS}{{{matchers}}}", at)
    )


def read_ready_servers(
    prometheus: Prometheus, model: str, version: str, at: float | None = None
) -> tuple[int, int]:
    """Return on how many servers a version of a model is ready now, and how many have it."""
    ready = f"{state.MODEL_READY}{Matchers().equal('model', model).equal('version', version)}"
    by_state = {
        sample.labels["ready"]: int(sample.value)
        for sample in prometheus.instant(f'count_values("ready", {ready})', at)
    }
    return by_state.get("1", 0), sum(by_state.values())


def read_stopped_objectives(prometheus: Prometheus, at: float | None = None) -> tuple[str, ...]:
    """Return objectives that were recorded in the last hour and are not now: their rules failed or were removed."""
    query = f"group by ({names.SLO}) (last_over_time({names.INFO}[1h]))"
    now = f"group by ({names.SLO}) ({names.INFO})"
    samples = prometheus.instant(f"{query} unless {now}", at)
    return tuple(sorted(sample.labels.get(names.SLO, "") for sample in samples))


def read_slices(
    prometheus: Prometheus, slo: str, group: Mapping[str, str], start: float, end: float
) -> tuple[EventCount, ...]:
    """Return recorded events of one model version (or other group), slice by slice; empty when there are none."""
    matchers, step = Matchers(), COMPARISON_SLICE_SECONDS
    for label, value in {**group, names.SLO: slo}.items():
        matchers = matchers.equal(label, value)
    bad, total = (
        {
            at: value
            for series in prometheus.range(
                f"sum (increase({names.COUNTER}{matchers.equal(names.EVENT, event)}[{round(step)}s]))",
                start + step,
                end,
                step,
            )
            for at, value in zip(series.times, series.values, strict=True)
        }
        for event in (names.ERROR, names.TOTAL)
    )
    return tuple(EventCount(min(bad.get(at, 0.0), events), events) for at, events in sorted(total.items()))


BUT = ", but "
"""Joins the reason to promote and the caveat that applies."""
_RANK: dict[Verdict, int] = {"promote": 0, "hold": 1, "rollback": 2}

EVIDENCE_SECONDS = 3.0 * DAY
"""Length of the past in which the events of an objective that sees failures are counted."""
_SURE = 0.95
"""Probability with which enough events would have shown a missed target."""


def judge(
    rows: Iterable[GroupStatus],
    age_of: Callable[[str, str], float | None],
    firing: Sequence[Firing],
    limits: GateLimits,
    evidence: FailureEvidence = MappingProxyType({}),
) -> tuple[Judgement, ...]:
    """Judge each group; `age_of(model, version)` is the age of the exporter's data, None if unknown."""
    judged = []
    for row in rows:
        age, about = _age(row, age_of(row.model, row.version)), _alerts_about(row, firing)
        verdict, reason = _verdict(row, age, about, limits)
        judgement = _make_judgement(row, verdict, reason, age, unknown=row.state == "unknown")
        judged.append(hold_if_unproven(judgement, row, limits, evidence))
    return tuple(judged)


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
        if judgement.verdict != "promote":
            see = f"see objective {judgement.slo}, {judgement.verdict}: {judgement.reason}"
            checked = replace(judgement, reason=see)
        else:
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
    if row.target is None:
        return judgement
    needed = math.ceil(math.log(1 - _SURE) / math.log(row.target))
    seen = events_of(row)
    if seen >= needed:
        return judgement
    reason = (
        f"wait until objective {judgement.slo} has counted {needed} requests within 3 days ({seen:.0f} so far): so "
        f"many show with {_SURE:.0%} certainty that its target of {ratio(row.target)} is met"
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
    if judged is not None and judged.verdict == "promote":
        return ""
    return _unresolved(source) + (f"; to fix this, {judged.reason}" if judged else "")


def _error_doubt(row: GroupStatus, source: str, worst_case: estimate.WorstCase | None) -> str:
    """Return why an estimate may be too far off, and what settles it; empty where its error changes nothing."""
    caveat = CAVEATS[source]
    if worst_case is None:
        return _unresolved(source)
    if worst_case.is_acceptable:
        return ""
    doubt = f"{caveat.word} ({source}, {either_way(worst_case.error)}): {worst_case.words_if_not}"
    return f"{doubt}; to fix this, {estimate.settled_by(row, source)}"


def _unresolved(source: str) -> str:
    caveat = CAVEATS[source]
    return f"{caveat.word} ({source}): {caveat.short} (more: tritonwatch check --prometheus)"


def _worst_case(
    judgement: Judgement, row: GroupStatus, limits: GateLimits, baseline: GroupStatus | None
) -> estimate.WorstCase | None:
    if judgement.comparison is not None:
        return estimate.worst_comparison(judgement.comparison, row, baseline)
    return estimate.worst_budget(row, limits.minimum_budget)


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
    left = f"budget left: {row.budget_words}"
    if row.budget_not_known_yet and row.budget_left <= limits.minimum_budget:
        return "hold", f"{left}, and at the rate of this time too much of the budget is spent (--min-budget)"
    if row.history_seconds is not None and not row.budget_not_known_yet:
        left += f" (only {in_words(row.history_seconds)} of data)"
    if row.budget_left <= limits.minimum_budget:
        return "hold", f"{left}; more than {limits.minimum_budget:.1%} is required (--min-budget)"
    return "promote", left + (", idle now" if row.state == "idle" else _pace(row))


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
    return "" if row.burn_now is None else f", burn rate over 5m {burn_rate(row.burn_now)}"


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
    ages: Ages
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
        judged = judge(known.rows, known.ages.of, known.firing, question.limits, known.failures)
        missing = _never_seen(question, question.objectives, known.rows)
    else:
        canaries = [row for row in known.rows if row.version == versions.canary]
        of_model = [
            row for row in known.rows if not row.version and indicator_class(row.indicator).counts_time
        ]
        judged = (
            *(_judge_canary(row, versions, question.limits, known) for row in canaries),
            *(_judge_readiness(prometheus, row, question, versions, known) for row in of_model),
        )
        # Objectives that the baseline has must also be known for the canary.
        of_baseline = sorted({row.slo for row in known.rows if row.version == versions.baseline})
        missing = _never_seen(question, question.objectives or of_baseline, [*canaries, *of_model])
    return hold_if_incomplete(judged + stopped + missing, prometheus.warnings)


def _evidence(
    prometheus: Prometheus, question: ReleaseQuestion, everything: Sequence[GroupStatus], now: float
) -> _Evidence:
    end = now if question.at is None else question.at

    def slices_of(slo: str, group: Mapping[str, str], seconds: float) -> tuple[EventCount, ...]:
        return read_slices(prometheus, slo, group, end - seconds, end)

    def events(row: GroupStatus) -> float:
        return sum(part.total for part in slices_of(row.slo, row.group, EVIDENCE_SECONDS))

    rows = tuple(row for row in everything if question.concerns(row))
    firing = read_firing(prometheus, question.at)
    ages = read_ages(prometheus, question.at)
    doubted = {row.model for row in rows if HIDING.intersection(row.caveats)}
    of_doubted = [row for row in everything if row.model in doubted]
    failures = failure_evidence(of_doubted, ages.of, firing, question.limits, events)
    return _Evidence(rows, ages, firing, slices_of, failures)


def _stopped_rules(
    prometheus: Prometheus, question: ReleaseQuestion, everything: Sequence[GroupStatus]
) -> tuple[Judgement, ...]:
    """Return `hold` for objectives whose rules stopped, which have no row; `_never_seen` covers chosen ones."""
    if question.objectives:
        return ()
    missed = set(read_stopped_objectives(prometheus, question.at)) - {row.slo for row in everything}
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


def _judge_canary(
    canary: GroupStatus, versions: VersionComparison, limits: GateLimits, known: _Evidence
) -> Judgement:
    """Judge a canary: by what pages for it, by the age of both versions' data, then by the comparison.

    The budget of the canary is not considered, because a new version has too little history.
    """
    baseline = {**canary.group, "version": versions.baseline}
    budget = error_budget(canary.target) if canary.target is not None else 0.0
    comparison = compare(
        known.slices_of(canary.slo, canary.group, versions.window_seconds),
        known.slices_of(canary.slo, baseline, versions.window_seconds),
        margin=budget if versions.margin is None else versions.margin,
        confidence=versions.confidence,
        minimum_events=versions.minimum_events,
    )
    age = _oldest([known.ages.of(canary.model, each) for each in (versions.canary, versions.baseline)])
    verdict, reason = (
        _forced_verdict(canary, _alerts_about(canary, known.firing))
        or _stale_verdict(canary, age, limits)
        or (comparison.verdict, comparison.reason)
    )
    judgement = _make_judgement(canary, verdict, reason, age, comparison)
    now = next((row for row in known.rows if (row.slo, row.group) == (canary.slo, baseline)), None)
    return hold_if_unproven(judgement, canary, limits, known.failures, now)


def _judge_readiness(
    prometheus: Prometheus,
    row: GroupStatus,
    question: ReleaseQuestion,
    versions: VersionComparison,
    known: _Evidence,
) -> Judgement:
    """Judge a canary by where it is ready now: the readiness objective of its model says nothing about one version.

    Versions are not compared over time: the seconds of one outage are not independent.
    """
    both = (versions.canary, versions.baseline)
    age = _oldest([known.ages.of(row.model, version) for version in both])
    (ready, servers), (other_ready, other_servers) = (
        read_ready_servers(prometheus, row.model, version, question.at) for version in both
    )
    verdict, reason = (
        _forced_verdict(row, _alerts_about(row, known.firing))
        or _stale_verdict(row, age, question.limits)
        or (
            "promote" if 0 < servers == ready else "hold",
            (
                f"ready on {ready} of {servers} servers that have it "
                f"(version {versions.baseline}: on {other_ready} of {other_servers})"
            ),
        )
    )
    judgement = _make_judgement(row, verdict, reason, age, unknown=not servers)
    return replace(judgement, version=versions.canary)
