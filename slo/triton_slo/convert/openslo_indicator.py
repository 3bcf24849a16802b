"""OpenSLO's indicators as PromQL: ratios of events or gauges, raw ratios, thresholds, time slices."""

from __future__ import annotations

from dataclasses import dataclass

from triton_exporter.common.duration import duration_text, parse_seconds
from triton_slo.convert import building, queries
from triton_slo.convert.entry import Entry, EntryError
from triton_slo.convert.ledger import Ledger
from triton_slo.convert.openslo_library import Library
from triton_slo.convert.openslo_window import days
from triton_slo.fields import error_budget
from triton_slo.indicators.custom import WINDOW
from triton_slo.promql import number

_PROMETHEUS = frozenset({"prometheus", "cortex", "mimir", "thanos", "victoriametrics"})
_OPERATORS = {"lte": "<=", "gte": ">=", "lt": "<", "gt": ">"}
_LEFT_OUT = "the SLO is left out"


@dataclass(frozen=True, slots=True)
class ConvertedIndicator:
    """Fields of a custom indicator, and what to group it by; `events`: one event is independent of the next."""

    entry: Entry
    queries: dict[str, str]
    group_by: tuple[str, ...]
    events: bool = True


@dataclass(frozen=True, slots=True)
class _Slices:
    """Length of a time slice, and the share of it that must be good; None counts the share itself."""

    window: str
    target: float | None


def indicator(goal: Entry, spec: Entry, library: Library, ledger: Ledger) -> ConvertedIndicator | None:
    """Return the indicator of one objective of an SLO, or None where it is left out (and reported)."""
    sli = _indicator_spec(goal, spec, library)
    slices = _time_slices(goal, spec)
    ratio, threshold = sli.get("ratioMetric"), sli.get("thresholdMetric")
    ledger.dropped(sli, "description", "an indicator has no words of its own")
    if (ratio is None) == (threshold is None):
        raise EntryError(sli, "an indicator needs ratioMetric or thresholdMetric, one of them")
    try:
        if threshold is not None:
            return _from_threshold(goal, threshold, slices, library, ledger)
        assert ratio is not None
        if (operator := goal.get("op")) is not None:
            ledger.noted(operator, f"a ratio is compared with its target alone, not by {operator.text()!r}")
        return _from_ratio(ratio, slices, library, ledger)
    except queries.QueryError as error:
        ledger.lost(threshold or ratio or sli, str(error), _LEFT_OUT)
        return None


def _indicator_spec(goal: Entry, spec: Entry, library: Library) -> Entry:
    for holder in (goal, spec):
        inline, reference = holder.get("indicator"), holder.get("indicatorRef")
        if inline is not None and reference is not None:
            raise EntryError(reference, "give indicator or indicatorRef, not both")
        if inline is not None:
            if (metadata := inline.get("metadata")) is not None:
                metadata.skip()
            return inline.need("spec")
        if reference is not None:
            return library.find("SLI", reference).need("spec")
    raise EntryError(spec, "indicator or indicatorRef is missing")


def _time_slices(goal: Entry, spec: Entry) -> _Slices | None:
    method = spec.need("budgetingMethod")
    if method.text() == "Occurrences":
        return None
    if method.text() not in ("Timeslices", "RatioTimeslices"):
        raise EntryError(method, f"{method.text()!r} is none of Occurrences, Timeslices, RatioTimeslices")
    window = goal.need("timeSliceWindow")
    target = goal.need("timeSliceTarget") if method.text() == "Timeslices" else None
    if target is not None and not 0 < target.number() <= 1:
        raise EntryError(target, "a slice's target is above 0 and at most 1")
    minutes = window.number() if window.text().isdecimal() else days(window) * 1440
    if not 1 <= minutes <= 1440:
        raise EntryError(window, "a slice has one minute to one day")
    return _Slices(duration_text(minutes * 60), None if target is None else target.number())


def _metric_query(metric: Entry, library: Library, ledger: Ledger) -> Entry:
    """Return the PromQL of a metric. Raises QueryError where it is for something other than Prometheus."""
    source = metric.need("metricSource")
    kind, reference = source.get("type"), source.get("metricSourceRef")
    if reference is not None:
        named = library.optional("DataSource", reference)
        ledger.lost(
            reference, "rules run in the one Prometheus that loads them", "the data source is left out"
        )
        if named is not None and kind is None:
            kind = named.need("spec").get("type")
    if kind is not None and kind.text().lower() not in _PROMETHEUS:
        raise queries.QueryError(f"its source is {kind.text()}, and rules run in Prometheus")
    spec = source.need("spec")
    query = spec.get("query") or spec.get("promql")
    if query is None:
        raise EntryError(spec, "query (PromQL) is missing")
    return query


def _from_ratio(
    ratio: Entry, slices: _Slices | None, library: Library, ledger: Ledger
) -> ConvertedIndicator | None:
    raw = ratio.get("raw")
    counter = ratio.get("counter")
    counts = counter is None or counter.flag()
    if raw is not None:
        return _from_raw_ratio(ratio, raw, slices, library, ledger)
    parts = {
        ours: _metric_query(metric, library, ledger)
        for ours, theirs in (("good", "good"), ("errors", "bad"), ("total", "total"))
        if (metric := ratio.get(theirs)) is not None
    }
    if set(parts) not in ({"good", "total"}, {"errors", "total"}):
        raise EntryError(ratio, "a ratio needs total, and good or bad, or raw alone")
    texts = {ours: _event_rate(entry, counts, ledger) for ours, entry in parts.items()}
    group_by = building.grouping(ledger, ratio, queries.group_labels(*texts.values()))
    if slices is not None:
        bad = texts.get("errors") or f"({texts['total']}) - ({texts['good']})"
        return _sliced(ratio, f"({bad}) / (({texts['total']}) > 0)", slices, group_by, ledger)
    if not counts:
        ledger.noted(ratio, "gauges count no events: min_failures and confidence are switched off")
    return ConvertedIndicator(ratio, texts, group_by, events=counts)


def _event_rate(entry: Entry, counts: bool, ledger: Ledger) -> str:
    """Return events per second, or the mean of a gauge, over the window."""
    text = entry.text()
    counted = queries.windowed(text)
    if counted is not None:
        return counted
    if not counts:
        return queries.averaged(text)
    rated, plain = queries.rated(text)
    if not plain:
        ledger.lost(
            entry,
            "it adds up counters in a way that hides their resets",
            "the rate of the whole, which a restart of one process disturbs",
        )
    return rated


def _from_raw_ratio(
    ratio: Entry, raw: Entry, slices: _Slices | None, library: Library, ledger: Ledger
) -> ConvertedIndicator | None:
    query, kind = _metric_query(raw, library, ledger), ratio.need("rawType")
    if kind.text() not in ("success", "failure"):
        raise EntryError(kind, f"{kind.text()!r} is neither success nor failure")
    text = queries.windowed(query.text()) or queries.averaged(query.text())
    bad = text if kind.text() == "failure" else f"1 - ({text})"
    group_by = building.grouping(ledger, ratio, queries.group_labels(text))
    if slices is not None:
        return _sliced(ratio, bad, slices, group_by, ledger)
    return ConvertedIndicator(query, {"error_ratio": bad}, group_by)


def _from_threshold(
    goal: Entry, metric: Entry, slices: _Slices | None, library: Library, ledger: Ledger
) -> ConvertedIndicator | None:
    query, operator = _metric_query(metric, library, ledger), goal.need("op")
    if operator.text() not in _OPERATORS:
        raise EntryError(operator, f"{operator.text()!r} is none of {', '.join(_OPERATORS)}")
    value, text = goal.need("value").number(), query.text().strip()
    queries.parsed(text)
    compared = f"(({text}) {_OPERATORS[operator.text()]} bool {number(value)})"
    group_by = building.grouping(ledger, metric, queries.group_labels(text))
    bad = f"1 - avg_over_time({compared}[{WINDOW}:{queries.STEP}])"
    if slices is not None and parse_seconds(slices.window) > parse_seconds(queries.STEP):
        return _sliced(metric, bad, slices, group_by, ledger)
    ledger.noted(query, f"the value is evaluated every {queries.STEP}")
    return ConvertedIndicator(query, {"error_ratio": bad}, group_by)


def _sliced(
    entry: Entry, error_ratio: str, slices: _Slices, group_by: tuple[str, ...], ledger: Ledger
) -> ConvertedIndicator:
    """Return the share of slices in which too much failed, or the mean of their shares, evaluated every minute."""
    inside = f"({error_ratio.replace(WINDOW, slices.window)})"
    if slices.target is not None:
        inside = f"({inside} > bool {number(error_budget(slices.target))})"
    if parse_seconds(slices.window) != parse_seconds(queries.STEP):
        ledger.lost(
            entry,
            f"slices of {slices.window} in a row are not counted",
            f"slices of {slices.window} that end at every minute",
        )
    text = f"avg_over_time({inside}[{WINDOW}:{queries.STEP}])"
    return ConvertedIndicator(entry, {"error_ratio": text}, group_by)
