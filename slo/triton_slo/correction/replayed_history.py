"""Compute the history of an objective from before its rules were loaded, from the series that they read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from triton_slo import names
from triton_slo.backtest.fetch import excluded_spans, source_events
from triton_slo.correction.group_correction import ALWAYS, CorrectionError, GroupCorrection, SumLabels, Tile
from triton_slo.correction.recorded_growth import CorrectableGroup, ScaledLengths, recorded_groups
from triton_slo.objective.exclusion import Span
from triton_slo.prometheus.client import Prometheus, query_ranges
from triton_slo.rules.plan import Plan
from triton_slo.rules.running_sum import step_windows

_Events = Mapping[float, tuple[float, float]]


def replayed(
    prometheus: Prometheus, plan: Plan, now: float, writable_to: float
) -> tuple[GroupCorrection, ...]:
    """Return what gives the groups of an objective their history: the events before their sums began.

    Nothing after Unix time `writable_to` can be written. Raises PrometheusError, and CorrectionError where the
    rules are not loaded, have recorded no events, were loaded too recently, or have that history already.
    """
    lengths = ScaledLengths(plan.options.time_scale)
    slo = plan.objective.name
    groups = recorded_groups(prometheus, plan.own, now, lengths)
    if not groups:
        raise CorrectionError(_why_without_groups(prometheus, plan, now))
    began = {group.labels: _began(plan, group) for group in groups}
    latest = max(began.values())
    if latest > writable_to:
        wait = latest - writable_to
        raise CorrectionError(
            f"the rules of objective {slo} were loaded too recently: try again in {wait / 60:.0f} minutes"
        )
    start = min(group.period_start for group in groups)
    if latest <= start:
        return ()
    _refuse_second_replay(prometheus, plan, now)
    events = _tile_events(prometheus, plan, groups, start, latest, lengths.tile)
    excluded = excluded_spans(plan.objective.exclusions, start, latest, prometheus)
    corrections = (
        _history(group, began[group.labels], events[group.labels], excluded, lengths) for group in groups
    )
    return tuple(correction for correction in corrections if correction is not None)


def _why_without_groups(prometheus: Prometheus, plan: Plan, now: float) -> str:
    slo = plan.objective.name
    if prometheus.instant(f"{names.INFO}{plan.own.also(names.RECORDED_HERE)}", now):
        return (
            f"the rules of objective {slo} are loaded, but have recorded no events yet, so there is no group to add"
            " history to; wait until tritonwatch status shows its groups, or choose others with --objective"
        )
    return (
        f"the rules of objective {slo} are not loaded; load them first: history is added to what they record"
    )


def _began(plan: Plan, group: CorrectableGroup) -> float:
    """Return what a group's sum reaches back to: it begins with all that its longest window of counters shows."""
    if not any(plan.measure(variant).events.has_past for variant in plan.variants):
        return group.since
    return group.since - step_windows(plan)[0].seconds


def _refuse_second_replay(prometheus: Prometheus, plan: Plan, now: float) -> None:
    written = f"{names.SLI_EVENTS_CORRECTION}{plan.own.equal(names.EVENT, names.TOTAL)}"
    days = round(plan.period_seconds)
    if prometheus.instant(f"sum without ({names.CORRECTION}) (sum_over_time({written}[{days}s])) > 0", now):
        raise CorrectionError(
            f"objective {plan.objective.name} has its history already; see tritonwatch correct list"
        )


def _tile_events(
    prometheus: Prometheus,
    plan: Plan,
    groups: tuple[CorrectableGroup, ...],
    start: float,
    end: float,
    tile: float,
) -> Mapping[SumLabels, _Events]:
    """Return errors and events of each group's tiles by their end."""
    labels = (*plan.objective.group_by, *plan.fixed_labels)
    wanted = {
        tuple((name, dict(each.labels).get(name, "")) for name in labels): each.labels for each in groups
    }
    counts: dict[SumLabels, dict[float, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    first, last = np.floor(start / tile) * tile + tile, np.floor(end / tile) * tile
    for variant in plan.variants:
        events = source_events(plan, plan.measure(variant), tile)
        for event, expression in ((names.ERROR, events.error), (names.TOTAL, events.total)):
            for low, high in query_ranges(float(first), float(last), tile):
                for series in prometheus.range(expression, low, high, tile):
                    labelled = {**plan.fixed_labels, **series.labels}
                    group = wanted.get(tuple((name, labelled.get(name, "")) for name in labels))
                    for at, value in zip(series.times, series.values, strict=True):
                        if group is not None and value == value:  # not NaN
                            counts[group][at][event] = value * tile
    return {
        group: {
            at: (min(both.get(names.ERROR, 0.0), both[names.TOTAL]), both[names.TOTAL])
            for at, both in sorted(tiles.items())
            if both.get(names.TOTAL, 0.0) > 0
        }
        for group, tiles in ((each.labels, counts[each.labels]) for each in groups)
    }


def _history(
    group: CorrectableGroup, began: float, events: _Events, excluded: list[Span], lengths: ScaledLengths
) -> GroupCorrection | None:
    tiles = tuple(
        Tile(at, error, total)
        for at, (error, total) in events.items()
        if group.period_start <= at - lengths.tile
        and at <= began
        and not any(low < at and at - lengths.tile < high for low, high in excluded)
    )
    if not tiles:
        return None
    counted_from = group.period_start if group.calendar else ALWAYS
    return GroupCorrection(group.labels, counted_from, tiles, group.budget, group.budget.changed(tiles))
