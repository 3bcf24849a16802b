"""Facts about an incident from Prometheus: burn, budget, causes; and the series to draw."""

from __future__ import annotations

from collections.abc import Sequence

from triton_alerts.bridge.evidence.enrich import Source
from triton_alerts.bridge.incidents.incident import (
    BUDGET_LEFT,
    BURN_RATE,
    OBJECTIVE,
    SPLIT,
    Findings,
    Incident,
)
from triton_alerts.bridge.incidents.notification import Member
from triton_exporter.catalogue import state
from triton_exporter.duration import DAY, in_words
from triton_slo import names
from triton_slo.burn.amounts import WHOLE_PERIOD, budget_left, burn_rate
from triton_slo.burn.causes import cause_words
from triton_slo.indicators import KINDS
from triton_slo.indicators.indicator import Indicator
from triton_slo.prometheus import Prometheus, Sample
from triton_slo.promql import Matchers


def from_prometheus(prometheus: Prometheus) -> Source:
    """Target, burn rate, budget left and the split of causes, of the objective that an alert is about."""

    def ask(incident: Incident) -> Findings:
        burning = [
            member for member in incident.firing or incident.members.values() if member.labels.get(names.SLO)
        ]
        if not burning:
            return Findings()
        member = min(burning, key=lambda member: names.SEVERITIES.index(member.severity))
        return _budget(prometheus, member)

    return ask


def burn_query(member: Member) -> str:
    """Return the series that shows an incident best: its burn rate, else whether its model is ready."""
    if member.labels.get(names.SLO):
        return f"{names.CURRENT_BURN_RATE}{matchers_of(member, names.SLO, names.INDICATOR, *names.GROUPING)}"
    if member.labels.get("model"):
        return f"{state.MODEL_READY}{matchers_of(member, 'instance', *names.GROUPING)}"
    return f"{state.SERVER_READY}{matchers_of(member, 'instance')}" if member.labels.get("instance") else ""


def _budget(prometheus: Prometheus, member: Member) -> Findings:
    where = matchers_of(member, names.SLO, names.INDICATOR, *names.GROUPING)

    def value(query: str) -> float | None:
        return next((sample.value for sample in prometheus.instant(query)), None)

    facts = []
    target = value(f"max({names.OBJECTIVE_RATIO}{where})")
    days = value(f"max({names.PERIOD_DAYS}{matchers_of(member, names.SLO, names.INDICATOR)})")
    if target is not None and days is not None:
        threshold = value(f"max({names.THRESHOLD_SECONDS}{where})")
        facts.append((OBJECTIVE, _promised(member, target, days, threshold)))
    burn = value(f"max({names.CURRENT_BURN_RATE}{where})")
    if burn is not None:
        facts.append((BURN_RATE, f"{burn_rate(burn)} the allowed rate"))
    left = value(f"min({names.PERIOD_BUDGET_REMAINING}{where})")
    if left is not None:
        gone = left * days * 86_400 / burn if days and burn and burn > 1 and left > 0 else None
        facts.append(
            (
                BUDGET_LEFT,
                budget_left(left)
                + (f", gone in {in_words(gone)} at this rate" if gone else "")
                + _short_history(prometheus, where, matchers_of(member, names.SLO, names.INDICATOR), days),
            )
        )
    shares = prometheus.instant(
        f"topk(3, {names.CAUSE_SHARE}{matchers_of(member, names.INDICATOR, *names.GROUPING)})"
    )
    named = [(cause_words(sample.labels.get(names.CAUSE, "?")), sample.value) for sample in shares]
    split = [(cause, share) for cause, share in named if share >= 0.01]
    if not split:
        return Findings(facts=tuple(facts))
    parts = ", ".join(f"{cause} {100 * share:.0f} %" for cause, share in split)
    facts.append((SPLIT, parts))
    return Findings(facts=tuple(facts), largest_cause=split[0][0], first_step=_step(member, shares))


def _short_history(prometheus: Prometheus, where: Matchers, objective: Matchers, days: float | None) -> str:
    """Return a hint that the budget is of less time than the period of so many days; empty where it is not."""
    began = prometheus.instant(
        f"min({names.SLI_EVENTS_SINCE}{where}) > (max({names.PERIOD_START}{objective}) or vector(0))"
    )
    reached = [sample.at - sample.value for sample in began]
    if not reached or days is None or reached[0] >= WHOLE_PERIOD * days * DAY:
        return ""
    return f" (recorded for {in_words(reached[0])} only)"


def _step(member: Member, shares: Sequence[Sample]) -> str:
    """The first step for the largest cause, without that of a throttled GPU, which overlaps with the others."""
    causes = (sample.labels.get(names.CAUSE, "") for sample in shares)
    largest = next((cause for cause in causes if cause != "gpu_throttled"), "")
    return _indicator(member).step_for(largest)


def _indicator(member: Member) -> type[Indicator]:
    return KINDS.get(member.labels.get(names.INDICATOR, ""), Indicator)


def matchers_of(member: Member, *labels: str) -> Matchers:
    """Matchers for those of the labels that the member has."""
    matchers = Matchers()
    for label in labels:
        if value := member.labels.get(label):
            matchers = matchers.equal(label, value)
    return matchers


def _promised(member: Member, target: float, days: float, threshold: float | None) -> str:
    """Return what is promised to this model, and for how long it may fail where seconds are counted."""
    indicator = _indicator(member)
    promised = f"{100 * target:.10g} % {indicator.promised}"
    if threshold is not None:
        promised += f" {threshold:.10g} s" if threshold >= 1 else f" {1000 * threshold:.10g} ms"
    promised += f" over {days:.3g} d"
    may_fail = f": {in_words((1 - target) * days * 86_400)} may fail"
    return promised + (may_fail if indicator.counts_time else "")
