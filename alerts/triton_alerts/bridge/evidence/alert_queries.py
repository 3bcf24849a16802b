"""PromQL for the series of an alert's labels."""

from __future__ import annotations

from triton_alerts.bridge.incidents.notification import Member
from triton_exporter.catalogue import state
from triton_slo import names
from triton_slo.promql import Matchers


def burn_query(member: Member) -> str:
    """Return the series that shows an incident best: its burn rate, else whether its model is ready."""
    if member.labels.get(names.SLO):
        return burn_now(matchers_of(member, names.SLO, names.INDICATOR, *names.GROUPING))
    if member.labels.get("model"):
        return f"{state.MODEL_READY}{matchers_of(member, 'instance', *names.GROUPING)}"
    return f"{state.SERVER_READY}{matchers_of(member, 'instance')}" if member.labels.get("instance") else ""


def burn_now(where: Matchers) -> str:
    """Return the burn rate of the last minutes: the share of failed events over the share that may fail."""
    return f"{names.sli_error('5m')}{where} / {names.ERROR_BUDGET_RATIO}{where}"


def matchers_of(member: Member, *labels: str) -> Matchers:
    """Return matchers for those of the labels that the member has."""
    matchers = Matchers()
    for label in labels:
        if value := member.labels.get(label):
            matchers = matchers.equal(label, value)
    return matchers
