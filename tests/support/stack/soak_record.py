"""Record the faults, incidents and memory of a soak, and what Alertmanager had firing meanwhile."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from support.slack.workspace import Posted


@dataclass(frozen=True)
class Fault:
    """What was done, when (seconds since the start), and how long until the part answered again."""

    at: float
    name: str
    seconds: float


@dataclass(frozen=True)
class Incident:
    """One model that failed to load: when, and how long until Slack had the news and the end of it."""

    at: float
    model: str
    opened_seconds: float
    resolved_seconds: float


@dataclass
class Record:
    """What happened in a soak."""

    faults: list[Fault] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)
    memory: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """Part -> (seconds since the start, MiB resident)."""
    seen: dict[tuple[str, str], int] = field(default_factory=dict)
    """(alert, model) -> polls in which Alertmanager had it firing, neither silenced nor inhibited."""
    ended: list[str] = field(default_factory=list)
    """Parts that nobody killed and that ended."""
    answers: int = 0
    failures: int = 0

    def undelivered(self, messages: Sequence[Posted]) -> list[tuple[str, str]]:
        """Alerts that Alertmanager had for three polls or more and that no message in Slack ever showed."""
        shown = [text for message in messages for text in message.shown_over_time]
        return [
            (alert, model)
            for (alert, model), times in sorted(self.seen.items())
            if times >= 3 and not any(alert in text and model in text for text in shown)
        ]

    def thirds(self, part: str) -> tuple[float, float]:
        """Median memory of the second third of the run, in MiB, and of the last."""
        points = self.memory[part]
        end = points[-1][0]
        second = [size for at, size in points if end / 3 <= at < 2 * end / 3]
        last = [size for at, size in points if at >= 2 * end / 3]
        return statistics.median(second), statistics.median(last)

    def growth(self, part: str) -> float:
        """Median memory of the last third of the run over that of the second."""
        second, last = self.thirds(part)
        return last / second
