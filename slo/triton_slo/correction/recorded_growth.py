"""Read what the rules recorded of groups: their budget now, and how their events grew over past time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from triton_exporter.common.duration import DAY, parse_seconds
from triton_slo import names
from triton_slo.correction.group_correction import CorrectionError, PeriodBudget, SumLabels
from triton_slo.objective.exclusion import Span
from triton_slo.objective.model import TILE
from triton_slo.prometheus.client import Prometheus, Sample, query_ranges
from triton_slo.promql import Matchers, open_range

Floats = npt.NDArray[np.float64]
_REACH_TILES = 72
"""Six hours: the longest pause of the rules at an end of a time range over which events can be distributed."""


@dataclass(frozen=True, slots=True)
class ScaledLengths:
    """Lengths of time as the rules have them: a time scale multiplies all but calendar periods."""

    scale: float = 1.0

    @property
    def tile(self) -> float:
        """Seconds of the tiles that corrections are written in."""
        return float(max(1, round(parse_seconds(TILE) * self.scale)))

    @property
    def hour(self) -> float:
        """Seconds of events that a sum begins with."""
        return 3600 * self.scale

    def edges(self, span: Span) -> Floats:
        """Return both ends of a time range, and the whole tiles between."""
        start, end = span
        first, last = np.floor(start / self.tile) + 1, np.ceil(end / self.tile)
        return np.array([start, *(self.tile * np.arange(first, last)), end])


@dataclass(frozen=True, slots=True)
class CorrectableGroup:
    """One group as its rules record it now.

    `labels` are those of its sum, which runs since `since`. Events before `period_start` do not count. With
    `calendar`, the period begins again with the calendar.
    """

    labels: SumLabels
    since: float
    period_start: float
    calendar: bool
    budget: PeriodBudget


@dataclass(frozen=True, slots=True)
class Growth:
    """A group's cumulated errors and events at rising times; between two of them they grow evenly."""

    times: Floats
    error: Floats
    total: Floats

    def at(self, edges: Floats) -> tuple[Floats, Floats]:
        """Return errors and events at these times, never falling."""
        error, total = (np.interp(edges, self.times, values) for values in (self.error, self.total))
        return np.maximum.accumulate(error), np.maximum.accumulate(total)


def recorded_groups(
    prometheus: Prometheus, chosen: Matchers, now: float, lengths: ScaledLengths
) -> tuple[CorrectableGroup, ...]:
    """Return the groups whose rules are loaded, in the order of their labels. Raises PrometheusError."""
    of_objective = chosen.within([names.SLO, names.INDICATOR]).also(names.RECORDED_HERE)
    infos = {info.labels[names.SLO]: info for info in prometheus.instant(f"{names.INFO}{of_objective}", now)}
    starts, days = (
        {
            sample.labels[names.SLO]: sample.value
            for sample in prometheus.instant(f"{name}{of_objective}", now)
        }
        for name in (names.PERIOD_START, names.PERIOD_DAYS)
    )
    chosen = chosen.also(names.RECORDED_HERE)
    targets = {
        _group_labels(sample.labels): sample.value
        for sample in prometheus.instant(f"{names.OBJECTIVE_RATIO}{chosen}", now)
    }
    events: dict[SumLabels, dict[str, float]] = defaultdict(dict)
    for sample in _period_events(prometheus, chosen, infos.values(), now, lengths):
        events[_group_labels(sample.labels)][sample.labels[names.EVENT]] = sample.value
    groups = []
    for sample in prometheus.instant(f"{names.SLI_EVENTS_SINCE}{chosen}", now):
        key, slo = _group_labels(sample.labels), sample.labels[names.SLO]
        bare = tuple(pair for pair in key if pair[0] in (names.SLO, names.INDICATOR))
        target = targets.get(key, targets.get(bare))
        if slo not in infos or target is None or events[key].keys() != {names.ERROR, names.TOTAL}:
            continue
        calendar_start = starts.get(slo)
        period_start, passed = now - _window_seconds(infos[slo], lengths), 1.0
        if calendar_start is not None:
            period_start = calendar_start
            passed = min(1.0, (now - calendar_start) / max(1.0, days[slo] * DAY))
        budget = PeriodBudget(events[key][names.ERROR], events[key][names.TOTAL], target, passed)
        groups.append(CorrectableGroup(key, sample.value, period_start, calendar_start is not None, budget))
    return tuple(sorted(groups, key=lambda group: group.labels))


def growths(
    prometheus: Prometheus,
    chosen: Matchers,
    groups: Sequence[CorrectableGroup],
    span: Span,
    now: float,
    lengths: ScaledLengths,
) -> dict[SumLabels, Growth]:
    """Return how the events of groups grew around a time range, as their sums and their history have it.

    Raises PrometheusError; CorrectionError where the rules recorded nothing at one end of it.
    """
    grid = _grid(span, now, lengths)
    points: dict[SumLabels, _Points] = defaultdict(_Points)
    for event in (names.ERROR, names.TOTAL):
        sums = f"{names.SLI_EVENTS_SUM}{chosen.also(names.RECORDED_HERE).equal(names.EVENT, event)}"
        for first, last in query_ranges(*grid, lengths.tile):
            for series in prometheus.range(sums, first, last, lengths.tile):
                points[_group_labels(series.labels)].put(event, zip(series.times, series.values, strict=True))
        # A sum that begins within the time range has its events from there on, not spread over the hour before.
        for edge in {*span, *(group.since for group in groups if span[0] < group.since < span[1])}:
            for sample in prometheus.instant(sums, edge):
                points[_group_labels(sample.labels)].put(event, [(edge, sample.value)])
    earlier = [group.since - lengths.hour for group in groups]
    if earlier and span[0] < max(earlier):
        _add_history(prometheus, chosen, points, span, max(group.since for group in groups), lengths)
    return {group.labels: _growth(group, points[group.labels], span, lengths) for group in groups}


@dataclass(slots=True)
class _Points:
    sums: dict[str, dict[float, float]] = field(default_factory=lambda: defaultdict(dict))
    history: dict[str, dict[float, float]] = field(default_factory=lambda: defaultdict(dict))

    def put(self, event: str, points: Iterable[tuple[float, float]]) -> None:
        self.sums[event].update(points)


def _add_history(
    prometheus: Prometheus,
    chosen: Matchers,
    points: dict[SumLabels, _Points],
    span: Span,
    until: float,
    lengths: ScaledLengths,
) -> None:
    """Read the events of before the sums began, which a replay has written."""
    tile = lengths.tile
    first, last = np.floor(span[0] / tile) * tile, np.ceil(until / tile) * tile
    for event in (names.ERROR, names.TOTAL):
        written = f"{names.SLI_EVENTS_CORRECTION}{chosen.also(names.RECORDED_HERE).equal(names.EVENT, event)}"
        query = f"sum without ({names.CORRECTION}) (sum_over_time({written}[{open_range(tile)}]))"
        for low, high in query_ranges(float(first), float(last), tile):
            for series in prometheus.range(query, low, high, tile):
                into = points[_group_labels(series.labels)].history[event]
                into.update(zip(series.times, series.values, strict=True))


def _growth(group: CorrectableGroup, points: _Points, span: Span, lengths: ScaledLengths) -> Growth:
    """Join history and sum: the sum begins with the events of the hour before, or where the history ends later."""
    began = group.since - lengths.hour
    if any(at > began + lengths.tile for at in points.history[names.TOTAL]):
        began = group.since
    times = sorted(
        at for at in points.sums[names.TOTAL].keys() & points.sums[names.ERROR].keys() if at >= group.since
    )
    start, end = max(span[0], group.period_start), span[1]
    reaches = bool(times) and times[0] <= max(start, group.since + lengths.tile) and times[-1] >= end
    if end > began and not reaches:
        raise CorrectionError(
            f"the rules of {_group_words(group)} recorded nothing around the start or the end of the time range; "
            "choose times at which they ran"
        )

    def cumulated(event: str) -> tuple[Floats, Floats]:
        history = [(at, value) for at, value in points.history[event].items() if at <= began]
        return _cumulated(history, began, [(at, points.sums[event][at]) for at in times], lengths.tile)

    at, total = cumulated(names.TOTAL)
    error = np.interp(at, *cumulated(names.ERROR))
    return Growth(at, error, total)


def _cumulated(
    history: list[tuple[float, float]], began: float, sums: list[tuple[float, float]], tile: float
) -> tuple[Floats, Floats]:
    times, values = [began], [0.0]
    for at, events in sorted(history, reverse=True):
        # Tiles that follow one another share their edge; where one is missing, nothing happened.
        if at < times[-1]:
            times.append(at)
            values.append(values[-1])
        times.append(at - tile)
        values.append(values[-1] - events)
    times, values = times[::-1], values[::-1]
    return np.array([*times, *(at for at, _ in sums)]), np.array([*values, *(value for _, value in sums)])


def _grid(span: Span, now: float, lengths: ScaledLengths) -> Span:
    tile, reach = lengths.tile, _REACH_TILES * lengths.tile
    first = np.floor((span[0] - reach) / tile) * tile
    return float(first), float(min(np.ceil((span[1] + reach) / tile) * tile, np.floor(now / tile) * tile))


def _period_events(
    prometheus: Prometheus, chosen: Matchers, infos: Collection[Sample], now: float, lengths: ScaledLengths
) -> Iterator[Sample]:
    """Yield the events of each group's period."""
    yield from prometheus.instant(f"{names.PERIOD_EVENTS_COUNTED}{chosen}", now)
    for window in sorted({info.labels.get("window", "") for info in infos}):
        if (seconds := _rolling_seconds(window)) is None:
            continue
        slos = [info.labels[names.SLO] for info in infos if info.labels.get("window") == window]
        rates = prometheus.instant(f"{names.sli_events(window)}{chosen}", now)
        for sample in rates:
            if sample.labels[names.SLO] in slos:
                yield Sample(sample.labels, sample.value * seconds * lengths.scale, sample.at)


def _window_seconds(info: Sample, lengths: ScaledLengths) -> float:
    return (_rolling_seconds(info.labels.get("window", "")) or 0.0) * lengths.scale


def _rolling_seconds(window: str) -> float | None:
    try:
        return parse_seconds(window)
    except ValueError:  # a calendar window: `month, Europe/Berlin`
        return None


def _group_labels(labels: Mapping[str, str]) -> SumLabels:
    left_out = ("__name__", names.EVENT, names.CORRECTION)
    return tuple(sorted((name, value) for name, value in labels.items() if name not in left_out))


def _group_words(group: CorrectableGroup) -> str:
    values = dict(group.labels)
    return " ".join(
        (values.pop(names.SLO), *(value for name, value in values.items() if name != names.INDICATOR))
    )
