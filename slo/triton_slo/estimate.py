"""Estimates: which groups have one, what it does to an objective, and what would settle it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from triton_exporter.catalogue import triton
from triton_exporter.common.duration import time_text
from triton_exporter.common.printable import listed
from triton_slo import names
from triton_slo.amounts import budget_left
from triton_slo.canary import Comparison
from triton_slo.fields import error_budget
from triton_slo.group_status import GroupStatus, either_way, group_name, points
from triton_slo.indicators import indicator_class
from triton_slo.plan import Plan
from triton_slo.prometheus import Prometheus
from triton_slo.sources import CAVEATS, HIDING, Caveat


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """A wrong setting because of which nothing is known of some groups, and what to change."""

    reason: str
    fix: str
    groups: tuple[str, ...]


def unmeasured(prometheus: Prometheus, plan: Plan, at: float | None = None) -> Iterator[Unmeasured]:
    """Yield the wrong settings of which an objective has groups, now or at a Unix time. Raises PrometheusError."""
    groups_by_fix: dict[tuple[str, str], list[str]] = defaultdict(list)
    for setting in plan.measure.wrong_settings:
        groups = [group_name(sample.labels) for sample in prometheus.instant(setting.expr, at)]
        groups_by_fix[setting.words, setting.fix] += groups
    for (words, fix), groups_of_fix in groups_by_fix.items():
        if groups_of_fix:
            yield Unmeasured(words, fix, tuple(sorted(groups_of_fix)))


def bucket_bounds(prometheus: Prometheus, plan: Plan, at: float | None = None) -> Iterator[tuple[float, int]]:
    """Yield the bounds (seconds) that an objective's histogram has, and of how many groups, now or at a Unix time."""
    query, unit = plan.objective.indicator.buckets(plan.scope)
    counted: dict[float, int] = defaultdict(int)
    for sample in prometheus.instant(f"count by (le) (\n{query}\n)", at) if query else ():
        try:
            edge = float(sample.labels.get("le", "+Inf"))
        except ValueError:  # of a peer's series
            continue
        # Written as 1 and as 1.0 by two versions of a server: the same bucket.
        counted[round(edge * unit, 9)] += int(sample.value)
    yield from ((edge, groups) for edge, groups in sorted(counted.items()) if 0 < edge < float("inf"))


def fed_groups(prometheus: Prometheus, plan: Plan, at: float | None = None) -> Iterator[GroupStatus]:
    """Yield each group of an objective that may be estimated: its sources, target, error, and if it is idle.

    Now, or at a Unix time. Raises PrometheusError.
    """
    measure = plan.measure
    if not measure.possible_sources & (CAVEATS.keys() - HIDING):
        return
    sources: dict[names.GroupLabels, set[str]] = defaultdict(set)
    for expr, fixed in measure.sources:
        for sample in () if fixed in HIDING else prometheus.instant(expr, at):
            labels = dict(sample.labels)
            source = labels.pop(names.SOURCE, fixed)
            sources[tuple(sorted(labels.items()))].add(source)
    estimated = measure.estimate_error
    asked = prometheus.instant(estimated(plan.clock.text("1h")), at) if estimated else ()
    errors = {tuple(sorted(sample.labels.items())): sample.value for sample in asked}
    requests = plan.scope.rate(triton.REQUEST_SUCCESS, plan.clock.text("1h"))
    busy = {tuple(sorted(sample.labels.items())) for sample in prometheus.instant(f"{requests} > 0", at)}
    for group, of_group in sources.items():
        labels = dict(group)
        resolved = plan.objective.resolve(labels.get("model", ""), labels.get("version", ""))
        yield GroupStatus(
            plan.objective.name,
            plan.objective.indicator.kind,
            labels,
            target=plan.objective.target if resolved is None else resolved[0],
            sources=tuple(sorted(of_group)),
            estimate_error=errors.get(group),
            idle=group not in busy,
        )


_Z = 1.96
"""Standard deviations that a share measured on traces must be away from the target: 95 %, as stated errors."""
_MAX_TRACES = 1_000_000
_MAX_NAMED = 3


@dataclass(frozen=True, slots=True)
class WorstCase:
    """The worst that an estimate allows: whether it is still good enough, with the words for both cases."""

    error: float
    is_acceptable: bool
    words_if_acceptable: str
    words_if_not: str


def worst_budget(row: GroupStatus, minimum: float) -> WorstCase | None:
    """Return the budget left if the estimate is wrong by its error; None where the error is not known."""
    if row.estimate_error is None or row.target is None or row.budget_left is None:
        return None
    left = row.budget_left - row.estimate_error / error_budget(row.target)
    error = either_way(row.estimate_error)
    if row.budget_not_known_yet:
        return WorstCase(
            row.estimate_error,
            left > minimum,
            f", also at the largest error of the estimate ({error})",
            "at the largest error of the estimate, too much of the budget is spent at the rate of this time",
        )
    return WorstCase(
        row.estimate_error,
        left > minimum,
        f", and {budget_left(left)} at the largest error of the estimate ({error})",
        f"at the largest error of the estimate, the budget left is {budget_left(left)}",
    )


def worst_comparison(
    comparison: Comparison, canary: GroupStatus, baseline: GroupStatus | None
) -> WorstCase | None:
    """Return the difference of two versions if both estimates are wrong; None where an error is not known."""
    errors = [status.estimate_error for status in (canary, baseline) if status is not None and status.caveats]
    known = [error for error in errors if error is not None]
    if baseline is None or len(known) < len(errors):
        return None
    error = sum(known)
    return WorstCase(
        error,
        comparison.high + error <= comparison.margin,
        f", also at the largest error of the estimates ({either_way(error)})",
        f"the real difference may be larger by this error, and only {points(comparison.margin)} are allowed "
        "(--margin)",
    )


def settled_by(row: GroupStatus, source: str) -> str:
    """Return the flag or the traces that would show whether an estimated objective is met."""
    if row.threshold_seconds is None:
        return CAVEATS[source].settled_by
    needed = _traces_needed(row)
    requests = f"{needed:,} request{'s' if needed > 1 else ''}" if needed else "requests"
    traces = (
        f"let Triton trace {requests} (exporter --otlp-listen; "
        "`tritonwatch doctor` gives Triton's flags and a rate)"
    )
    native = indicator_class(row.indicator).exact_with(time_text(row.threshold_seconds))
    return f"on {native}; on an older Triton: {traces}" if native else traces


def _traces_needed(row: GroupStatus) -> int:
    """Return how many traced requests show on which side of the target the share is; 0 where too many would."""
    if row.sli is None or row.target is None or row.sli == row.target:
        return 0
    needed = math.ceil(_Z**2 * row.target * (1 - row.target) / (row.sli - row.target) ** 2)
    return needed if needed <= _MAX_TRACES else 0


def is_precise_enough(row: GroupStatus, source: str) -> bool:
    """Return whether the error of a source with a caveat is at most the share of events that may fail."""
    known = source not in HIDING and row.estimate_error is not None and row.target is not None
    return known and (row.estimate_error or 0.0) <= error_budget(row.target or 0.0)


def uncertainties(
    rows: Iterable[GroupStatus], name: Callable[[GroupStatus], str]
) -> Iterator[tuple[str, Caveat]]:
    """Yield per source with a caveat the groups whose numbers it feeds, and the caveat.

    Every group for which the source is not precise enough is named; of the others three. Groups without any event
    have no share.
    """
    by_source: dict[tuple[str, bool], list[GroupStatus]] = {}
    for row in rows:
        for source in () if row.idle and row.budget_left is None else row.caveats:
            by_source.setdefault((source, is_precise_enough(row, source)), []).append(row)
    for (source, precise), members in by_source.items():
        caveat = CAVEATS[source]
        shown = [name(row) + ("" if precise else _error_words(row)) for row in members]
        imprecise = "" if precise or source in HIDING else ", too uncertain for the target"
        names = listed(shown, _MAX_NAMED if precise else len(shown))
        yield f"{caveat.word} ({source}){imprecise}: {names}", caveat


def _error_words(row: GroupStatus) -> str:
    if row.estimate_error is None or row.target is None:
        return ""
    allowed = f"{100 * error_budget(row.target):.3g} %"
    return f" (error {either_way(row.estimate_error)}; the target allows {allowed} to fail)"
