"""OpenSLO's indicators as counters: ratios of events; what is no count of events is left out."""

from __future__ import annotations

from dataclasses import dataclass

from triton_slo.convert import queries
from triton_slo.convert.entry import Entry, EntryError
from triton_slo.convert.ledger import Ledger
from triton_slo.convert.openslo_library import Library

_PROMETHEUS = frozenset({"prometheus", "cortex", "mimir", "thanos", "victoriametrics"})
_LEFT_OUT = "the SLO is left out"


@dataclass(frozen=True, slots=True)
class ConvertedIndicator:
    """Fields of a custom indicator, and what to group it by."""

    entry: Entry
    queries: dict[str, str]
    group_by: tuple[str, ...]


def indicator(goal: Entry, spec: Entry, library: Library, ledger: Ledger) -> ConvertedIndicator | None:
    """Return the indicator of one objective of an SLO, or None where it is left out (and reported)."""
    sli = _indicator_spec(goal, spec, library)
    method = spec.need("budgetingMethod")
    ratio, threshold = sli.get("ratioMetric"), sli.get("thresholdMetric")
    ledger.dropped(sli, "description", "an indicator has no words of its own")
    if (ratio is None) == (threshold is None):
        raise EntryError(sli, "an indicator needs ratioMetric or thresholdMetric, one of them")
    try:
        if method.text() != "Occurrences":
            raise queries.QueryError("rules count events; slices of time are not counted")
        if ratio is None:
            raise queries.QueryError(
                "rules count events; how often a value is over a threshold is not counted"
            )
        if (operator := goal.get("op")) is not None:
            ledger.noted(operator, f"a ratio is compared with its target alone, not by {operator.text()!r}")
        return _from_ratio(ratio, library, ledger)
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


def _from_ratio(ratio: Entry, library: Library, ledger: Ledger) -> ConvertedIndicator:
    counts = ratio.get("counter")
    if ratio.get("raw") is not None:
        raise queries.QueryError("rules count events, and a ratio has none")
    if counts is not None and not counts.flag():
        raise queries.QueryError("rules count events, and gauges have none")
    good, bad, total = (
        None if metric is None else _metric_query(metric, library, ledger).text()
        for metric in (ratio.get("good"), ratio.get("bad"), ratio.get("total"))
    )
    if total is None or (good is None) == (bad is None):
        raise EntryError(ratio, "a ratio needs total, and good or bad, or raw alone")
    every = queries.counter(total)
    failed = queries.counter(bad) if bad is not None else queries.failures(good or "", total)
    group_by = queries.one_grouping(failed, every)
    return ConvertedIndicator(ratio, {"error": failed.text, "total": every.text}, group_by)
