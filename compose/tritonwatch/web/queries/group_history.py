"""The recorded history of one group: budget, burn rates, events, alerts, causes, deployments."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from triton_exporter.common.duration import in_words
from triton_slo import names
from triton_slo.group_status import GroupStatus
from triton_slo.indicators import indicator_class
from triton_slo.indicators.histograms import HistogramIndicator
from triton_slo.prometheus import Prometheus, Sample, Series
from triton_slo.promql import Matchers, parse_selector
from tritonwatch.web.drawing import Band, ChartAxis, Mark
from tritonwatch.web.sources import CachedAnswer, Sources

_ERRORS = names.sli_error("")
EVENTS = "events_per_second"
_BANDS: Mapping[str, str] = {names.SLI_EXCLUDED: "excluded"}
_FIRING = 'alertstate="firing"'


@dataclass(frozen=True, slots=True)
class PastSeries:
    """Recorded series of one group at the steps of an axis."""

    axis: ChartAxis
    series: tuple[Series, ...] = ()

    def named(self, name: str, **labels: str) -> Series | None:
        """Return the first series of this name with these labels; None where there is none."""
        wanted = {"__name__": name, **labels}.items()
        return next((series for series in self.series if wanted <= series.labels.items()), None)

    def all_named(self, prefix: str) -> list[Series]:
        """Return the series whose names begin so."""
        return [series for series in self.series if series.labels.get("__name__", "").startswith(prefix)]

    def bands(self) -> tuple[Band, ...]:
        """Return when the group was unknown or excluded, with the reason."""
        return tuple(
            Band(kind_of, start, end, f"{kind_of}: {series.labels.get(names.REASON, '')}")
            for name, kind_of in _BANDS.items()
            for series in self.all_named(name)
            for start, end in self.axis.stretches(series)
        )

    def alerts(self) -> tuple[Mark, ...]:
        """Return when alerts of the group began to fire: in the step before each mark."""
        return tuple(
            Mark(
                start + self.axis.step,
                f"{series.labels.get(names.TIER) or series.labels['alertname']} fires for {in_words(end - start)}",
            )
            for series in self.all_named(names.ALERTS)
            for start, end in self.axis.stretches(series)
        )


def own_matchers(row: GroupStatus) -> Matchers:
    """Return the matchers of all series of an objective and group."""
    matchers = Matchers().equal(names.SLO, row.slo)
    for label, value in row.group.items():
        matchers = matchers.equal(label, value)
    return matchers


def recorded_name(pattern: str, matchers: Matchers) -> str:
    """Return a selector of series by a pattern of their names."""
    return str(Matchers((f'__name__=~"{pattern}"', *matchers.parts)))


def past_budget(sources: Sources, row: GroupStatus, axis: ChartAxis) -> CachedAnswer[PastSeries]:
    """Return the budget over the period."""
    return _past(sources, axis, [f"{names.PERIOD_BUDGET_REMAINING}{own_matchers(row)}"])


def past_burn(sources: Sources, row: GroupStatus, axis: ChartAxis) -> CachedAnswer[PastSeries]:
    """Return the error ratios of all windows and the events per second, under the name `EVENTS`."""
    own, window = own_matchers(row), max(1, round(max(axis.step, 300 * sources.options.time_scale)))
    rate = f'label_replace(rate({names.COUNTER}{own}[{window}s]), "__name__", "{EVENTS}", "", "")'
    return _past(sources, axis, [recorded_name(f"{_ERRORS}.+", own), rate])


def past_states(sources: Sources, row: GroupStatus, axis: ChartAxis) -> CachedAnswer[PastSeries]:
    """Return what exists only while it is true: alerts and excluded time."""
    window = f"[{max(1, round(axis.step))}s]"
    queries = [
        f"{names.ALERTS}{own_matchers(row).also(_FIRING)}",
        f"{names.SLI_EXCLUDED}{Matchers().equal(names.SLO, row.slo)}",
    ]
    if row.model:
        unknown = Matchers().equal("alertname", names.UNKNOWN_ALERT).equal("model", row.model)
        queries.append(f"{names.ALERTS}{unknown.also(_FIRING)}")
    # The last sample of each step: none of them, however short it was, is missed.
    return _past(sources, axis, [f"last_over_time({query}{window})" for query in queries])


def past_causes(sources: Sources, row: GroupStatus, axis: ChartAxis) -> CachedAnswer[PastSeries]:
    """Return the shares of the causes."""
    split = Matchers().equal(names.INDICATOR, indicator_class(row.indicator).cause_split or row.indicator)
    group = [
        f"{part}"
        for label in names.GROUPING
        if label in row.group
        for part in Matchers().equal(label, row.group[label]).parts
    ]
    return _past(sources, axis, [f"{names.CAUSE_SHARE}{split.also(*group)}"])


def past_deployments(sources: Sources, row: GroupStatus, axis: ChartAxis) -> CachedAnswer[PastSeries]:
    """Return when versions of the model became ready, and when loads failed."""
    window = f"[{max(1, round(axis.step))}s]"
    chosen = recorded_name(f"{names.BECAME_READY}|{names.FAILED_LOADS}", Matchers().equal("model", row.model))
    return _past(sources, axis, [f"last_over_time({chosen}{window})"])


def _past(sources: Sources, axis: ChartAxis, queries: Sequence[str]) -> CachedAnswer[PastSeries]:
    def read(prometheus: Prometheus) -> PastSeries:
        # One request: the series of the queries differ in name or labels.
        return PastSeries(axis, prometheus.range(" or ".join(queries), axis.start, axis.end, axis.step))

    return sources.reader.ask(("past", tuple(queries), axis), read, PastSeries(axis))


def deployments(past: PastSeries) -> tuple[Mark, ...]:
    """Return a mark for each moment at which a version became ready, or a load failed."""
    counts: dict[tuple[float, str], int] = defaultdict(int)
    for series in past.series:
        version, reason = series.labels.get("version", ""), series.labels.get(names.REASON, "")
        failed = series.labels.get("__name__") == names.FAILED_LOADS
        label = f"load failed: {reason}" if failed else f"version {version} became ready"
        for start, _ in past.axis.stretches(series):
            counts[start + past.axis.step, label] += 1
    return tuple(
        Mark(at, label if servers == 1 else f"{label} on {servers} servers")
        for (at, label), servers in sorted(counts.items())
    )


def spent_by_cause(causes: PastSeries, burn: PastSeries) -> list[tuple[str, float]]:
    """Return which share of the failed events each cause had, largest first.

    The causes of each step count as much as the events that failed in it.
    """
    errors = burn.axis.values(burn.named(EVENTS, event=names.ERROR))
    weights: dict[str, float] = defaultdict(float)
    for series in causes.series:
        shares = causes.axis.values(series)
        for share, failed in zip(shares, errors, strict=True):
            weights[series.labels.get(names.CAUSE, "")] += (share or 0.0) * (failed or 0.0)
    whole = sum(weights.values())
    split = [(cause, weight / whole) for cause, weight in weights.items() if weight > 0] if whole else []
    return sorted(split, key=lambda entry: -entry[1])


@dataclass(frozen=True, slots=True)
class Bucket:
    """Successful requests of the last hour between two durations (seconds), and the share up to the upper one."""

    above: float
    within: float
    requests: float
    share: float


def distribution(sources: Sources, row: GroupStatus, at: float | None) -> CachedAnswer[tuple[Bucket, ...]]:
    """Return the durations of the last hour; empty for indicators without a histogram of the exporter."""
    measured = indicator_class(row.indicator)
    if not issubclass(measured, HistogramIndicator):
        return CachedAnswer((), sources.reader.now)
    plan = sources.plans.get(row.slo)
    matchers = Matchers(parse_selector(plan.options.selector)[0]) if plan else Matchers()
    for label in names.GROUPING:
        if label in row.group:
            matchers = matchers.equal(label, row.group[label])
    window = max(60, round(3600 * sources.options.time_scale))
    query = f"sum by (le) (increase({measured.histogram.bucket}{matchers}[{window}s]))"

    def read(prometheus: Prometheus) -> tuple[Bucket, ...]:
        return _buckets_of(prometheus.instant(query, at))

    return sources.reader.ask(("distribution", query, at), read, ())


def _buckets_of(samples: Sequence[Sample]) -> tuple[Bucket, ...]:
    edges = sorted((float(sample.labels["le"]), sample.value) for sample in samples if "le" in sample.labels)
    whole = edges[-1][1] if edges else 0.0
    points, above, below = [], 0.0, 0.0
    for within, count in edges if whole > 0 else ():
        points.append(Bucket(above, within, count - below, count / whole))
        above, below = within, count
    return tuple(points)
