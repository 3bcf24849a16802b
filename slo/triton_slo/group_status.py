"""A group of an objective: what is known of it, in values and in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal

from triton_exporter.common.duration import DAY
from triton_slo import names
from triton_slo.amounts import budget_left, not_known_yet
from triton_slo.fields import error_budget
from triton_slo.names import GROUPING
from triton_slo.objective.model import SUSTAINABLE
from triton_slo.sources import caveat_words, caveats_of


def group_name(group: Mapping[str, str]) -> str:
    """Return the model, the other labels (a cluster, a tenant) and the version; empty where there are no labels."""
    return version_name(group_place(group), group.get("version", ""))


def group_place(group: Mapping[str, str]) -> str:
    """Return the same without the version."""
    others = [f"{label}={value}" for label, value in group.items() if label not in GROUPING]
    return " ".join(part for part in (group.get("model", ""), *others) if part)


def version_name(model: str, version: str) -> str:
    """Return a model and its version; either may be empty."""
    return " ".join(part for part in (model, version and f"version {version}") if part)


State = Literal["excluded", "unknown", "exhausted", "burning", "ok", "idle"]
Lasts = Literal["unknown", "exhausted", "estimated", "past_period_end", "not_burning"]

SHOWN_WINDOWS = ("1h", "6h", "3d")
"""Nominal windows whose burn rates a table shows besides "now"."""
_MIN_WRITTEN_ERROR = 0.0001
"""Smallest error that is written as a number; a smaller one is written as below it."""
_MIN_ERROR = 1e-9
"""Smallest error there is: below it, counts and sums determine the share exactly."""


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """One objective for one model version (or other group) at one moment.

    Ratios are 0 to 1; None is unknown.
    """

    slo: str
    indicator: str
    group: Mapping[str, str]
    target: float | None = None
    """Target in force for this model, overrides included; so is `threshold_seconds`."""
    threshold_seconds: float | None = None
    """None for indicators without a threshold."""
    sli: float | None = None
    burn_now: float | None = None
    """Burn rate over the shortest window."""
    burn: Mapping[str, float] = field(default_factory=dict)
    """Burn rate by nominal window; 1 spends the budget exactly over the period."""
    budget_left: float | None = None
    """1 when nothing is spent, negative when more than all is."""
    exhausted_in_seconds: float | None = None
    """Time until the budget is spent at the burn rate of the last hour: 0 if it is spent, infinite if nothing burns
    or if the next calendar period begins before (see `lasts`)."""
    lasts: Lasts = "unknown"
    """Whether `exhausted_in_seconds` is a number of seconds, and if not, why."""
    period_ends_in_seconds: float | None = None
    """None for rolling windows."""
    unknown_reasons: tuple[str, ...] = ()
    """Reasons why nothing is known now; empty when something is."""
    unknown_seconds: float | None = None
    """Duration of the present unknown state."""
    unknown_in_period_seconds: float | None = None
    """All unknown time of the period."""
    idle: bool = False
    """There is data, and it shows that there were no events; then ratios are None as well."""
    excluded: str = ""
    """Reason why time does not count now; empty when it counts."""
    causes: tuple[tuple[str, float], ...] = ()
    """Shares (0 to 1) of what the indicator measures, largest first."""
    sources: tuple[str, ...] = ()
    estimate_error: float | None = None
    """Error, either way, of an estimated share of the last hour."""
    seen_seconds_ago: float | None = None
    """Age of the series that are read."""
    retired: bool = False
    """Whether it is counted no more, and no alert says that it should be: unloaded on purpose, replaced,
    removed."""
    history_seconds: float | None = None
    """Recorded time where it is less than the period (so far): ratios and budget are of that time and at most an
    hour before."""
    period_days: float | None = None
    not_served: bool = False
    """No server has the model ready: the numbers are those of earlier requests."""
    ready_again: bool = False
    """It burns, for the last minutes were bad, and every server has the model ready now that should."""

    @property
    def budget_not_known_yet(self) -> str:
        """Why the budget is not shown; empty text where it is, or where there is none."""
        return not_known_yet(self.history_seconds, self.period_days)

    @property
    def budget_words(self) -> str:
        """The budget left, or why it is not shown."""
        if self.budget_not_known_yet:
            return self.budget_not_known_yet
        if self.budget_left is None:
            return "no events" if self.idle else "unknown"
        return budget_left(self.budget_left)

    @property
    def model(self) -> str:
        return self.group.get("model", "")

    @property
    def version(self) -> str:
        return self.group.get("version", "")

    def concerned_by(self, labels: Mapping[str, str]) -> bool:
        """Return whether an alert with these labels is about this objective and group."""
        return labels.get(names.SLO) == self.slo and all(
            labels.get(label, value) == value for label, value in self.group.items()
        )

    @property
    def unknown(self) -> str:
        """The reasons why nothing is known now, in one text."""
        return ", ".join(self.unknown_reasons)

    @property
    def caveats(self) -> tuple[str, ...]:
        """Sources of its numbers that cannot see everything: keys of `sources.CAVEATS`."""
        return caveats_of(self.sources)

    @property
    def qualified_state(self) -> str:
        """The state with the caveats of its numbers: `ok (estimated)`."""
        return self._qualified("")

    @property
    def shown_state(self) -> str:
        """The state with the caveats and the error of an estimate: `ok (estimated, +-1.2 points)`."""
        error = self.estimate_error
        return self._qualified("" if error is None else f", {either_way(error)}")

    def _qualified(self, error: str) -> str:
        if self.state in ("excluded", "unknown"):
            return self.state
        words = "" if self.budget_left is None else caveat_words(self.caveats, error)
        now = ", not served" if self.not_served else ", ready again" if self.ready_again else ""
        return self.state + (f" ({words})" if words else "") + now

    @property
    def state(self) -> State:
        """The state as one word; excluded time is not judged, and unknown data cannot be trusted."""
        if self.excluded:
            return "excluded"
        # The budget follows some minutes after the first counts; what burns is known at once.
        if self.unknown_reasons or (self.budget_left is None and not self.idle and not burns(self.burn_now)):
            return "unknown"
        if self.budget_left is not None and self.budget_left <= 0 and not self.budget_not_known_yet:
            return "exhausted"
        if self.burn_now is None:
            return "idle"
        return "burning" if burns(self.burn_now) else "ok"


def burns(rate: float | None) -> bool:
    """Return whether a burn rate uses up its budget before the period ends; no events burn nothing."""
    return rate is not None and rate > SUSTAINABLE


def points(share: float) -> str:
    """Return a difference of shares in percentage points."""
    return f"{100 * share:.{2 if share < 0.1 else 3}g} points"


def either_way(error: float) -> str:
    """Return how far an estimate may be off: +-1.2 points; an error that would be written as 0 has a bound."""
    if error < _MIN_ERROR:
        return "+-0 points"
    return f"+-{points(error)}" if error >= _MIN_WRITTEN_ERROR else f"+-<{points(_MIN_WRITTEN_ERROR)}"


@dataclass(frozen=True, slots=True)
class Overview:
    """One objective over all its groups: how many there are, how many are in trouble, and the worst."""

    slo: str
    indicator: str
    groups: int
    exhausted: int
    burning: int
    unknown: int
    worst: GroupStatus


def overviews(rows: Sequence[GroupStatus]) -> tuple[Overview, ...]:
    """Sum up each objective; the most urgent first, as the rows are."""
    summed = []
    for slo, members in groupby(sorted(rows, key=lambda row: row.slo), key=lambda row: row.slo):
        group = sorted(members, key=urgency)
        states = [row.state for row in group]
        summed.append(
            Overview(
                slo,
                group[0].indicator,
                len([row for row in group if row.group]),
                states.count("exhausted"),
                states.count("burning"),
                states.count("unknown"),
                group[0],
            )
        )
    return tuple(sorted(summed, key=lambda overview: urgency(overview.worst)))


def urgency(row: GroupStatus) -> tuple[float, float, str, tuple[tuple[str, str], ...]]:
    """Return what to sort by: unknown first, then the least budget left, then the fastest burning."""
    left = row.budget_left
    order = -math.inf if row.state == "unknown" else math.inf if left is None else left
    return order, -(row.burn_now or 0.0), row.slo, tuple(sorted(row.group.items()))


@dataclass(frozen=True, slots=True)
class Forecast:
    """Seconds until a budget is spent: at the pace of the last hour, and the soonest and the latest.

    The range contains the paces of the windows `SHOWN_WINDOWS`, each wrong by the stated error of an estimate.
    Infinite: not at that pace, or not before a calendar period ends.
    """

    seconds: float
    soonest: float
    latest: float


def forecast(row: GroupStatus) -> Forecast | None:
    """Return when the budget of a group is spent; None where that is unknown, or it is spent already."""
    if row.lasts in ("unknown", "exhausted") or row.exhausted_in_seconds is None:
        return None
    if row.budget_left is None or row.target is None or row.period_days is None:
        return None
    paces = [row.burn[window] for window in SHOWN_WINDOWS if window in row.burn]
    if not paces:
        return None
    error = (row.estimate_error or 0.0) / error_budget(row.target)
    left, ends = row.budget_left * row.period_days * DAY, row.period_ends_in_seconds

    def spent(pace: float) -> float:
        seconds = left / pace if pace > 0 else math.inf
        return math.inf if ends is not None and seconds >= ends else seconds

    return Forecast(row.exhausted_in_seconds, spent(max(paces) + error), spent(min(paces) - error))
