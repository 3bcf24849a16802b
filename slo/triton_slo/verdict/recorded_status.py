"""Read the status of every objective from recorded series: samples in, `GroupStatus` out.

Whatever is missing is unknown (None), never 100 %.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from triton_exporter.common.duration import DAY
from triton_slo import names
from triton_slo.burn.amounts import WHOLE_PERIOD
from triton_slo.fields import error_budget
from triton_slo.indicators import indicator_class
from triton_slo.prometheus.client import Sample
from triton_slo.verdict.group_status import GroupStatus, Lasts, urgency

_PACE = "1h"
_FRESH_SECONDS = 300.0
"""Lookback of Prometheus: series that were last seen longer ago are gone."""
_ERROR_PREFIX = names.sli_error("")
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
"""Of events only the totals are read, for the length of the history; other series have no such label."""
SELECTOR = f'{{__name__=~"{"|".join((*_PLAIN, _ERROR_PREFIX + ".+"))}", {names.RECORDED_HERE}, {_NO_ERRORS}}}'
"""PromQL for all recorded series that `group_statuses` reads, in one question."""


UNKNOWN_TIME = "unknown_in_period_seconds"
"""Name under which `verdict.status` passes the seconds a group was unknown; nothing records it."""


def group_statuses(samples: Iterable[Sample]) -> tuple[GroupStatus, ...]:
    """Read recorded series into one value per objective and group, the most urgent first."""
    by_group = _SamplesByGroup(samples)
    rows = (by_group.group_status(key) for key in by_group.entries())
    return tuple(sorted(rows, key=urgency))


class _GroupKey(NamedTuple):
    slo: str
    indicator: str
    group: names.GroupLabels


class _SamplesByGroup:
    """Samples by objective, indicator and group, and there by the name of their series."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._values: dict[_GroupKey, dict[str, float]] = defaultdict(dict)
        self._labels: dict[_GroupKey, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        self._causes: dict[tuple[str, names.GroupLabels], list[tuple[str, float]]] = defaultdict(list)
        self._infos: dict[str, str] = {}
        self._objectives: dict[_GroupKey, dict[str, float]] = defaultdict(dict)
        self._excluded: dict[str, list[tuple[set[tuple[str, str]], str]]] = defaultdict(list)
        self._not_finite: dict[str, list[tuple[set[tuple[str, str]], str]]] = defaultdict(list)
        self._at = 0.0
        for sample in samples:
            self._put_sample(sample)
        self._places: dict[tuple[str, str], list[_GroupKey]] = defaultdict(list)
        for key in self._objectives:
            self._places[key.slo, key.indicator].append(key)

    def _put_sample(self, sample: Sample) -> None:
        name, labels = sample.labels.get("__name__", ""), sample.labels
        self._at = max(self._at, sample.at)
        slo, indicator = labels.get(names.SLO, ""), labels.get(names.INDICATOR, "")
        group = names.group_of(labels)
        if name == names.INFO:
            self._infos[slo] = indicator
            return
        if name == names.SLI_EXCLUDED:
            # An exclusion is about the whole objective; its other labels are those of all series (a selector's).
            self._excluded[slo].append((set(group), labels.get(names.REASON, "")))
            return
        finite = math.isfinite(sample.value)
        if name == names.CAUSE_SHARE:
            if finite:
                self._causes[indicator, group].append((labels.get(names.CAUSE, ""), sample.value))
            return
        key = _GroupKey(slo, indicator, group)
        values = (self._objectives if name in _OF_OBJECTIVE else self._values)[key]
        if not finite:
            # Our rules record no such value. If others do, the group must neither get a number nor seem idle.
            self._not_finite[slo].append((set(group), name))
            return
        values[name] = sample.value
        for label in (names.REASON, names.SOURCE, names.TIER):
            if label in labels:
                self._labels[key][label].append(labels[label])

    def entries(self) -> list[_GroupKey]:
        """Return every objective and group there is; an objective without any group still has one entry.

        A model that Triton lists and never loaded has no version; once it loads, its versions replace it. A
        retired one, unloaded on purpose or replaced, has an entry where it had events in the period.
        """
        grouped = self._groups()
        covered = defaultdict[str, list[set[tuple[str, str]]]](list)
        for slo, _, group in grouped:
            covered[slo].append(set(group))
        indicators = {**{slo: indicator for slo, indicator, _ in self._values}, **self._infos}
        placed = {slo for slo, _, _ in self._objectives}
        unplaced = (
            _GroupKey(slo, indicator, ()) for slo, indicator in indicators.items() if slo not in placed
        )
        return grouped + [
            key
            for key in (*self._objectives, *unplaced)
            if not any(set(key.group) <= group for group in covered[key.slo])
        ]

    def _groups(self) -> list[_GroupKey]:
        versioned = {
            key._replace(group=tuple(pair for pair in key.group if pair[0] != "version"))
            for key in self._values
            if "version" in dict(key.group)
        }
        return [
            key
            for key in self._values
            if key.group
            and not ((key in versioned or self._retired(key)) and self._was_never_active(key))
            and not self._only_counted(key)
        ]

    def _was_never_active(self, key: _GroupKey) -> bool:
        """Return whether a group has neither a budget nor an unknown state: a listed model that never served."""
        return not self._values[key].keys() & {names.PERIOD_BURN_RATE, names.UNKNOWN}

    def _only_counted(self, key: _GroupKey) -> bool:
        """Return whether a group has counters alone: Triton keeps those of failures after it unloads a model."""
        return self._values[key].keys() == {names.SLI_EVENTS_SINCE}

    def _retired(self, key: _GroupKey) -> bool:
        # A group that serves again is seen later than it was retired.
        values = self._values[key]
        seen = values.get(names.LAST_SEEN, math.inf)
        return values.get(names.RETIRED, -math.inf) >= seen

    def group_status(self, key: _GroupKey) -> GroupStatus:
        """Return all that is known about one group of an objective."""
        slo, indicator, group = key
        own = self._values[key]
        known = {**self._values_of_objective(key), **own}
        target, burn_now = known.get(names.OBJECTIVE_RATIO), known.get(names.CURRENT_BURN_RATE)
        spent, left = _spent_and_left(known)
        burn = {} if target is None else _burn_rates(own, error_budget(target))
        seen, period_end = own.get(names.LAST_SEEN), known.get(names.PERIOD_END)
        ends_in = None if period_end is None else max(0.0, period_end - self._at)
        lasts, seconds = _budget_lasts(left, burn.get(_PACE, burn_now), known.get(names.PERIOD_DAYS), ends_in)
        reasons = self._labelled(key, names.REASON)
        unknown = (*reasons, *self._non_finite_reasons(key))
        # There is no ratio without events, nor without series; only in the first case was the group just seen.
        idle = burn_now is None and seen is not None and self._at - seen <= _FRESH_SECONDS
        return GroupStatus(
            slo=slo,
            indicator=indicator,
            group=dict(group),
            target=target,
            threshold_seconds=known.get(names.THRESHOLD_SECONDS),
            sli=None if spent is None or target is None else _good_share(spent, target),
            burn_now=burn_now,
            burn=burn,
            budget_left=left,
            exhausted_in_seconds=seconds,
            lasts=lasts,
            period_ends_in_seconds=ends_in,
            unknown_reasons=unknown or (() if idle or left is not None else ("no data",)),
            unknown_seconds=self._at - seen if reasons and seen is not None else None,
            unknown_in_period_seconds=own.get(UNKNOWN_TIME),
            idle=idle and not unknown,
            excluded=", ".join(sorted(why for of, why in self._excluded[slo] if of <= set(group))),
            causes=self._cause_split(indicator, group),
            sources=self._labelled(key, names.SOURCE),
            estimate_error=own.get(names.ESTIMATE_ERROR),
            within_error=self._labelled(key, names.TIER),
            seen_seconds_ago=None if seen is None else max(0.0, self._at - seen),
            retired=self._retired(key),
            history_seconds=self._short_history_seconds(own.get(names.SLI_EVENTS_SINCE), known),
        )

    def _labelled(self, key: _GroupKey, label: str) -> tuple[str, ...]:
        """Return the values that a label has on a group's series."""
        return tuple(sorted(set(self._labels[key][label])))

    def _non_finite_reasons(self, key: _GroupKey) -> list[str]:
        """Return why nothing is known of a group with a value that no rule of ours records."""
        wrong = {name for of, name in self._not_finite[key.slo] if of <= set(key.group)}
        return [f"{name} is not a finite number" for name in sorted(wrong)[:1]]

    def _values_of_objective(self, key: _GroupKey) -> dict[str, float]:
        """Return the values that are recorded once for a group's objective, or for its cluster or tenant."""
        values = dict(self._values.get(key._replace(group=()), {}))
        for place in self._places.get((key.slo, key.indicator), ()):
            if set(place.group) <= set(key.group):
                values |= self._objectives[place]
        return values

    def _short_history_seconds(self, since: float | None, values: Mapping[str, float]) -> float | None:
        """Return the recorded seconds where they are less than the period so far."""
        days = values.get(names.PERIOD_DAYS)
        if since is None or days is None:
            return None
        start = values.get(names.PERIOD_START)
        passed = days * DAY if start is None else max(1.0, self._at - start)
        reached = max(0.0, self._at - since)
        return reached if reached < WHOLE_PERIOD * passed else None

    def _cause_split(self, indicator: str, group: names.GroupLabels) -> tuple[tuple[str, float], ...]:
        split = indicator_class(indicator).cause_split
        return tuple(sorted(self._causes.get((split, group), ()), key=lambda cause: -cause[1]))


def _spent_and_left(known: Mapping[str, float]) -> tuple[float | None, float | None]:
    """Return the shares of the budget that are spent and left; one that is not recorded follows from the other."""
    spent, left = known.get(names.PERIOD_BURN_RATE), known.get(names.PERIOD_BUDGET_REMAINING)
    if left is None and spent is not None:
        return spent, 1 - spent
    return (1 - left if spent is None and left is not None else spent), left


def _good_share(spent: float, target: float) -> float:
    """Return the share of good events at which the budget burned so fast, to 12 digits."""
    return min(1.0, max(0.0, round(1 - spent * error_budget(target), 12)))


def _burn_rates(values: Mapping[str, float], budget: float) -> dict[str, float]:
    return {
        name.removeprefix(_ERROR_PREFIX): ratio / budget
        for name, ratio in values.items()
        if name.startswith(_ERROR_PREFIX)
    }


def _budget_lasts(
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
