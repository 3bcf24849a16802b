"""Standings of a Prometheus that has no rules of ours: the same expressions, asked raw.

What rules would have recorded is worked out from the source series and given the recorded names, so that one
reading serves both. It costs Prometheus more (a month of every counter), and one thing only rules can know is
left out: since when a group is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from triton_exporter.catalogue import state
from triton_slo import conventions
from triton_slo.artifact import Options
from triton_slo.duration import render
from triton_slo.indicators import Events, Measure
from triton_slo.objective.model import DAY, CalendarWindow
from triton_slo.prometheus import Prometheus, Sample
from triton_slo.promql import on
from triton_slo.rules.causes import cause_rules
from triton_slo.rules.periods import basis, period_at
from triton_slo.rules.plan import Plan, Variant
from triton_slo.rules.retired import IDENTITY, ready, serving
from triton_slo.rules.unknown import MIN_SCRAPES
from triton_slo.rules.windows import MIN_SCRAPES as MIN_SCRAPES_READ
from triton_slo.rules.windows import canonical
from triton_slo.verdict.excluded_time import counted_spans, excluded_spans
from triton_slo.verdict.live import SHOWN_WINDOWS
from triton_slo.verdict.raw_unknown import UnknownTime, unknown_time

_NOW = "5m"
_HOUR = 3600.0
_FINE_SECONDS, _COARSE_SECONDS = 60.0, 300.0
_LONG_SECONDS = 86_400.0
"""Windows longer than this look at states (readiness, means) every five minutes instead of every one."""
_LOOKS = 240
"""At least as many looks are taken at a history that is shorter than its window, if it was scraped as often."""

_Labels = dict[str, str]
_Group = tuple[tuple[str, str], ...]


def samples(prometheus: Prometheus, plans: Sequence[Plan], at: float) -> tuple[Sample, ...]:
    """What our rules would have recorded for these objectives at Unix time `at`. Raises PrometheusError."""
    return tuple(sample for plan in plans for sample in _Asker(prometheus, plan, at).samples())


def causes(prometheus: Prometheus, options: Options, at: float) -> tuple[Sample, ...]:
    """The cause split, which the rules record once for all objectives. Raises PrometheusError."""
    return tuple(
        Sample({**sample.labels, "__name__": rule.record, **rule.labels}, sample.value, at)
        for rule in cause_rules(options)
        for sample in prometheus.instant(rule.expr, at)
    )


def window_events(plan: Plan, measure: Measure, seconds: float, known_seconds: float = math.inf) -> Events:
    """Events per second over a window, from source series alone; of states, as far back as there are any."""
    counted = measure.counted(render(seconds)) if measure.counted else None
    if measure.sampled is None:
        assert counted is not None
        return counted
    span = max(min(seconds, known_seconds), plan.clock.scrape_seconds)
    fineness = plan.clock.scale * (_FINE_SECONDS if span <= _LONG_SECONDS else _COARSE_SECONDS)
    if span < seconds:
        fineness = min(fineness, span / _LOOKS)
    resolution = render(min(max(fineness, plan.clock.scrape_seconds), span))
    sampled = [
        f"avg_over_time((\n{expression}\n)[{render(span)}:{resolution}])"
        for expression in (measure.sampled.error, measure.sampled.total)
    ]
    if counted is None:
        return Events(*sampled)
    both = zip((counted.error, counted.total), sampled, strict=True)
    return Events(*(f"({one})\nor {on(plan.objective.group_by)}\n({other})" for one, other in both))


class _Asker:
    """Asks everything about one objective."""

    def __init__(self, prometheus: Prometheus, plan: Plan, at: float) -> None:
        self._prometheus, self._plan, self._at = prometheus, plan, at
        self._labels = plan.labels
        self._basis = basis(plan, at)
        self._longest = max([self._basis.passed_seconds, *map(plan.clock.real, self._windows())])
        exclusions = plan.objective.exclusions
        self._excluded = (
            excluded_spans(exclusions, at - self._longest, at + 1, prometheus) if exclusions else []
        )
        self._counts_unknown = plan.objective.unknown.policy == "bad"
        self._lost: dict[str, UnknownTime] = {}
        self._first: float | None = None
        self._asked: dict[tuple[str, float], dict[_Group, float]] = {}

    def samples(self) -> Iterator[Sample]:
        yield self._sample(conventions.INFO, {}, 1.0)
        yield from self._period()
        yield from self._exclusions()
        for variant in self._plan.variants:
            yield from self._variant(variant, self._plan.measure(variant))

    def _variant(self, variant: Variant, measure: Measure) -> Iterator[Sample]:
        present = self._ask(measure.presence)
        for group in present:
            yield self._sample(conventions.LAST_SEEN, group, self._at)
        for window in self._windows():
            for group, ratio in self._ratios(measure, self._plan.clock.real(window)).items():
                if ratio is not None:
                    yield self._sample(conventions.sli_error(canonical(window)), group, ratio)
                    if window == _NOW:
                        yield self._sample(conventions.CURRENT_BURN_RATE, group, ratio / (1 - variant.target))
        period = self._ratios(measure, self._basis.passed_seconds)
        for group in {**period, **present}:
            yield self._sample(conventions.OBJECTIVE_RATIO, group, variant.target)
            if variant.threshold is not None:
                yield self._sample(conventions.THRESHOLD_SECONDS, group, variant.threshold)
        yield from self._budgets(period, 1 - variant.target)
        if not self._left_out():
            yield from self._unknown(measure, [group for group in period if group not in present])
        yield from self._sources(measure)

    def _windows(self) -> list[str]:
        """What a table shows and what the tiers look at."""
        tiers = self._plan.objective.alerting.tiers
        return list(dict.fromkeys((_NOW, *SHOWN_WINDOWS, *(w for t in tiers for w in (t.long, t.short)))))

    def _budgets(self, period: Mapping[_Group, float | None], budget: float) -> Iterator[Sample]:
        for group, ratio in period.items():
            if ratio is not None:
                yield self._sample(conventions.PERIOD_BURN_RATE, group, ratio / budget)
                left = 1 - ratio / budget * self._basis.share
                yield self._sample(conventions.PERIOD_BUDGET_REMAINING, group, left)

    def _unknown(self, measure: Measure, gone: Sequence[_Group]) -> Iterator[Sample]:
        unwanted = self._unwanted() if gone else frozenset()
        for group in self._missed(gone):
            labels = dict(group)
            about = labels.get("model", ""), labels.get("version", "")
            if about not in unwanted and (about[0], "") not in unwanted:
                yield self._sample(conventions.UNKNOWN, (*group, (conventions.REASON, "vanished")), 1.0)
        after = self._plan.clock.text(self._plan.objective.unknown.after, MIN_SCRAPES)
        silent = self._ask(measure.silent(after)) if measure.silent else {}
        unwanted = self._unwanted() if silent else frozenset()
        for group in silent:
            labels = dict(group)
            if (labels.get("model", ""), labels.get("version", "")) not in unwanted:
                yield self._sample(conventions.UNKNOWN, (*group, (conventions.REASON, "silent")), 1.0)
        for group in self._ask(measure.no_bucket) if measure.no_bucket else ():
            yield self._sample(conventions.UNKNOWN, (*group, (conventions.REASON, "no_bucket")), 1.0)

    def _missed(self, gone: Sequence[_Group]) -> list[_Group]:
        """Groups without data that others of their model have not replaced."""
        if not gone or "model" not in self._plan.objective.group_by:
            return list(gone)
        replaced = {dict(group).get("model", "") for group in self._ask(ready(self._plan))}
        served = self._ask(serving(self._plan))
        return [
            group
            for group in gone
            if dict(group)["model"] not in replaced
            or tuple(pair for pair in group if pair[0] in IDENTITY) in served
        ]

    def _unwanted(self) -> frozenset[tuple[str, str]]:
        """Versions that were unloaded on purpose, and (with an empty version) models nobody expects."""
        source = self._plan.source_matchers
        unloaded = source.also('state=~"unloaded|unloading"')
        queries = (
            f"max by (model, version) ({state.MODEL_STATE}{unloaded}) == 1",
            f"max by (model) ({state.MODEL_EXPECTED}{source}) == 0",
        )
        return frozenset(
            (sample.labels.get("model", ""), sample.labels.get("version", ""))
            for query in queries
            for sample in self._prometheus.instant(query, self._at)
        )

    def _sources(self, measure: Measure) -> Iterator[Sample]:
        for expression, fixed in measure.sources:
            for group in self._ask(expression):
                label = () if not fixed else ((conventions.SOURCE, fixed),)
                yield self._sample(conventions.SLI_SOURCE, (*group, *label), 1.0)

    def _period(self) -> Iterator[Sample]:
        window = self._plan.objective.window
        seconds = window.seconds
        if isinstance(window, CalendarWindow):
            seconds = self._basis.budget_seconds
            yield self._sample(conventions.PERIOD_START, {}, self._at - self._basis.passed_seconds)
            yield self._sample(conventions.PERIOD_END, {}, period_at(window, self._at).end)
        yield self._sample(conventions.PERIOD_DAYS, {}, seconds / DAY)

    def _ratios(self, measure: Measure, seconds: float) -> dict[_Group, float | None]:
        """Error ratios by group; None where nothing happened."""
        totals, errors = self._totals(measure, seconds)
        return {
            group: min(1.0, max(0.0, errors.get(group, 0.0) / total)) if total > 0 else None
            for group, total in totals.items()
        }

    def _totals(self, measure: Measure, seconds: float) -> tuple[dict[_Group, float], dict[_Group, float]]:
        """Events a second and failed ones over a window, without what exclusions leave out of it."""
        if not self._excluded and not self._counts_unknown:
            return self._stretch(measure, self._at - seconds, self._at)
        found: tuple[dict[_Group, float], dict[_Group, float]] = {}, {}
        # What was scraped last before an exclusion ended still speaks of it.
        lag = self._plan.clock.scrape_seconds
        for start, end in counted_spans(self._excluded, self._at - seconds, self._at, lag):
            if end - start < MIN_SCRAPES_READ * lag:
                continue
            rates = self._stretch(measure, start, end)
            if self._counts_unknown:
                rates = self._unknown_time(measure).count(*rates, start, end)
            for sums, part in zip(found, rates, strict=True):
                for group, rate in part.items():
                    sums[group] = sums.get(group, 0.0) + rate * (end - start) / seconds
        return found

    def _stretch(
        self, measure: Measure, start: float, end: float
    ) -> tuple[dict[_Group, float], dict[_Group, float]]:
        events = window_events(self._plan, measure, end - start, end - self._first_known())
        return self._ask_once(events.total, end), self._ask_once(events.error, end)

    def _first_known(self) -> float:
        """Unix time before which there is nothing, to the hour."""
        if self._first is None:
            # Subqueries look at whole hours.
            up = f"timestamp({state.UP}{self._plan.source_matchers})[{render(self._longest)}:{render(_HOUR)}]"
            found = self._prometheus.instant(f"min(min_over_time({up}))", self._at)
            self._first = (found[0].value if found else self._at) - _HOUR
        return self._first

    def _unknown_time(self, measure: Measure) -> UnknownTime:
        """When the groups of a variant were unknown in the period, asked once."""
        if measure.presence not in self._lost:
            start = self._at - self._longest
            mean, _ = self._stretch(measure, start, self._at)
            self._lost[measure.presence] = unknown_time(
                self._prometheus, self._plan, measure, start, self._at, mean
            )
        return self._lost[measure.presence]

    def _left_out(self) -> bool:
        return any(start <= self._at < end for start, end in self._excluded)

    def _exclusions(self) -> Iterator[Sample]:
        for one in self._plan.objective.exclusions if self._left_out() else ():
            if excluded_spans([one], self._at, self._at + 1, self._prometheus):
                yield self._sample(conventions.SLI_EXCLUDED, {conventions.REASON: one.reason}, 1.0)

    def _ask_once(self, query: str, at: float) -> dict[_Group, float]:
        """Windows share the stretches between two exclusions."""
        if (query, at) not in self._asked:
            self._asked[query, at] = self._ask(query, at)
        return self._asked[query, at]

    def _ask(self, query: str, at: float | None = None) -> dict[_Group, float]:
        return {
            tuple(sorted(sample.labels.items())): sample.value
            for sample in self._prometheus.instant(query, self._at if at is None else at)
        }

    def _sample(self, name: str, group: _Group | _Labels, value: float) -> Sample:
        return Sample({"__name__": name, **self._labels, **dict(group)}, value, self._at)
