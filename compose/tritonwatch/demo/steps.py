"""The steps of the demo, each verified by what a user can see."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tritonwatch.demo.demo_view import DemoView
from tritonwatch.demo.notices import Notice

BROKEN = "broken"
SATURATED = "saturated"
TRITONS_REASON = "No such file or directory"
"""The text of the broken model's exception, which must reach on-call."""


@dataclass(frozen=True, slots=True)
class Observation:
    """The state at one time: the view, the messages to on-call, whether `broken` was repaired."""

    view: DemoView
    notices: Sequence[Notice]
    repaired: bool


@dataclass(frozen=True, slots=True)
class Step:
    """One step: its name in the past tense, and the condition that it happened."""

    name: str
    happened: Callable[[Observation], bool]


def _notified(observation: Observation, status: str, alert: str, model: str, reason: str = "") -> bool:
    return any(
        (notice.status, notice.alert, notice.model) == (status, alert, model) and reason in notice.reason
        for notice in observation.notices
    )


def _traffic_flows(observation: Observation) -> bool:
    serving = [row for row in observation.view.rows if row.model != BROKEN]
    names = {(row.model, row.version) for row in serving}
    wanted = {
        ("embedder", "1"),
        ("classifier", "1"),
        ("classifier", "2"),
        ("pipeline", "1"),
        (SATURATED, "1"),
    }
    return wanted <= names and all((row.requests_per_second or 0) > 0 and row.ready == 1 for row in serving)


def _resolved(observation: Observation) -> bool:
    return observation.repaired and all(
        _notified(observation, "resolved", alert, BROKEN)
        for alert in ("TritonModelLoadFailed", "TritonModelDownEverywhere")
    )


def _repaired_and_ready(observation: Observation) -> bool:
    row = observation.view.row(BROKEN)
    return observation.repaired and row is not None and row.ready == 1


BEFORE_REPAIR: Sequence[Step] = (
    Step("every healthy model serves traffic", _traffic_flows),
    Step(
        "on-call was notified that `broken` failed to load, with the reason from Triton",
        lambda observation: _notified(observation, "firing", "TritonModelLoadFailed", BROKEN, TRITONS_REASON),
    ),
    Step(
        "on-call was notified that no server serves `broken`",
        lambda observation: _notified(observation, "firing", "TritonModelDownEverywhere", BROKEN),
    ),
    Step(
        "on-call was notified that `saturated` burns its queue budget",
        lambda observation: _notified(observation, "firing", "TritonQueueBudgetBurn", SATURATED),
    ),
)
"""These happen in any order; then the demo repairs `broken`."""

AFTER_REPAIR: Sequence[Step] = (
    Step("Triton loaded the repaired `broken`", _repaired_and_ready),
    Step("on-call was notified that `broken` recovered", _resolved),
)


@dataclass
class Progress:
    """The steps that have happened, each with its time (seconds since the start)."""

    done: dict[str, float] = field(default_factory=dict)

    def update(self, observation: Observation, elapsed_seconds: float) -> list[Step]:
        """Add the steps that have happened by now, and return the new ones."""
        new = [
            step
            for step in (*BEFORE_REPAIR, *AFTER_REPAIR)
            if step.name not in self.done and step.happened(observation)
        ]
        self.done |= {step.name: elapsed_seconds for step in new}
        return new

    @property
    def ready_for_repair(self) -> bool:
        return all(step.name in self.done for step in BEFORE_REPAIR)

    @property
    def missing(self) -> list[str]:
        return [step.name for step in (*BEFORE_REPAIR, *AFTER_REPAIR) if step.name not in self.done]
