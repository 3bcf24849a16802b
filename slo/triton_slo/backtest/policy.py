"""Alert policies as data: the form of every policy, and the shapes that Sloth and Pyrra generate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from triton_exporter.common.duration import DAY, duration_text
from triton_slo.burn.condition_tree import All, Burn, BurnWindow, Compare, Condition, Either
from triton_slo.fields import error_budget

PolicySeverity = Literal["page", "ticket"]

_MINUTE, _HOUR = 60, 3600


@dataclass(frozen=True, slots=True)
class Missing:
    """True while a series that existed before is gone, or with `all_series` all of an objective are."""

    all_series: bool = False


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

    name: str
    alerts: tuple[PolicyAlert, ...]
    inhibits: bool = False
    excluded: tuple[tuple[float, float], ...] = ()
    lag: float = 0
    unknown: UnknownSteps | None = None


def both_burn(long: float, short: float, factor: float) -> Condition:
    """Require that both windows (in seconds) burn the error budget more than `factor` times too fast."""
    return All(
        tuple(
            Compare(Burn(BurnWindow(duration_text(seconds), seconds)), ">", factor)
            for seconds in (long, short)
        )
    )


# https://github.com/slok/sloth/blob/main/internal/alert/windows/google-30d.yaml
SLOTH = Policy(
    "sloth",
    (
        PolicyAlert(
            "page",
            "page",
            Either((both_burn(_HOUR, 5 * _MINUTE, 14.4), both_burn(6 * _HOUR, 30 * _MINUTE, 6))),
        ),
        PolicyAlert(
            "ticket", "ticket", Either((both_burn(DAY, 2 * _HOUR, 3), both_burn(3 * DAY, 6 * _HOUR, 1)))
        ),
    ),
)


def pyrra(target: float, period_seconds: float = 28 * DAY) -> Policy:
    """Return Pyrra's four alerts and the one on absent data; windows are fractions of the period, in whole minutes.

    https://github.com/pyrra-dev/pyrra/blob/main/slo/rules.go (Windows)
    """

    def scaled(seconds: float) -> float:
        return max(_MINUTE, round(seconds * period_seconds / (28 * DAY) / _MINUTE) * _MINUTE)

    rows: tuple[tuple[str, PolicySeverity, float, float, float, float], ...] = (
        ("critical-1", "page", 14, _HOUR, 5 * _MINUTE, 2 * _MINUTE),
        ("critical-2", "page", 7, 6 * _HOUR, 30 * _MINUTE, 15 * _MINUTE),
        ("warning-1", "ticket", 2, DAY, 2 * _HOUR, _HOUR),
        ("warning-2", "ticket", 1, 4 * DAY, 6 * _HOUR, 3 * _HOUR),
    )
    # Long enough to burn budget at the first alert's rate.
    absent_for = round((14 * error_budget(target) * _HOUR + 2 * _MINUTE) / _MINUTE) * _MINUTE
    alerts = [
        PolicyAlert(name, severity, both_burn(scaled(long), scaled(short), factor), pending=scaled(pending))
        for name, severity, factor, long, short, pending in rows
    ]
    return Policy(
        "pyrra", (PolicyAlert("absent", "page", Missing(all_series=True), pending=absent_for), *alerts)
    )
