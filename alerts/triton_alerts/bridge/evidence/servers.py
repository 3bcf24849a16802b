"""Servers on which an incident's model is ready, and those on which it is not."""

from __future__ import annotations

from triton_alerts.bridge.evidence.alert_queries import matchers_of
from triton_alerts.bridge.evidence.enrich import Source
from triton_alerts.bridge.incidents.incident import SERVERS, Incident, SourceFacts
from triton_alerts.bridge.incidents.notification import Member
from triton_exporter.catalogue import state
from triton_exporter.common.printable import listed
from triton_slo.prometheus.client import Prometheus

NAMED = 3


def source(prometheus: Prometheus) -> Source:
    """Return the source of the servers on which the incident's model is ready or not."""

    def ask(incident: Incident) -> SourceFacts:
        member = incident.lead
        if not member.labels.get("model"):
            return SourceFacts()
        ready = {
            sample.labels.get("instance", "?"): sample.value > 0
            for sample in prometheus.instant(_readiness_query(member))
        }
        if not ready:
            return SourceFacts()
        not_ready = sum(not good for good in ready.values())
        return SourceFacts(facts=((SERVERS, ready_text(ready)),), servers_not_ready=not_ready)

    return ask


def _readiness_query(member: Member) -> str:
    """Return whether each server has the model ready, in the version that the alert names or any."""
    return f"max by (instance) ({state.MODEL_READY}{matchers_of(member, 'model', 'version')})"


def ready_text(ready: dict[str, bool]) -> str:
    """List the servers that are not ready, or all servers where all are ready."""
    bad = sorted(name for name, good in ready.items() if not good)
    if not bad:
        return f"ready on {_all_servers(len(ready))}: {listed(sorted(ready), NAMED)}"
    return f"ready on {len(ready) - len(bad)} of {len(ready)}\nnot on {listed(bad, NAMED)}"


def _all_servers(count: int) -> str:
    return f"all {count}" if count > 1 else "its only server"
