"""Compute a correction that removes a past time range from the budgets."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from triton_slo import names
from triton_slo.correction.group_correction import ALWAYS, CorrectionError, GroupCorrection, Tile
from triton_slo.correction.recorded_growth import (
    CorrectableGroup,
    Floats,
    Growth,
    ScaledLengths,
    growths,
    recorded_groups,
)
from triton_slo.objective.exclusion import Span
from triton_slo.prometheus.client import Prometheus
from triton_slo.promql import Matchers, open_range


def excluding(
    prometheus: Prometheus, chosen: Matchers, span: Span, now: float, lengths: ScaledLengths
) -> tuple[GroupCorrection, ...]:
    """Return the corrections that remove the events of a time range from the budgets of groups that had some.

    `chosen` are matchers of the groups on their recorded labels. Raises PrometheusError, and CorrectionError where
    there are no such groups, where their period does not reach back so far, or where it is corrected already.
    """
    groups = recorded_groups(prometheus, chosen, now, lengths)
    if not groups:
        raise CorrectionError(
            "no events of these objectives and models are recorded; tritonwatch status lists what is recorded"
        )
    affected = [group for group in groups if group.period_start < span[1]]
    if not affected:
        raise CorrectionError("no period that is counted now reaches back so far: no budget would change")
    _refuse_second_exclusion(prometheus, chosen, span)
    grown = growths(prometheus, chosen, affected, span, now, lengths)
    corrections = (_correction(group, grown[group.labels], span, lengths) for group in affected)
    return tuple(correction for correction in corrections if correction is not None)


def _refuse_second_exclusion(prometheus: Prometheus, chosen: Matchers, span: Span) -> None:
    """Raise CorrectionError if a correction that was not undone removed events of the time range."""
    reach = f"[{open_range(span[1] - span[0])}]"
    total = chosen.also(names.RECORDED_HERE).equal(names.EVENT, names.TOTAL)
    written = f"{names.SLI_EVENTS_CORRECTION}{total}{reach}"
    net = f"sum without ({names.CORRECTION}) (sum_over_time({written})) < 0"
    of = f"count by ({names.CORRECTION}) (min_over_time({written}) < 0)"
    if prometheus.instant(net, span[1]):
        ids = ", ".join(sorted(sample.labels[names.CORRECTION] for sample in prometheus.instant(of, span[1])))
        raise CorrectionError(
            f"a part of this time is corrected already, by {ids}; undo that correction first"
        )


def _correction(
    group: CorrectableGroup, growth: Growth, span: Span, lengths: ScaledLengths
) -> GroupCorrection | None:
    start = max(span[0], group.period_start)
    tiles = tuple(_tiles(growth, lengths.edges((start, span[1]))))
    if not tiles:
        return None
    counted_from = max(start, group.since)
    if not group.calendar and span[1] <= group.since - lengths.hour:
        counted_from = ALWAYS  # the events are not in the sum, but in what a replay has added
    if group.calendar:
        counted_from = start
    return GroupCorrection(group.labels, counted_from, tiles, group.budget, group.budget.changed(tiles))


def _tiles(growth: Growth, edges: Floats) -> Iterator[Tile]:
    error, total = growth.at(edges)
    for end, failed, every in zip(edges[1:], np.diff(error), np.diff(total), strict=True):
        if every > 0:
            yield Tile(float(end), -min(float(failed), float(every)), -float(every))
