"""Series that show an incident, in promtool's notation: what Triton and the exporter would have exposed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from triton_exporter.catalogue import Metric, probe, state, triton
from triton_exporter.duration import parse_seconds
from triton_slo import conventions as names
from triton_slo.indicators.durations import first_response_edge
from triton_slo.objective import model as model
from triton_slo.promql import number, quote
from triton_slo.rules.plan import Plan

Scene = tuple[tuple[str, str], ...]
"""Pairs of a series and its values."""
Identity = tuple[str, str]

PER_SCRAPE = 10_000
"""Requests between two scrapes: enough that every ratio is a whole number of them."""


def graded(plan: Plan) -> bool:
    """Whether any share of events can fail: readiness and slices only know all or nothing."""
    indicator = plan.objective.indicator
    return not isinstance(indicator, model.Readiness) and getattr(indicator, "source", "") != "slices"


def healthy(plan: Plan, who: Identity, scrapes: int) -> Scene:
    """Traffic without a failure."""
    return ratio_scene(plan, who, 0.0, scrapes, 0)


def ratio_scene(plan: Plan, who: Identity, ratio: float, scrapes: int, calm: int) -> Scene:
    """A share of events fails for some scrapes; then none does."""
    failed = ratio * PER_SCRAPE
    return tuple(_events(plan, who, [(failed, PER_SCRAPE - failed, scrapes), (0.0, PER_SCRAPE, calm)], ""))


def vanished_scene(plan: Plan, who: Identity, scrapes: int, gone: int) -> Scene:
    """Healthy series that end, as Prometheus marks the end of series."""
    return tuple(_events(plan, who, [(0.0, PER_SCRAPE, scrapes)], f" stale _x{gone}"))


def stuck_scene(plan: Plan, who: Identity, scrapes: int) -> Scene:
    """Requests wait and no counter moves."""
    still = tuple(_events(plan, who, [(0.0, 0.0, scrapes)], ""))
    return (*still, (_series(plan, triton.PENDING_REQUESTS, who), f"5+0x{scrapes}"))


def silent_scene(plan: Plan, who: Identity, scrapes: int) -> Scene:
    """Counters are there and none moves."""
    return tuple(_events(plan, who, [(0.0, 0.0, scrapes)], ""))


def _events(
    plan: Plan, who: Identity, phases: list[tuple[float, float, int]], end: str
) -> Iterator[tuple[str, str]]:
    """Series for (failed, good, scrapes) phases."""
    indicator = plan.objective.indicator
    failed = _counter([(bad, n) for bad, _, n in phases]) + end
    good = _counter([(fine, n) for _, fine, n in phases]) + end
    every = _counter([(bad + fine, n) for bad, fine, n in phases]) + end
    match indicator:
        case model.Readiness():
            yield from _readiness(plan, who, phases, end)
        case model.Errors():
            yield _series(plan, triton.REQUEST_SUCCESS, who), good
            yield _series(plan, triton.REQUEST_FAILURE, who, reason=indicator.reasons[0]), failed
        case model.Custom():
            yield from _recorded(plan, who, phases, end)
        case model.Latency() | model.Queue() | model.FirstResponse():
            yield from _durations(plan, who, good, every, phases, end)
        case model.Probe():
            yield _series(plan, probe.REQUESTS, who, result="success"), good
            yield _series(plan, probe.REQUESTS, who, result="timeout"), failed


def _durations(
    plan: Plan, who: Identity, good: str, every: str, phases: list[tuple[float, float, int]], end: str
) -> Iterator[tuple[str, str]]:
    indicator = plan.objective.indicator
    resolved = plan.objective.resolve(*who)
    assert resolved is not None
    assert resolved[1] is not None
    edge = resolved[1]
    if isinstance(indicator, model.Latency | model.Queue) and indicator.source == "slices":
        yield from _means(plan, who, edge, phases, end)
        return
    if isinstance(indicator, model.FirstResponse):
        metric, limit = first_response_edge(indicator, edge)
        le = number(limit)
    else:
        metric = state.REQUEST_DURATION if isinstance(indicator, model.Latency) else state.QUEUE_DURATION
        le = repr(float(edge))
    yield _series(plan, metric, who, "_bucket", le=le), good
    yield _series(plan, metric, who, "_bucket", le="+Inf"), every
    yield _series(plan, metric, who, "_count"), every


def _means(
    plan: Plan, who: Identity, edge: float, phases: list[tuple[float, float, int]], end: str
) -> Iterator[tuple[str, str]]:
    """A slice fails as a whole or not at all: any failure makes the mean three times the threshold."""
    sums = (
        triton.REQUEST_DURATION_US if plan.objective.indicator.kind == "latency" else triton.QUEUE_DURATION_US
    )
    every = [(bad + fine, n) for bad, fine, n in phases]
    times = [((3 if bad else 0.3) * edge * 1e6 * (bad + fine), n) for bad, fine, n in phases]
    yield _series(plan, triton.REQUEST_SUCCESS, who), _counter(every) + end
    yield _series(plan, sums, who), _counter(times) + end


def _readiness(
    plan: Plan, who: Identity, phases: list[tuple[float, float, int]], end: str
) -> Iterator[tuple[str, str]]:
    """Ready or not: any share of failures is a phase without readiness."""
    ready = " ".join(f"{0 if bad else 1}+0x{n - 1}" for bad, _, n in phases if n) + end
    other = " ".join(f"{1 if bad else 0}+0x{n - 1}" for bad, _, n in phases if n) + end
    yield _series(plan, state.MODEL_READY, who), ready
    yield _series(plan, state.MODEL_STATE, who, state="ready"), ready
    yield _series(plan, state.MODEL_STATE, who, state="unavailable"), other
    expected = _series(plan, state.MODEL_EXPECTED, (who[0], ""))
    yield expected, " ".join(f"1+0x{n - 1}" for _, _, n in phases if n) + end


def _recorded(
    plan: Plan, who: Identity, phases: list[tuple[float, float, int]], end: str
) -> Iterator[tuple[str, str]]:
    """What the rules of a custom objective would hold: its sources are the user's own and cannot be made up."""
    resolved = plan.objective.resolve(*who)
    assert resolved is not None
    yield (
        _own(plan, who, names.ERROR_BUDGET_RATIO),
        _levels([(round(1 - resolved[0], 12), n) for *_, n in phases]),
    )
    yield _own(plan, who, names.BURNING), _levels([(float(bad > 0), n) for bad, _, n in phases])
    worst = max(bad / (bad + fine) for bad, fine, _ in phases)
    for span in plan.spans.values():
        quick = parse_seconds(span.nominal) <= parse_seconds("5m")
        ratios = [(bad / (bad + fine) if quick else worst, n) for bad, fine, n in phases]
        yield _own(plan, who, names.sli_error(span.nominal)), _levels(ratios)
        rate = PER_SCRAPE / plan.options.scrape_interval_seconds
        for event, share in ((names.ERROR, None), (names.TOTAL, 1.0)):
            levels = [((ratio if share is None else share) * rate, n) for ratio, n in ratios]
            yield _own(plan, who, names.sli_events(span.nominal), {names.EVENT: event}), _levels(levels)
    if end:
        scrapes, gone = phases[0][2], end.split("x")[-1]
        yield _own(plan, who, names.UNKNOWN, {names.REASON: "vanished"}), f"_x{scrapes + 1} 1+0x{gone}"


def _own(plan: Plan, who: Identity, record: str, extra: Mapping[str, str] | None = None) -> str:
    grouping = {"model": who[0], "version": who[1]}
    labels = {
        **plan.labels,
        **{label: grouping.get(label, "some") for label in plan.objective.group_by},
        **(extra or {}),
    }
    inside = ", ".join(f"{label}={quote(value)}" for label, value in labels.items() if value)
    return f"{record}{{{inside}}}"


def _levels(phases: list[tuple[float, int]]) -> str:
    """A gauge from phases of (value, scrapes)."""
    return " ".join(f"{number(round(value, 9))}+0x{n - 1}" for value, n in phases if n)


def _counter(phases: list[tuple[float, int]]) -> str:
    """A counter from phases of (increase a scrape, scrapes)."""
    parts, value = [], 0.0
    for step, scrapes in phases:
        if scrapes:
            parts.append(f"{number(round(value, 6))}+{number(round(step, 6))}x{scrapes - 1}")
            value += step * scrapes
    return " ".join(parts)


def _series(plan: Plan, metric: Metric, who: Identity, suffix: str = "", **extra: str) -> str:
    labels = {**plan.fixed_labels, "instance": "triton-0:9095", "model": who[0], "version": who[1], **extra}
    inside = ", ".join(f"{label}={quote(value)}" for label, value in labels.items() if value)
    return f"{metric}{suffix}{{{inside}}}"
