"""What must happen in the demo, as steps that look only at what a user could see."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tritonwatch.demo.notices import Notice
from tritonwatch.demo.view import View

BROKEN = "broken"
SATURATED = "saturated"
TRITONS_REASON = "No such file or directory"
"""What the broken model's own exception says, as it must reach the person on call."""


@dataclass(frozen=True, slots=True)
class Moment:
    """All that is known at one moment: the view, what on-call was told, whether `broken` was mended."""

    view: View
    notices: Sequence[Notice]
    repaired: bool


@dataclass(frozen=True, slots=True)
class Step:
    """One step: its name in the past tense, and how to see that it happened."""

    name: str
    happened: Callable[[Moment], bool]


def _told(moment: Moment, status: str, alert: str, model: str, reason: str = "") -> bool:
    return any(
        notice.status == status
        and alert in notice.alerts
        and model in notice.models
        and (not reason or reason in notice.reason)
        for notice in moment.notices
    )


def _traffic_flows(moment: Moment) -> bool:
    serving = [row for row in moment.view.rows if row.model != BROKEN]
    names = {(row.model, row.version) for row in serving}
    wanted = {
        ("embedder", "1"),
        ("classifier", "1"),
        ("classifier", "2"),
        ("pipeline", "1"),
        (SATURATED, "1"),
    }
    return wanted <= names and all((row.requests_per_second or 0) > 0 and row.ready == 1 for row in serving)


def _resolved(moment: Moment) -> bool:
    return moment.repaired and all(
        _told(moment, "resolved", alert, BROKEN)
        for alert in ("TritonModelLoadFailed", "TritonModelDownEverywhere")
    )


def _mended(moment: Moment) -> bool:
    row = moment.view.row(BROKEN)
    return moment.repaired and row is not None and row.ready == 1


BEFORE_REPAIR: Sequence[Step] = (
    Step("every healthy model serves traffic", _traffic_flows),
    Step(
        "on-call was told that `broken` failed to load, with Triton's own reason",
        lambda moment: _told(moment, "firing", "TritonModelLoadFailed", BROKEN, TRITONS_REASON),
    ),
    Step(
        "on-call was told that no server serves `broken`",
        lambda moment: _told(moment, "firing", "TritonModelDownEverywhere", BROKEN),
    ),
    Step(
        "on-call was told that `saturated` burns its queue budget",
        lambda moment: _told(moment, "firing", "TritonQueueBudgetBurn", SATURATED),
    ),
)
"""These may happen in any order; the demo mends `broken` when all have."""

AFTER_REPAIR: Sequence[Step] = (
    Step("Triton loaded the mended `broken`", _mended),
    Step("on-call was told that `broken` recovered", _resolved),
)


@dataclass
class Story:
    """Which steps have happened, and when (seconds since the start)."""

    done: dict[str, float] = field(default_factory=dict)

    def update(self, moment: Moment, elapsed_seconds: float) -> list[Step]:
        """Note the steps that have happened by now; returns the new ones."""
        new = [
            step
            for step in (*BEFORE_REPAIR, *AFTER_REPAIR)
            if step.name not in self.done and step.happened(moment)
        ]
        self.done |= {step.name: elapsed_seconds for step in new}
        return new

    @property
    def ready_for_repair(self) -> bool:
        return all(step.name in self.done for step in BEFORE_REPAIR)

    @property
    def missing(self) -> list[str]:
        return [step.name for step in (*BEFORE_REPAIR, *AFTER_REPAIR) if step.name not in self.done]
