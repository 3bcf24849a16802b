"""A sample incident, so that a channel and a token can be tried before the first page."""

from __future__ import annotations

from triton_alerts.bridge.incidents.incident import Event, Evidence, Incident
from triton_alerts.bridge.incidents.notification import Member


def sample(now: float) -> tuple[Incident, Incident, tuple[Event, ...]]:
    """Return an incident as it opened a few minutes ago, the same resolved now, and what happened between."""
    member = Member(
        labels={
            "alertname": "BridgeTest",
            "model": "sample",
            "version": "1",
            "instance": "triton-0:8000",
            "severity": "critical",
            "owner": "nobody",
        },
        annotations={
            "summary": "This is a test: model sample failed to load on triton-0",
            "description": "Nothing is broken. `tritonwatch bridge test` sent this to check that alerts arrive.",
            "action": "Nothing to do. A real alert shows its first step here.",
        },
        starts_at=now - 240,
    )
    opened = Incident(
        name="test0000",
        key="test",
        receiver="test",
        opened_at=now - 240,
        members={"test": member},
        evidence=Evidence(at=now, reasons={"sample v1": "a real alert shows Triton's error message here"}),
    )
    ended = member.model_copy(update={"ends_at": now})
    resolved = opened.model_copy(update={"members": {"test": ended}, "closed_at": now})
    return opened, resolved, (Event(at=now, kind="closed"),)
