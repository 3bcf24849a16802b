"""Facts about the objective of an incident from Prometheus: target, burn rate, budget left, causes."""

from __future__ import annotations

from triton_alerts.bridge.evidence.alert_queries import burn_now, matchers_of
from triton_alerts.bridge.evidence.enrich import Source
from triton_alerts.bridge.incidents.incident import (
    BUDGET_LEFT,
    BURN_RATE,
    OBJECTIVE,
    SPLIT,
    Incident,
    SourceFacts,
)
from triton_alerts.bridge.incidents.notification import Member
from triton_exporter.common.duration import DAY, in_words, time_text
from triton_slo import names
from triton_slo.amounts import WHOLE_PERIOD, budget_left, burn_rate
from triton_slo.causes import cause_words
from triton_slo.fields import error_budget
from triton_slo.indicators import Indicator, indicator_class
from triton_slo.prometheus.client import Prometheus
from triton_slo.promql import Matchers


def source(prometheus: Prometheus) -> Source:
    """Return the source of target, burn rate, budget left and causes of the objective that an alert is about."""

    def ask(incident: Incident) -> SourceFacts:
        burning = [
            member for member in incident.firing or incident.members.values() if member.labels.get(names.SLO)
        ]
        if not burning:
            return SourceFacts()
        member = min(burning, key=lambda member: names.SEVERITIES.index(member.severity))
        return _budget_facts(prometheus, member)

    return ask


def _budget_facts(prometheus: Prometheus, member: Member) -> SourceFacts:
    where = matchers_of(member, names.SLO, names.INDICATOR, *names.GROUPING)
    indicator = indicator_class(member.labels.get(names.INDICATOR, ""))

    def value(query: str) -> float | None:
        return next((sample.value for sample in prometheus.instant(query)), None)

    facts = []
    target = value(f"max({names.OBJECTIVE_RATIO}{where})")
    days = value(f"max({names.PERIOD_DAYS}{matchers_of(member, names.SLO, names.INDICATOR)})")
    if target is not None and days is not None:
        threshold = value(f"max({names.THRESHOLD_SECONDS}{where})")
        facts.append((OBJECTIVE, _promised(indicator, target, days, threshold)))
    burn = value(f"max({burn_now(where)})")
    if burn is not None:
        facts.append((BURN_RATE, f"{burn_rate(burn)} the allowed rate"))
    left = value(f"min({names.PERIOD_BUDGET_REMAINING}{where})")
    if left is not None:
        gone = left * days * DAY / burn if days and burn and burn > 1 and left > 0 else None
        facts.append(
            (
                BUDGET_LEFT,
                budget_left(left)
                + (f"; lasts {in_words(gone)} at this burn rate" if gone else "")
                + _short_history_hint(prometheus, where, days),
            )
        )
    shares = prometheus.instant(
        f"topk(3, {names.CAUSE_SHARE}{matchers_of(member, names.INDICATOR, *names.GROUPING)})"
    )
    named = [(cause_words(sample.labels.get(names.CAUSE, "?")), sample.value) for sample in shares]
    split = [(cause, share) for cause, share in named if share >= 0.01]
    if not split:
        return SourceFacts(facts=tuple(facts))
    parts = ", ".join(f"{cause} {100 * share:.0f}%" for cause, share in split)
    facts.append((SPLIT, parts))
    step = indicator.step_for(*(sample.labels.get(names.CAUSE, "") for sample in shares))
    return SourceFacts(facts=tuple(facts), largest_cause=split[0][0], first_step=step)


def _short_history_hint(prometheus: Prometheus, where: Matchers, days: float | None) -> str:
    """Return a hint that the budget is of less time than its period of `days`; empty where it is not."""
    began = prometheus.instant(f"min({names.COUNTER_SINCE}{where})")
    reached = [sample.at - sample.value for sample in began]
    if not reached or days is None or reached[0] >= WHOLE_PERIOD * days * DAY:
        return ""
    return f" (only {in_words(reached[0])} of data)"


def _promised(indicator: type[Indicator], target: float, days: float, threshold: float | None) -> str:
    """Return the objective of this model in words, and its error budget as a time if seconds are counted."""
    promised = f"{100 * target:.10g} % {indicator.share_words}"
    if threshold is not None:
        promised += f" {time_text(threshold)}"
    promised += f" over {days:.3g}d"
    may_fail = f": error budget {in_words(error_budget(target) * days * DAY)}"
    return promised + (may_fail if indicator.counts_time else "")
