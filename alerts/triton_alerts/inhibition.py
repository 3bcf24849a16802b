"""Which alert silences which: a cause that pages makes its consequences say nothing.

Alertmanager takes a label that both sides lack for equal, so both sides of each row must carry every label
in `equal`; a test checks it against the labels the alerts declare.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Inhibition:
    """While an alert that matches all of `source` fires, those that match all of `target` are not sent."""

    why: str
    source: tuple[str, ...]
    target: tuple[str, ...]
    equal: tuple[str, ...]


INHIBITIONS = (
    Inhibition(
        why="A server that is down takes its models with it.",
        source=('alertname=~"TritonServerDown|TritonServerNotLive"',),
        target=('alertname=~"TritonModelLoadFailed|TritonModelNotReadyProlonged"',),
        equal=("instance",),
    ),
    Inhibition(
        why="Without the exporter nothing is known about the server behind it.",
        source=('alertname="TritonExporterDown"',),
        target=('component="lifecycle"',),
        equal=("instance",),
    ),
    Inhibition(
        why="A budget that burns fast burns slowly too: the faster tier says it.",
        source=('component="slo"', 'tier="page_fast"'),
        target=('component="slo"', 'tier=~"page_slow|ticket_fast|ticket_slow"'),
        equal=("slo", "model", "version"),
    ),
    Inhibition(
        why="A page about a budget makes its tickets pointless.",
        source=('component="slo"', 'tier="page_slow"'),
        target=('component="slo"', 'tier=~"ticket_fast|ticket_slow"'),
        equal=("slo", "model", "version"),
    ),
    Inhibition(
        why="The faster ticket says what the slower one would.",
        source=('component="slo"', 'tier="ticket_fast"'),
        target=('component="slo"', 'tier="ticket_slow"'),
        equal=("slo", "model", "version"),
    ),
)
