"""The status of every objective: recorded series in, frozen values out.

Whatever is missing is unknown (None), never 100 %.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal

from triton_exporter.duration import DAY
from triton_slo import names
from triton_slo.burn.amounts import WHOLE_PERIOD
from triton_slo.burn.condition import burns
from triton_slo.indicators import kind
from triton_slo.indicators.sources import CAVEATS, HIDING
from triton_slo.prometheus import Sample

State = Literal["excluded", "unknown", "exhausted", "burning", "ok", "idle"]
Lasts = Literal["unknown", "exhausted", "estimated", "past_period_end", "not_burning"]

SHOWN_WINDOWS = ("1h", "6h", "3d")
"""Nominal windows whose burn rates a table shows besides "now"."""
_PACE = "1h"
_FRESH_SECONDS = 300.0
"""Prometheus' own lookback: what was last seen longer ago is not there any more."""
_ERROR_PREFIX = names.sli_error("")
_LEAST_ERROR = 0.0001
_SMALLEST_ERROR = 1e-9
"""Below this the bounds of a share are one number: counts and sums leave nothing to estimate."""
_PLAIN = (
    names.OBJECTIVE_RATIO,
    names.THRESHOLD_SECONDS,
    names.PERIOD_DAYS,
    names.PERIOD_START,
    names.PERIOD_END,
    names.CURRENT_BURN_RATE,
    names.PERIOD_BURN_RATE,
    names.PERIOD_BUDGET_REMAINING,
    names.INFO,
    names.LAST_SEEN,
    names.RETIRED,
    names.UNKNOWN,
    names.SLI_EXCLUDED,
    names.SLI_SOURCE,
    names.ESTIMATE_ERROR,
    names.WITHIN_ERROR,
    names.CAUSE_SHARE,
    names.SLI_EVENTS_SINCE,
)

_OF_OBJECTIVE = (names.PERIOD_DAYS, names.PERIOD_START, names.PERIOD_END)
"""Recorded once for an objective; external labels, and those that a selector fixes, are also on these series."""
_NO_ERRORS = f'{names.EVENT}!="{names.ERROR}"'
SELECTOR = f'{{__name__=~"{"|".join((*_PLAIN, _ERROR_PREFIX + ".+"))}", {names.RECORDED_HERE}, {_NO_ERRORS}}}'
"""PromQL for all recorded series that `group_statuses` reads, in one question."""


UNKNOWN_TIME = "unknown_in_period_seconds"
"""Name under which `verdict.status` passes the seconds a group was unknown; nothing records it."""


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
    """Time until the budget is spent at the last hour's pace, if nothing is won back: 0 when it is spent, infinite
    when nothing burns or when a calendar period, and with it the budget, begins again before (see `lasts`)."""
    lasts: Lasts = "unknown"
    period_ends_in_seconds: float | None = None
    """None for rolling windows."""
    unknown: str = ""
    """Reason why nothing is known now; empty when something is."""
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
    within_error: tuple[str, ...] = ()
    """Page tiers that do not page because of `estimate_error`."""
    seen_seconds_ago: float | None = None
    """Age of the series that are read."""
    history_seconds: float | None = None
    """Recorded time where it is less than the period (so far): ratios and budget are of that time and at most an
    hour before."""

    @property
    def model(self) -> str:
        return self.group.get("model", "")

    @property
    def version(self) -> str:
        return self.group.get("version", "")

    @property
    def caveats(self) -> tuple[str, ...]:
        """Sources of its numbers that cannot see everything: keys of `sources.CAVEATS`."""
        return tuple(source for source in self.sources if source in CAVEATS)

    @property
    def qualified_state(self) -> str:
        """The state with the caveats of its numbers: `ok (estimated)`."""
        return self._qualified("")

    @property
    def shown_state(self) -> str:
        """The state with the caveats and the error of an estimate: `ok (estimated, +-1.2 points)`."""
        error = self.estimate_error
        if error is None:
            return self._qualified("")
        return self._qualified(
            f", {either_way(error) if error > _SMALLEST_ERROR else 'exact in the last hour'}"
        )

    def _qualified(self, error: str) -> str:
        if self.budget_left is None or self.state in ("excluded", "unknown"):
            return self.state
        words = dict.fromkeys(
            CAVEATS[source].word + ("" if source in HIDING else error) for source in self.caveats
        )
        return f"{self.state} ({', '.join(words)})" if words else self.state

    @property
    def state(self) -> State:
        """The one word for it; what does not count now is not judged, what is unknown cannot be trusted."""
        if self.excluded:
            return "excluded"
        if self.unknown or (self.budget_left is None and not self.idle):
            return "unknown"
        if self.budget_left is not None and self.budget_left <= 0:
            return "exhausted"
        if self.burn_now is None:
            return "idle"
        return "burning" if burns(self.burn_now) else "ok"


def points(share: float) -> str:
    """Return a difference of shares in percentage points."""
    return f"{100 * share:.{2 if share < 0.1 else 3}g} points"


def either_way(error: float) -> str:
    """Return how far an estimate may be off: +-1.2 points; an error that would be written as 0 has a bound."""
    return f"+-{points(error)}" if error >= _LEAST_ERROR else f"+-<{points(_LEAST_ERROR)}"


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


def group_statuses(samples: Iterable[Sample]) -> tuple[GroupStatus, ...]:
    """Read recorded series into one value per objective and group, the most urgent first."""
    board = _Board(samples)
    return tuple(sorted((board.group_status(key) for key in board.entries()), key=_urgency))


def overviews(rows: Sequence[GroupStatus]) -> tuple[Overview, ...]:
    """Sum up each objective; the most urgent first, as the rows are."""
    summed = []
    for slo, members in groupby(sorted(rows, key=lambda row: row.slo), key=lambda row: row.slo):
        group = sorted(members, key=_urgency)
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
    return tuple(sorted(summed, key=lambda overview: _urgency(overview.worst)))


_Key = tuple[str, str, tuple[tuple[str, str], ...]]


class _Board:
    """Samples laid out by series name and by (objective, indicator, group)."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._values: dict[_Key, dict[str, float]] = defaultdict(dict)
        self._labels: dict[_Key, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        self._causes: dict[tuple[str, tuple[tuple[str, str], ...]], list[tuple[str, float]]] = defaultdict(
            list
        )
        self._infos: dict[str, str] = {}
        self._objectives: dict[_Key, dict[str, float]] = defaultdict(dict)
        self._excluded: dict[str, list[tuple[set[tuple[str, str]], str]]] = defaultdict(list)
        self._not_finite: dict[str, list[tuple[set[tuple[str, str]], str]]] = defaultdict(list)
        self._at = 0.0
        for sample in samples:
            self._take(sample)

    def _take(self, sample: Sample) -> None:
        name, labels = sample.labels.get("__name__", ""), sample.labels
        self._at = max(self._at, sample.at)
        slo, indicator = labels.get(names.SLO, ""), labels.get(names.INDICATOR, "")
        group = names.group_of(labels)
        if name == names.INFO:
            self._infos[slo] = indicator
            return
        if name == names.SLI_EXCLUDED:
            # Of the whole objective: the other labels are those of all its series (a selector's).
            self._excluded[slo].append((set(group), labels.get(names.REASON, "")))
            return
        finite = math.isfinite(sample.value)
        if name == names.CAUSE_SHARE:
            if finite:
                self._causes[indicator, group].append((labels.get(names.CAUSE, ""), sample.value))
            return
        key = (slo, indicator, group)
        values = (self._objectives if name in _OF_OBJECTIVE else self._values)[key]
        if not finite:
            # No rule of ours records such a value. Of another it must not become a number here, nor seem idle.
            self._not_finite[slo].append((set(group), name))
            return
        values[name] = sample.value
        for label in (names.REASON, names.SOURCE, names.TIER):
            if label in labels:
                self._labels[key][label].append(labels[label])

    def entries(self) -> list[_Key]:
        """Return every objective and group there is; an objective without any group still has one entry.

        A model that Triton lists and never loaded has no version; once it loads, its versions replace it. A
        retired one, unloaded on purpose or replaced, has an entry where it had events in the period.
        """
        versioned = {
            (slo, indicator, tuple(pair for pair in group if pair[0] != "version"))
            for slo, indicator, group in self._values
            if "version" in dict(group)
        }
        grouped = [
            key
            for key in self._values
            if key[2]
            and not ((key in versioned or self._retired(key)) and self._nothing(key))
            and not self._only_counted(key)
        ]
        covered = defaultdict[str, list[set[tuple[str, str]]]](list)
        for slo, _, group in grouped:
            covered[slo].append(set(group))
        bare = {**{slo: indicator for slo, indicator, _ in self._values}, **self._infos}
        placed = {slo for slo, _, _ in self._objectives}
        of_objectives = [
            *self._objectives,
            *((slo, indicator, ()) for slo, indicator in bare.items() if slo not in placed),
        ]
        return grouped + [
            key for key in of_objectives if not any(set(key[2]) <= group for group in covered[key[0]])
        ]

    def _nothing(self, key: _Key) -> bool:
        """Return whether nothing ever happened to a group: a model that is listed and was never meant to serve."""
        return not self._values[key].keys() & {names.PERIOD_BURN_RATE, names.UNKNOWN}

    def _only_counted(self, key: _Key) -> bool:
        """Return whether a group has counters alone: Triton keeps those of failures after it unloads a model."""
        return self._values[key].keys() == {names.SLI_EVENTS_SINCE}

    def _retired(self, key: _Key) -> bool:
        # A group that serves again is seen later than it was retired.
        values = self._values[key]
        seen = values.get(names.LAST_SEEN, math.inf)
        return values.get(names.RETIRED, -math.inf) >= seen

    def group_status(self, key: _Key) -> GroupStatus:
        """Return all that is known about one."""
        slo, indicator, group = key
        values, general = self._values[key], self._general(key)

        def value(name: str) -> float | None:
            return values.get(name, general.get(name))

        target, spent = value(names.OBJECTIVE_RATIO), value(names.PERIOD_BURN_RATE)
        left = value(names.PERIOD_BUDGET_REMAINING)
        if left is None and spent is not None:
            left = 1 - spent
        burn = {} if target is None else _burn_rates(values, 1 - target)
        now, seen = value(names.CURRENT_BURN_RATE), values.get(names.LAST_SEEN)
        period_end = value(names.PERIOD_END)
        ends_in = None if period_end is None else max(0.0, period_end - self._at)
        lasts, seconds = _lasting(left, burn.get(_PACE, now), value(names.PERIOD_DAYS), ends_in)
        reasons = sorted(set(self._labels[key][names.REASON]))
        wrong = {name for of, name in self._not_finite[slo] if of <= set(group)}
        unknown = ", ".join(reasons + [f"{name} is not a finite number" for name in sorted(wrong)[:1]])
        # Data without events leaves no ratio; data that is gone leaves none either, but is not seen any more.
        idle = now is None and seen is not None and self._at - seen <= _FRESH_SECONDS
        return GroupStatus(
            slo=slo,
            indicator=indicator,
            group=dict(group),
            target=target,
            threshold_seconds=value(names.THRESHOLD_SECONDS),
            sli=None
            if left is None or target is None
            else _sli(1 - left if spent is None else spent, target),
            burn_now=now,
            burn=burn,
            budget_left=left,
            exhausted_in_seconds=seconds,
            lasts=lasts,
            period_ends_in_seconds=ends_in,
            unknown=unknown or ("" if idle or left is not None else "no data"),
            unknown_seconds=self._at - seen if reasons and seen is not None else None,
            unknown_in_period_seconds=values.get(UNKNOWN_TIME),
            idle=idle and not unknown,
            excluded=", ".join(sorted(why for of, why in self._excluded[slo] if of <= set(group))),
            causes=self._split(indicator, group),
            sources=tuple(sorted(set(self._labels[key][names.SOURCE]))),
            estimate_error=values.get(names.ESTIMATE_ERROR),
            within_error=tuple(sorted(set(self._labels[key][names.TIER]))),
            seen_seconds_ago=None if seen is None else max(0.0, self._at - seen),
            history_seconds=self._short_history(
                values.get(names.SLI_EVENTS_SINCE), value(names.PERIOD_START), value(names.PERIOD_DAYS)
            ),
        )

    def _general(self, key: _Key) -> dict[str, float]:
        """Return what is recorded once for a group's objective, where the group is: a cluster, a tenant."""
        slo, indicator, group = key
        general = dict(self._values.get((slo, indicator, ()), {}))
        for (of_slo, of_indicator, of), values in self._objectives.items():
            if (slo, indicator) == (of_slo, of_indicator) and set(of) <= set(group):
                general |= values
        return general

    def _short_history(self, since: float | None, start: float | None, days: float | None) -> float | None:
        if since is None or days is None:
            return None
        passed = days * DAY if start is None else max(1.0, self._at - start)
        reached = max(0.0, self._at - since)
        return reached if reached < WHOLE_PERIOD * passed else None

    def _split(self, indicator: str, group: tuple[tuple[str, str], ...]) -> tuple[tuple[str, float], ...]:
        split = kind(indicator).cause_split
        return tuple(sorted(self._causes.get((split, group), ()), key=lambda cause: -cause[1]))


def _sli(spent: float, target: float) -> float:
    """Return the share of good events at which the budget burned so fast, without floating-point dust."""
    return min(1.0, max(0.0, round(1 - spent * (1 - target), 12)))


def _burn_rates(values: Mapping[str, float], budget: float) -> dict[str, float]:
    return {
        name.removeprefix(_ERROR_PREFIX): ratio / budget
        for name, ratio in values.items()
        if name.startswith(_ERROR_PREFIX)
    }


def _lasting(
    left: float | None, burn: float | None, period_days: float | None, ends_in: float | None
) -> tuple[Lasts, float | None]:
    """Return seconds until the budget is spent at a burn rate: left * period / burn (SRE workbook, chapter 5)."""
    if left is not None and left <= 0:
        return "exhausted", 0.0
    if left is None or burn is None or period_days is None:
        return "unknown", None
    if burn <= 0:
        return "not_burning", math.inf
    seconds = left * period_days * DAY / burn
    if ends_in is not None and seconds >= ends_in:
        return "past_period_end", math.inf
    return "estimated", seconds


def _urgency(row: GroupStatus) -> tuple[float, float, str, tuple[tuple[str, str], ...]]:
    left = row.budget_left
    order = -math.inf if row.state == "unknown" else math.inf if left is None else left
    return order, -(row.burn_now or 0.0), row.slo, tuple(sorted(row.group.items()))
