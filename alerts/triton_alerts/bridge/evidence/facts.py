"""What Prometheus knows about an incident: burn, budget, causes; and the series to draw."""

from __future__ import annotations

from collections.abc import Sequence

from triton_alerts.bridge.evidence.causes import worded
from triton_alerts.bridge.evidence.enrich import Source
from triton_alerts.bridge.incidents.incident import (
    BUDGET_LEFT,
    BURN_RATE,
    FIRST_STEP,
    SPLIT,
    Evidence,
    Incident,
)
from triton_alerts.bridge.incidents.notification import Member
from triton_exporter.catalogue import state
from triton_slo import names
from triton_slo.indicators import KINDS
from triton_slo.indicators.indicator import Indicator
from triton_slo.prometheus import Prometheus, Sample
from triton_slo.promql import quote


def from_prometheus(prometheus: Prometheus) -> Source:
    """Burn rate, budget left and the split of causes, for an objective's incident."""

    def ask(incident: Incident) -> Evidence:
        member = next(iter(incident.firing or incident.members.values()))
        return Evidence(
            at=0, facts=tuple(_budget(prometheus, member) if member.labels.get(names.SLO) else ())
        )

    return ask


def burn_query(member: Member) -> str:
    """Return the series that shows an incident best: its burn rate, else whether its model is ready."""
    if member.labels.get(names.SLO):
        return f"{names.CURRENT_BURN_RATE}{selector(member, names.SLO, names.INDICATOR, *names.GROUPING)}"
    if member.labels.get("model"):
        return f"{state.MODEL_READY}{selector(member, 'instance', *names.GROUPING)}"
    return f"{state.SERVER_READY}{selector(member, 'instance')}" if member.labels.get("instance") else ""


def _budget(prometheus: Prometheus, member: Member) -> list[tuple[str, str]]:
    where = selector(member, names.SLO, names.INDICATOR, *names.GROUPING)
    facts = []
    if burn := prometheus.instant(f"max({names.CURRENT_BURN_RATE}{where})"):
        facts.append((BURN_RATE, _pace(burn[0].value)))
    if left := prometheus.instant(f"min({names.PERIOD_BUDGET_REMAINING}{where})"):
        facts.append((BUDGET_LEFT, _left(left[0].value)))
    shares = prometheus.instant(
        f"topk(3, {names.CAUSE_SHARE}{selector(member, names.INDICATOR, *names.GROUPING)})"
    )
    named = [(worded(one.labels.get(names.CAUSE, "?")), one.value) for one in shares]
    parts = [f"{cause} {100 * share:.0f} %" for cause, share in named if share >= 0.01]
    if parts:
        facts += [(SPLIT, ", ".join(parts)), (FIRST_STEP, _step(member, shares))]
    return facts


def _step(member: Member, shares: Sequence[Sample]) -> str:
    """What to do first about the largest cause; a GPU held back is none of them: it overlaps."""
    causes = (one.labels.get(names.CAUSE, "") for one in shares)
    largest = next((cause for cause in causes if cause != "gpu_throttled"), "")
    return KINDS.get(member.labels.get(names.INDICATOR, ""), Indicator).step_for(largest)


def selector(member: Member, *names: str) -> str:
    """Matchers for those of the member's labels that it has."""
    pairs = [(name, member.labels[name]) for name in names if member.labels.get(name)]
    return "{" + ", ".join(f"{name}={quote(value)}" for name, value in pairs) + "}"


def _pace(burn: float) -> str:
    """Return a burn rate; beyond 100 the exact number only shows how short the outage has been measured for."""
    return "over 100x faster than allowed" if burn > 100 else f"{burn:.1f}x the allowed rate"


def _left(share: float) -> str:
    if share >= 0:
        return f"{100 * share:.0f} %"
    return "none" if share > -0.005 else f"none: {min(100 * (1 - share), 999):.0f} % of it is spent"
