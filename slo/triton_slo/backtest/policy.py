"""Alert policies as data: ours, and the shapes that Sloth and Pyrra generate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["page", "ticket"]

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


@dataclass(frozen=True, slots=True)
class Pair:
    """Burns when the error ratio of both windows is above `factor` times the error budget. Windows in s."""

    long: float
    short: float
    factor: float


@dataclass(frozen=True, slots=True)
class Recovery:
    """The incident is over: `window` (s) burns at most `share` of the pair's factor.

    It must also have had enough events that `failures` of them would have failed had the short window's
    error ratio gone on (0: any will do). `calm` is the least burn rate that counts as calm, whatever the
    share, and fewer failures than `few` are calm, too; with `drop` the window's error ratio is at most this
    share of the short window's. It is over, too, when `late_window` (s; 0: none) burns at most `late_share`
    of the factor.

    With `relapse`, an incident that was over within the last short window stays so until the late window (or
    else `window`) has more than this many failures and burns by the factor on its own.
    """

    window: float
    share: float
    failures: float
    calm: float = 0
    drop: float = 0
    few: float = 0
    late_window: float = 0
    late_share: float = 0
    relapse: float = 0


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A recurring incident: `hold` (s) burns by the factor, and burning ended `bursts` times in `span` (s).

    Burning means that the error ratio of the last `window` seconds is above the budget.
    """

    hold: float
    window: float
    span: float
    bursts: int


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert rule: it is true while any of its pairs burns and the guards agree.

    `pending` is the rule's `for` and `keep_firing` its keep_firing_for, in seconds. More than `failures` must
    have failed in the long window, and with `z` a one-sided score test must say that its error ratio is
    above the budget: `(burn - 1) * sqrt(n * b / (1 - b)) > z`. With `missing` the alert is about data
    instead: it is true while a series that was there before is gone (`group`), or all of them (`all`).
    """

    name: str
    severity: Severity
    pairs: tuple[Pair, ...] = ()
    pending: float = 0
    keep_firing: float = 0
    failures: float = 0
    z: float = 0
    recovery: Recovery | None = None
    recurrence: Recurrence | None = None
    missing: Literal["", "group", "all"] = ""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Unknown steps are failed events, once they have lasted for `after` (s).

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
    alerts: tuple[Alert, ...]
    inhibits: bool = False
    excluded: tuple[tuple[float, float], ...] = ()
    lag: float = 0
    unknown: Unknown | None = None


# https://github.com/slok/sloth/blob/main/internal/alert/windows/google-30d.yaml
SLOTH = Policy(
    "sloth",
    (
        Alert("page", "page", (Pair(_HOUR, 5 * _MINUTE, 14.4), Pair(6 * _HOUR, 30 * _MINUTE, 6))),
        Alert("ticket", "ticket", (Pair(_DAY, 2 * _HOUR, 3), Pair(3 * _DAY, 6 * _HOUR, 1))),
    ),
)


def pyrra(target: float, period_seconds: float = 28 * _DAY) -> Policy:
    """Pyrra's four alerts and the one on absent data; windows are fractions of the period, in whole minutes.

    https://github.com/pyrra-dev/pyrra/blob/main/slo/rules.go (Windows)
    """

    def scaled(seconds: float) -> float:
        return max(_MINUTE, round(seconds * period_seconds / (28 * _DAY) / _MINUTE) * _MINUTE)

    rows: tuple[tuple[str, Severity, float, float, float, float], ...] = (
        ("critical-1", "page", 14, _HOUR, 5 * _MINUTE, 2 * _MINUTE),
        ("critical-2", "page", 7, 6 * _HOUR, 30 * _MINUTE, 15 * _MINUTE),
        ("warning-1", "ticket", 2, _DAY, 2 * _HOUR, _HOUR),
        ("warning-2", "ticket", 1, 4 * _DAY, 6 * _HOUR, 3 * _HOUR),
    )
    # Long enough to burn budget at the first alert's rate.
    absent_for = round((14 * (1 - target) * _HOUR + 2 * _MINUTE) / _MINUTE) * _MINUTE
    burns = [
        Alert(name, severity, (Pair(scaled(long), scaled(short), factor),), pending=scaled(pending))
        for name, severity, factor, long, short, pending in rows
    ]
    return Policy("pyrra", (Alert("absent", "page", pending=absent_for, missing="all"), *burns))
