"""Unknown time that counts as failed, worked out from source series where no rules record it.

What the rules know from evaluation to evaluation is asked of Prometheus over the whole period: when a group had
data, when its requests were stuck, when its prober said nothing. A group's pace is its mean while it was known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from triton_exporter.catalogue import state
from triton_slo.duration import parse_seconds
from triton_slo.indicators import Measure
from triton_slo.objective.exclusion import Span, clipped, merged
from triton_slo.prometheus import Prometheus, Series
from triton_slo.promql import by, on
from triton_slo.rules.plan import Plan
from triton_slo.rules.unknown import FORGET, MIN_SCRAPES, stuck
from triton_slo.verdict.excluded_time import counted_spans

Group = tuple[tuple[str, str], ...]
Rates = dict[Group, float]

_WATCHING = "group (up)"
"""Series that Prometheus itself writes at each scrape, also at one that fails."""
_STEP_SECONDS = 60.0
_MOST_POINTS = 10_000


@dataclass(frozen=True)
class UnknownTime:
    """Per group: spans without any data, those of them that count as failed, and failed spans with data.

    `pace` is events a second while a group is known; `otherwise` where nobody knows it.
    """

    gaps: Mapping[Group, list[Span]]
    gone: Mapping[Group, list[Span]]
    still: Mapping[Group, list[Span]]
    pace: Rates
    otherwise: float
    sampled: bool

    def count(self, totals: Rates, errors: Rates, start: float, end: float) -> tuple[Rates, Rates]:
        """Events and failed events a second in a stretch of time, with its unknown part as failed."""
        found: tuple[Rates, Rates] = {}, {}
        for group in {**totals, **dict.fromkeys(self.gone), **dict.fromkeys(self.still)}:
            gap, gone, still = (
                _share(spans.get(group, ()), start, end) for spans in (self.gaps, self.gone, self.still)
            )
            pace = self.pace.get(group, 0.0) or self.otherwise
            # The mean of what is looked at is over the time with data; a counter's is over all time.
            known = 1 - gap if self.sampled else 1.0
            standing = 0.0 if self.sampled else still
            found[0][group] = totals.get(group, 0.0) * known + pace * (gone + standing)
            found[1][group] = errors.get(group, 0.0) * known + pace * (gone + still)
        return found


def unknown_time(
    prometheus: Prometheus, plan: Plan, measure: Measure, start: float, end: float, mean: Rates
) -> UnknownTime:
    """Look when groups were unknown between two Unix times; `mean` is their events a second over that time."""
    assert measure.unseen is not None
    step = max(_STEP_SECONDS * min(1.0, plan.options.time_scale * 10), (end - start) / _MOST_POINTS)
    after = plan.clock.real(plan.objective.unknown.after, MIN_SCRAPES)
    forget = parse_seconds(FORGET) * plan.options.time_scale
    gaps: dict[Group, list[Span]] = {}
    gone: dict[Group, list[Span]] = {}
    # While Prometheus itself was away no rule was evaluated, and none would have counted anything.
    away = [
        span
        for series in prometheus.range(_WATCHING, start, end, step)
        for span in _without(series, step, end)
    ]
    for series in prometheus.range(_known(plan, measure), start, end, step):
        group, without = _group(series.labels), _without(series, step, end)
        gaps[group] = list(clipped([(start, series.times[0]), *without], start, end))
        lost = [(last + after, min(following, last + forget)) for last, following in without]
        gone[group] = [
            part for low, high in lost if low < high for part in counted_spans(away, low, min(high, end))
        ]
    still = _while(prometheus, _standing(plan, measure), start, end, step)
    sampled = measure.counted is None
    shares = {
        group: _share(merged([*gaps.get(group, []), *still.get(group, [])]), start, end) for group in mean
    }
    pace = {
        group: rate if sampled else rate / (1 - shares[group])
        for group, rate in mean.items()
        if shares[group] < 1
    }
    return UnknownTime(gaps, gone, still, pace, measure.unseen / plan.options.time_scale, sampled)


def _without(series: Series, step: float, end: float) -> list[Span]:
    """Spans between two looks that were answered, in which others were not."""
    return [(last, then) for last, then in pairwise((*series.times, end + step)) if then - last > 1.5 * step]


def _known(plan: Plan, measure: Measure) -> str:
    """Groups that have data, or are known to have none because they were unloaded on purpose."""
    labels = plan.objective.group_by
    if not {"model", "version"} <= set(labels):
        return measure.presence
    unloaded = plan.source_matchers.choosing("model", plan.objective.models).also(
        'state=~"unloaded|unloading"'
    )
    return f"{measure.presence} or {on(labels)} group {by(labels)} ({state.MODEL_STATE}{unloaded} == 1)"


def _standing(plan: Plan, measure: Measure) -> list[str]:
    after = plan.clock.text(plan.objective.unknown.after, MIN_SCRAPES)
    found = [stuck(plan)] if measure.stuck else []
    return found + ([f"{measure.silent(after)}{_unless_unloaded(plan)}"] if measure.silent else [])


def _unless_unloaded(plan: Plan) -> str:
    """What was unloaded on purpose is not missed; a group of many versions cannot be told apart so."""
    both = ("model", "version")
    if not set(both) <= set(plan.objective.group_by):
        return ""
    chosen = plan.source_matchers.choosing("model", plan.objective.models)
    unloaded = chosen.also('state=~"unloaded|unloading"')
    return f" unless {on(both)} (max {by(both)} ({state.MODEL_STATE}{unloaded}) == 1)"


def _while(
    prometheus: Prometheus, queries: Iterable[str], start: float, end: float, step: float
) -> dict[Group, list[Span]]:
    found: dict[Group, list[Span]] = {}
    for query in queries:
        for series in prometheus.range(query, start, end, step):
            spans = [(at - step / 2, at + step / 2) for at in series.times]
            found.setdefault(_group(series.labels), []).extend(clipped(spans, start, end))
    return {group: merged(spans) for group, spans in found.items()}


def _share(spans: Iterable[Span], start: float, end: float) -> float:
    return sum(high - low for low, high in clipped(list(spans), start, end)) / (end - start)


def _group(labels: Mapping[str, str]) -> Group:
    return tuple(sorted((key, value) for key, value in labels.items() if key != "__name__"))
