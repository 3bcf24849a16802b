"""Series that show an incident, in promtool's notation: what Triton and the exporter would have exposed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from triton_exporter.common.duration import parse_seconds
from triton_slo import names
from triton_slo.fields import error_budget
from triton_slo.indicators.common.measure import UnknownReason
from triton_slo.indicators.common.sample_series import SampleSeries, gauge
from triton_slo.promql import quote
from triton_slo.rules.plan import Plan

InputSeries = tuple[tuple[str, str], ...]
"""Pairs of a series and its values."""
Identity = tuple[str, str]
Phases = Sequence[tuple[float, float, int]]

PER_SCRAPE = 10_000
"""Requests between two scrapes: enough that every ratio is a whole number of them."""


def healthy(plan: Plan, who: Identity, scrapes: int) -> InputSeries:
    """Return series of traffic without a failure."""
    return ratio_series(plan, who, 0.0, scrapes, 0)


def ratio_series(plan: Plan, who: Identity, ratio: float, scrapes: int, calm: int) -> InputSeries:
    """Return series in which a share of events fails for some scrapes; then none does."""
    failed = ratio * PER_SCRAPE
    return tuple(
        _event_series(plan, who, [(failed, PER_SCRAPE - failed, scrapes), (0.0, PER_SCRAPE, calm)], "")
    )


def vanished_series(plan: Plan, who: Identity, scrapes: int, gone: int) -> InputSeries:
    """Return healthy series that end, as Prometheus marks the end of series."""
    return tuple(_event_series(plan, who, [(0.0, PER_SCRAPE, scrapes)], f" stale _x{gone}"))


def standstill_series(plan: Plan, who: Identity, reason: UnknownReason, scrapes: int) -> InputSeries:
    """Return counters that do not move, and gauges of waiting requests if the reason is about those."""
    still = tuple(_event_series(plan, who, [(0.0, 0.0, scrapes)], ""))
    waiting = (
        _sample_series(plan, who, (), "").series(metric, f"5+0x{scrapes}") for metric in reason.waiting
    )
    return (*still, *waiting)


def from_sources(plan: Plan, who: Identity) -> bool:
    """Return whether the proofs contain source series; else they have the series that the rules would record."""
    return _source_series(plan, _sample_series(plan, who, (), "")) is not None


def _source_series(plan: Plan, samples: SampleSeries) -> Iterable[tuple[str, str]] | None:
    resolved = plan.objective.resolve(samples.labels["model"], samples.labels["version"])
    assert resolved is not None
    return plan.objective.indicator.incident(samples, resolved[1])


def _sample_series(plan: Plan, who: Identity, phases: Phases, end: str) -> SampleSeries:
    labels = {**plan.fixed_labels, "instance": "triton-0:9095", "model": who[0], "version": who[1]}
    return SampleSeries(labels, phases, end)


def _event_series(plan: Plan, who: Identity, phases: Phases, end: str) -> Iterable[tuple[str, str]]:
    """Return series for (failed, good, scrapes) phases."""
    sources = _source_series(plan, _sample_series(plan, who, phases, end))
    return _recorded_samples(plan, who, phases, end) if sources is None else sources


def _recorded_samples(plan: Plan, who: Identity, phases: Phases, end: str) -> Iterator[tuple[str, str]]:
    """Yield what a custom objective's rules would record: its sources are the user's own and cannot be made up."""
    resolved = plan.objective.resolve(*who)
    assert resolved is not None
    yield (
        _recorded_series(plan, who, names.ERROR_BUDGET_RATIO),
        gauge([(error_budget(resolved[0]), n) for *_, n in phases]),
    )
    yield _recorded_series(plan, who, names.BURNING), gauge([(float(bad > 0), n) for bad, _, n in phases])
    worst = max(bad / (bad + fine) for bad, fine, _ in phases)
    for window in plan.windows.values():
        quick = parse_seconds(window.nominal) <= parse_seconds("5m")
        ratios = [(bad / (bad + fine) if quick else worst, n) for bad, fine, n in phases]
        yield _recorded_series(plan, who, names.sli_error(window.nominal)), gauge(ratios)
        rate = PER_SCRAPE / plan.options.scrape_interval_seconds
        for event, share in ((names.ERROR, None), (names.TOTAL, 1.0)):
            levels = [((ratio if share is None else share) * rate, n) for ratio, n in ratios]
            yield (
                _recorded_series(plan, who, names.sli_events(window.nominal), {names.EVENT: event}),
                gauge(levels),
            )
    if end:
        scrapes, gone = phases[0][2], end.split("x")[-1]
        yield (
            _recorded_series(plan, who, names.UNKNOWN, {names.REASON: "vanished"}),
            f"_x{scrapes + 1} 1+0x{gone}",
        )


def _recorded_series(plan: Plan, who: Identity, record: str, extra: Mapping[str, str] | None = None) -> str:
    grouping = {"model": who[0], "version": who[1]}
    labels = {
        **plan.labels,
        **{label: grouping.get(label, "some") for label in plan.objective.group_by},
        **(extra or {}),
    }
    inside = ", ".join(f"{label}={quote(value)}" for label, value in labels.items() if value)
    return f"{record}{{{inside}}}"
