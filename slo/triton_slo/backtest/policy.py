"""The alerts of an objective as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from triton_slo.burn.condition_tree import Condition

PolicySeverity = Literal["page", "ticket"]


@dataclass(frozen=True, slots=True)
class Missing:
    """True while a series that existed before is gone."""


@dataclass(frozen=True, slots=True)
class PolicyAlert:
    """One alert rule; `pending` is its `for` and `keep_firing` its keep_firing_for, in seconds."""

    name: str
    severity: PolicySeverity
    condition: Condition | Missing
    pending: float = 0
    keep_firing: float = 0

    @property
    def on_missing_data(self) -> bool:
        return isinstance(self.condition, Missing)


@dataclass(frozen=True, slots=True)
class UnknownSteps:
    """How unknown steps count as failed events, once they have lasted for `after` (s).

    They are as many as the series had a step before: the median of the last `memory` (s), or where that knows none
    `otherwise` a second.
    """

    after: float
    memory: float
    otherwise: float


@dataclass(frozen=True, slots=True)
class Policy:
    """Alerts from the most to the least urgent; with `inhibits`, one that fires silences those after it.

    In the spans of `excluded` (Unix seconds) nothing counts and nothing fires, nor for `lag` (s) after them. With
    `unknown`, what is not known counts as failed.
    """

    alerts: tuple[PolicyAlert, ...]
    inhibits: bool = False
    excluded: tuple[tuple[float, float], ...] = ()
    lag: float = 0
    unknown: UnknownSteps | None = None
