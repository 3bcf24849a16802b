"""Status of every objective: asks Prometheus for the recorded series, and makes a value of each group.

Whatever is missing is unknown (None), never 100 %.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from triton_exporter.catalogue import EXPORTER_JOB, state
from triton_exporter.common.duration import DAY, parse_seconds
from triton_exporter.common.moments import hour_text, utc_text
from triton_slo import names
from triton_slo.amounts import LEAST_RECORDED, WHOLE_PERIOD, not_known_yet
from triton_slo.fields import error_budget
from triton_slo.group_status import GroupStatus, Lasts, burns, urgency
from triton_slo.indicators import indicator_class
from triton_slo.objective.model import CalendarWindow, calendar_window, period_at
from triton_slo.prometheus import Prometheus, PrometheusError, Sample
from triton_slo.promql import Matchers
from triton_slo.signals import MAYBE_READY

_PACE = "1h"
_HOUR = 1 / 24
"""Days of the window of `ESTIMATE_ERROR`."""
_NOW = "5m"
_ERROR_PREFIX = names.sli_error("")
_PLAIN = (
    names.OBJECTIVE_RATIO,
    names.THRESHOLD_SECONDS,
    names.PERIOD_DAYS,
    names.PERIOD_BUDGET_REMAINING,
    names.INFO,
    names.SLI_EXCLUDED,
    names.SLI_SOURCE,
    names.ESTIMATE_ERROR,
    names.CAUSE_SHARE,
    names.COUNTER,
    names.COUNTER_SINCE,
)
_NO_ERRORS = f'{names.EVENT}!="{names.ERROR}"'
"""Of events only the totals are read, to see whether a group is counted; other series have no such label."""
SELECTOR = f'{{__name__=~"{"|".join((*_PLAIN, _ERROR_PREFIX + ".+"))}", {names.RECORDED_HERE}, {_NO_ERRORS}}}'
"""PromQL for all recorded series that `group_statuses` reads, in one question."""

AGE = "age_seconds"
UNKNOWN_SECONDS = "unknown_seconds"
UNKNOWN_TIME = "unknown_in_period_seconds"
NOT_SERVED = "not_served"
PERIOD_START = "period_start"
PERIOD_END = "period_end"
"""Names of what `read_status` asks for besides: nothing records them."""
_OF_OBJECTIVE = (names.PERIOD_DAYS, PERIOD_START, PERIOD_END)
"""Recorded once for an objective; external labels, and those that a selector fixes, are also on these series."""


def group_statuses(samples: Iterable[Sample], time_scale: float = 1.0) -> tuple[GroupStatus, ...]:
    """Read recorded series into one value per objective and group, the most urgent first."""
    by_group = _SamplesByGroup(samples, time_scale)
    rows = (by_group.group_status(key) for key in by_group.entries())
    return tuple(sorted(rows, key=urgency))


class _GroupKey(NamedTuple):
    slo: str
    indicator: str
    group: names.GroupLabels


class _SamplesByGroup:
    """Samples by objective, indicator and group, and there by the name of their series."""

    def __init__(self, samples: Iterable[Sample], time_scale: float) -> None:
        self._time_scale = time_scale
        self._values: dict[_GroupKey, dict[str, float]] = defaultdict(dict)
        self._sources: dict[_GroupKey, list[str]] = defaultdict(list)
        self._causes: dict[tuple[str, names.GroupLabels], list[tuple[str, float]]] = defaultdict(list)
        self._infos: dict[str, str] = {}
        self._objectives: dict[_GroupKey, dict[str, float]] = defaultdict(dict)
        self._excluded: dict[str, list[tuple[set[tuple[str, str]], str]]] = defaultdict(list)
        self._not_finite: dict[str, list[tuple[set[tuple[str, str]], str]]] = defaultdict(list)
        self._unknown: list[tuple[str, Mapping[str, str], str, str, float]] = []
        self._not_served: set[str] = set()
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
        if name == NOT_SERVED:
            self._not_served.add(labels["model"])
            return
        if name == names.SLI_EXCLUDED:
            # An exclusion is about the whole objective; its other labels are those of all series (a selector's).
            self._excluded[slo].append((set(group), labels.get(names.REASON, "")))
            return
        if name in (UNKNOWN_SECONDS, UNKNOWN_TIME):
            # What is said of a model that nothing reports is about all of its objectives, and has no label of them.
            self._unknown.append((slo, labels, labels.get(names.REASON, ""), name, sample.value))
            if slo:  # an objective that cannot be measured has no other series of this group
                known = [(label, labels[label]) for label in names.GROUPING if label in labels]
                self._values.setdefault(_GroupKey(slo, indicator, tuple(sorted(known))), {})
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
        if names.SOURCE in labels:
            self._sources[key].append(labels[names.SOURCE])

    def entries(self) -> list[_GroupKey]:
        """Return every objective and group there is; an objective without any group still has one entry.

        A group that is not counted any more has an entry where it had events in the period.
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
        return [
            key
            for key, values in self._values.items()
            if key.group
            and (
                values.keys() & {names.COUNTER, names.PERIOD_BUDGET_REMAINING}
                or self._unknown_of(key)
                or self._non_finite_reasons(key)
            )
        ]

    def _unknown_of(self, key: _GroupKey, name: str = UNKNOWN_SECONDS) -> list[tuple[str, float]]:
        """Return the reasons for not knowing a group, with the seconds."""
        return [
            (reason, seconds)
            for slo, about, reason, named, seconds in self._unknown
            if named == name
            and slo in ("", key.slo)
            and all(
                about.get(label, value if label != "model" else "") == value for label, value in key.group
            )
        ]

    def _unknown_now(self, key: _GroupKey) -> Iterator[tuple[str, float]]:
        """Yield why nothing is known of a group now, with the seconds since then."""
        own = self._values[key]
        for reason, seconds in self._unknown_of(key):
            if reason:
                yield reason, seconds
            elif names.COUNTER not in own:  # what is counted has data: again, or those of a gateway
                age = own.get(AGE, 0.0)
                # The age is that at the last whole minute: the data ended within the next.
                ended = self._at - max(seconds, age - 30)
                yield f"no data since {hour_text(ended, self._at)}", max(seconds, age)

    def group_status(self, key: _GroupKey) -> GroupStatus:
        """Return all that is known about one group of an objective."""
        slo, indicator, group = key
        own = self._values[key]
        known = {**self._values_of_objective(key), **own}
        target, counted = known.get(names.OBJECTIVE_RATIO), names.COUNTER in own
        left = known.get(names.PERIOD_BUDGET_REMAINING)
        since = own.get(names.COUNTER_SINCE)
        if since is None and counted:
            since = self._at  # it has just begun
        # In the time of the windows: in a demo an hour is a minute.
        recorded = None if since is None else max(0.0, self._at - since) / self._time_scale
        burn = {
            window: share / error_budget(target)
            for name, share in own.items()
            if target is not None and name.startswith(_ERROR_PREFIX)
            for window in [name.removeprefix(_ERROR_PREFIX)]
            if window == _NOW or not not_known_yet(recorded, parse_seconds(window) / DAY)
        }
        burn_now = burn.pop(_NOW, None)
        period_end = known.get(PERIOD_END)
        ends_in = None if period_end is None else max(0.0, period_end - self._at)
        history = self._short_history_seconds(recorded, known)
        days = known.get(names.PERIOD_DAYS)
        shown = None if not_known_yet(history, days) else left
        lasts, seconds = _budget_lasts(shown, burn.get(_PACE, burn_now), days, ends_in)
        gone = tuple(self._unknown_now(key))
        unknown = (*(reason for reason, _ in gone), *self._non_finite_reasons(key))
        # There is no ratio without events, nor without series; only in the first case is the group counted.
        idle = burn_now is None and counted
        return GroupStatus(
            slo=slo,
            indicator=indicator,
            group=dict(group),
            target=target,
            threshold_seconds=known.get(names.THRESHOLD_SECONDS),
            # The share of good events at which the budget burned so fast, to 12 digits.
            sli=None
            if left is None or target is None
            else min(1.0, max(0.0, round(1 - (1 - left) * error_budget(target), 12))),
            burn_now=burn_now,
            burn=burn,
            budget_left=left,
            exhausted_in_seconds=seconds,
            lasts=lasts,
            period_ends_in_seconds=ends_in,
            unknown_reasons=unknown or (() if idle or left is not None or burns(burn_now) else ("no data",)),
            unknown_seconds=max((seconds for _, seconds in gone), default=None),
            unknown_in_period_seconds=max(
                (seconds for _, seconds in self._unknown_of(key, UNKNOWN_TIME)), default=None
            ),
            idle=idle and not unknown,
            excluded=", ".join(sorted(why for of, why in self._excluded[slo] if of <= set(group))),
            causes=tuple(
                sorted(
                    self._causes.get((indicator_class(indicator).cause_split, group), ()),
                    key=lambda cause: -cause[1],
                )
            ),
            sources=tuple(sorted(set(self._sources[key]))),
            estimate_error=None if not_known_yet(recorded, _HOUR) else own.get(names.ESTIMATE_ERROR),
            seen_seconds_ago=own.get(AGE),
            retired=not counted and not gone,
            history_seconds=history,
            period_days=days,
            not_served=dict(group).get("model") in self._not_served,
            ready_again=burns(burn_now) and names.SERVERS_NOW in own,
        )

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

    def _short_history_seconds(self, recorded: float | None, values: Mapping[str, float]) -> float | None:
        """Return the recorded seconds where they are less than the period so far."""
        days = values.get(names.PERIOD_DAYS)
        if recorded is None or days is None:
            return None
        start = values.get(PERIOD_START)
        passed = days * DAY if start is None else max(1.0, self._at - start) / self._time_scale
        return recorded if recorded < max(WHOLE_PERIOD * passed, LEAST_RECORDED * days * DAY) else None


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


_UNKNOWN_STEP_SECONDS = 300
_COPY_FROM_SECONDS = 12 * 3600
"""A shorter time is read from the counter itself: the copy lags by up to four minutes."""
_COUNTED = f'timestamp({names.COUNTER}{{{names.EVENT}="{names.TOTAL}"}})'
# A threshold that was changed in the last hour has left a series with the earlier one.
_AGE_QUERY = f"time() - max without ({names.THRESHOLD}) ({_COUNTED} or max_over_time({_COUNTED}[1h:1m]))"
_UNKNOWN = Matchers((f'alertname=~"{names.UNKNOWN_ALERT}|{names.UNMEASURED_ALERT}"', 'alertstate="firing"'))
_VANISHED = f"""\
time() - min by (cluster, model) (
  {names.ALERTS}_FOR_STATE{Matchers().equal("alertname", names.UNKNOWN_ALERT)}
  or 0 * (last_over_time({names.MODEL_EXPECTED_COPY}[15m]) == 1 unless on (cluster, instance) {state.MODEL_EXPECTED}) + time()
) unless on (cluster, model) ({state.MODEL_EXPECTED} or last_over_time({state.MODEL_EXPECTED}[1m]))"""
"""The models that no server has reported for a minute, of those that it should serve, and for how long that is known.

The alert about them comes, and ends, minutes later.
"""

_NOT_SERVED = f"""\
max by (model) ({state.MODEL_READY}) == 0
unless on (model) ({state.MODEL_STATE}{{state="unknown"}} == 1 and on (cluster, instance) {state.SERVER_LIVE} == 1)
unless on (model) ({MAYBE_READY})"""
"""The models that no server has ready: neither one whose exporter is silent, nor one of which only metrics are read."""

_READY = (
    f'{names.SERVERS_NOW}{{{names.RECORDED_HERE}, {names.EVENT}="{names.ERROR}"}} == 0 '
    f'and ignoring ({names.EVENT}) {names.SERVERS_NOW}{{{names.EVENT}="{names.TOTAL}"}} > 0'
)
"""The groups that every server has ready that should; a comparison keeps the name of the series."""


def read_status(
    prometheus: Prometheus, at: float | None = None, time_scale: float = 1.0
) -> tuple[GroupStatus, ...]:
    """Return the status of every recorded objective now (or at Unix time `at`), the most urgent first.

    `time_scale` is that of the rules.

    Every objective whose rules are loaded has a row; without rows no rules are loaded. Raises PrometheusError,
    also when Prometheus does not scrape the exporter.
    """
    samples = prometheus.instant_with_all(SELECTOR, at)
    if not samples:
        _require_exporter(prometheus, at)
    answered = prometheus.instant(f"{_AGE_QUERY} or {_NOT_SERVED} or {_READY}", at)
    others = [sample for sample in answered if "__name__" not in sample.labels]
    more = (
        *(sample for sample in answered if "__name__" in sample.labels),
        *_named(AGE, [sample for sample in others if names.SLO in sample.labels]),
        *_named(NOT_SERVED, [sample for sample in others if names.SLO not in sample.labels]),
        *_unknown(prometheus, samples, at),
        *_of_calendars(prometheus, samples, at),
        *_just_begun(prometheus, samples, at),
    )
    return group_statuses((*samples, *more), time_scale)


def since_query(own: Matchers) -> str:
    """Return PromQL for the Unix time since which groups are counted.

    It is recorded every four minutes only: a group without it is as old as what it has counted of the last five.
    """
    counted = f"timestamp({names.COUNTER}{own.equal(names.EVENT, names.TOTAL)})[5m:15s]"
    return (
        f"last_over_time({names.COUNTER_SINCE}{own}[1d]) "
        f"or min without ({names.EVENT}) (min_over_time({counted}))"
    )


def _just_begun(prometheus: Prometheus, samples: Sequence[Sample], at: float | None) -> Iterator[Sample]:
    """Yield since when groups are counted of which that is not recorded yet."""

    def group(sample: Sample) -> tuple[str, names.GroupLabels]:
        return sample.labels.get(names.SLO, ""), names.group_of(sample.labels)

    counted, known = (
        {group(sample) for sample in samples if sample.labels.get("__name__") == name}
        for name in (names.COUNTER, names.COUNTER_SINCE)
    )
    if counted - known:
        since = prometheus.instant(since_query(Matchers((names.RECORDED_HERE,))), at)
        yield from _named(names.COUNTER_SINCE, [sample for sample in since if group(sample) not in known])


def _named(name: str, samples: Sequence[Sample]) -> Iterator[Sample]:
    for sample in samples:
        yield Sample({**sample.labels, "__name__": name}, sample.value, sample.at)


def _unknown(prometheus: Prometheus, samples: Sequence[Sample], at: float | None) -> Iterator[Sample]:
    """Yield for how long nothing is known, and for how long in the longest period alerts said so."""
    unmeasured = Matchers().equal("alertname", names.UNMEASURED_ALERT)
    since = f"time() - {names.ALERTS}_FOR_STATE{unmeasured} or {_VANISHED}"
    yield from _named(UNKNOWN_SECONDS, prometheus.instant(since, at))
    days = [sample.value for sample in samples if sample.labels.get("__name__") == names.PERIOD_DAYS]
    seconds = round(max(days, default=30.0) * 86400)
    counted = f"count_over_time({names.ALERTS}{_UNKNOWN}[{seconds}s:{_UNKNOWN_STEP_SECONDS}s])"
    yield from _named(UNKNOWN_TIME, prometheus.instant(f"{counted} * {_UNKNOWN_STEP_SECONDS}", at))


def _of_calendars(prometheus: Prometheus, samples: Sequence[Sample], at: float | None) -> Iterator[Sample]:
    """Yield the budget left of calendar windows, which no rule can know: PromQL knows no time zone."""
    for info in samples:
        window = calendar_window(info.labels.get("window", ""))
        if info.labels.get("__name__") == names.INFO and window is not None:
            period = period_at(window, info.at)
            labels = {name: info.labels[name] for name in (names.SLO, names.INDICATOR) if name in info.labels}
            yield Sample({**labels, "__name__": PERIOD_START}, period.start, info.at)
            yield Sample({**labels, "__name__": PERIOD_END}, period.end, info.at)
            query = calendar_budget(window, Matchers().equal(names.SLO, labels[names.SLO]), info.at)
            yield from _named(names.PERIOD_BUDGET_REMAINING, prometheus.instant(query, at))


def calendar_budget(window: CalendarWindow, own: Matchers, at: float) -> str:
    """Return PromQL for the share of the budget that is left of the calendar period that contains a Unix time."""
    passed = max(60, round(at - period_at(window, at).start))
    counter = names.COPY if passed >= _COPY_FROM_SECONDS else names.COUNTER
    error, total = (
        f"increase({counter}{own.equal(names.EVENT, event)}[{passed}s])"
        for event in (names.ERROR, names.TOTAL)
    )
    return f"1 - {error} / ignoring ({names.EVENT}) ({total} > 0) / {names.ERROR_BUDGET_RATIO}{own}"


def _require_exporter(prometheus: Prometheus, at: float | None) -> None:
    if prometheus.instant(f"count({state.UP})", at):
        return
    if at is None:
        raise PrometheusError(
            f"Prometheus has no series of the exporter: does it scrape job {EXPORTER_JOB}, "
            "and is the exporter up?"
        )
    raise PrometheusError(
        f"Prometheus has no series of the exporter at {utc_text(at)}: did it scrape job {EXPORTER_JOB} then, "
        "and does it keep samples for so long (--storage.tsdb.retention.time)?"
    )
