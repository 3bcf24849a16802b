"""Exclusions that are valid and have no use: they exclude all time, repeat another one, or have ended."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from triton_exporter.common.duration import DAY
from triton_slo.expression import always_answers, our_series
from triton_slo.indicators import ALERTS
from triton_slo.indicators.indicator import FieldFinding
from triton_slo.objective.exclusion import Exclusion, Span, clipped, merged
from triton_slo.objective.model import Objective

_WINTER, _SUMMER = 1_767_571_200, 1_783_296_000
"""Mondays of January and July 2026: in a week of each, every recurring exclusion shows when it applies."""


def exclusion_findings(objective: Objective) -> Iterator[FieldFinding]:
    """Yield mistakes in an objective's exclusions."""
    for index, exclusion in enumerate(objective.exclusions):
        for reason, fix in _query_findings(exclusion.promql or ""):
            yield f"exclusions.{index}.promql", reason, fix
        if exclusion.start is not None and exclusion.days is None:
            length = exclusion.span[1] - exclusion.span[0]
            if length >= objective.window.seconds:
                reason = f"leaves out {length / DAY:.0f} days, as long as the objective's window or longer"
                yield f"exclusions.{index}", reason, "check its year, or drop the objective"
        for moment in exclusion.ambiguous():
            reason = f"the clocks of {exclusion.timezone} show {moment} twice; the first of the two is taken"
            yield f"exclusions.{index}", reason, "write both moments with their offset, such as +01:00"
    for (first, exclusion), (second, other) in combinations(enumerate(objective.exclusions), 2):
        if _overlap(exclusion, other):
            reason = f"overlaps with exclusions.{first} ({exclusion.reason})"
            yield (
                f"exclusions.{second}",
                reason,
                "time does not count only once: merge them, or check the days",
            )


def _query_findings(text: str) -> Iterator[tuple[str, str]]:
    if not text:
        return
    try:
        ours, always = sorted(set(our_series(text, ALERTS))), always_answers(text)
    except RecursionError:
        yield "nested too deeply to be checked", "record a part of it by a rule"
        return
    if ours:
        reason = f"reads {ours[0]}, which is made of objectives and stops while time does not count: a circle"
        yield reason, "read what announces the maintenance, not what it does to the SLI"
    elif always:
        reason = "has a result for as long as its series exist, or always: then nothing ever counts"
        yield reason, "write a comparison that is true during it, as in maintenance_announced == 1"


def ended_exclusions(objective: Objective, now: float | None) -> Iterator[FieldFinding]:
    """Yield exclusions that ended before a Unix time; without one, none."""
    for index, exclusion in enumerate(objective.exclusions):
        if (
            now is not None
            and exclusion.start is not None
            and exclusion.days is None
            and exclusion.span[1] <= now
        ):
            reason = "has ended; only backtest and replay still use it"
            yield f"exclusions.{index}", reason, "remove it, unless you replay that time"


def _overlap(exclusion: Exclusion, other: Exclusion) -> bool:
    """Return whether two of a kind overlap, or a weekly one contains all of a single one."""
    if exclusion.promql is not None or other.promql is not None:
        return exclusion.promql == other.promql
    if exclusion.days is None and other.days is None:
        return bool(list(clipped([exclusion.span], *other.span)))
    if exclusion.days is not None and other.days is not None:
        return any(
            _any_inside(list(exclusion.spans(week, week + 8 * DAY)), other) for week in (_WINTER, _SUMMER)
        )
    once, weekly = (exclusion, other) if exclusion.days is None else (other, exclusion)
    return merged(weekly.spans(*once.span)) == [once.span]


def _any_inside(spans: list[Span], other: Exclusion) -> bool:
    return any(list(other.spans(low, high)) for low, high in spans)
