"""OpenSLO v1 in: SLOs with the SLIs and data sources they name.

Documents by kind and name, then windows, indicators as counters, and the SLOs that name them.
The specification: https://github.com/OpenSLO/OpenSLO (README, `openslo/v1`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from triton_slo import problem_words
from triton_slo.convert import parts, queries
from triton_slo.convert.parts import Entry, EntryError, Ledger
from triton_slo.objective.model import CalendarWindow, Objective

VERSION = "openslo/v1"
KINDS = (
    "SLO",
    "SLI",
    "AlertPolicy",
    "AlertCondition",
    "AlertNotificationTarget",
    "DataSource",
    "Service",
)


class Library:
    """Documents by kind and name, and which of them somebody referred to."""

    def __init__(self, documents: Sequence[Entry], ledger: Ledger) -> None:
        self._documents: dict[tuple[str, str], Entry] = {}
        self._used: set[tuple[str, str]] = set()
        for document in documents:
            try:
                key = _kind_and_name(document)
                if key in self._documents:
                    reason = f"{key[0]} {key[1]!r} is there already ({self._documents[key].place})"
                    raise EntryError(document, reason)
                self._documents[key] = document
            except EntryError as error:
                ledger.wrong(error)

    def slos(self) -> list[Entry]:
        return [entry for (kind, _), entry in self._documents.items() if kind == "SLO"]

    def find(self, kind: str, reference: Entry) -> Entry:
        """Return the document that a reference names. Raises EntryError where there is none."""
        key = kind, reference.text()
        if key not in self._documents:
            raise EntryError(reference, f"no {kind} is named {reference.text()!r} in these files")
        self._used.add(key)
        return self._documents[key]

    def optional(self, kind: str, reference: Entry) -> Entry | None:
        """Return the document that a reference names, if it is here."""
        key = kind, reference.text()
        self._used.add(key)
        return self._documents.get(key)

    def close(self, ledger: Ledger) -> None:
        """Report the documents other than SLOs that nobody referred to, and what was not read of the others."""
        for key, entry in self._documents.items():
            if key in self._used:
                ledger.unread(entry)
        for key, entry in self._documents.items():
            if key[0] != "SLO" and key not in self._used:
                ledger.lost(entry, "no SLO refers to it, or it cannot be expressed here", "left out")


def _kind_and_name(document: Entry) -> tuple[str, str]:
    fields = document.fields()
    if "apiVersion" not in fields and "slos" in fields:
        raise EntryError(document, "this is not an OpenSLO document; use --from sloth for Sloth's files")
    version = document.need("apiVersion")
    if version.text() != VERSION:
        raise EntryError(version, f"{version.text()!r} is not {VERSION}, the one version that is read here")
    kind = document.need("kind")
    if kind.text() not in KINDS:
        raise EntryError(kind, f"{kind.text()!r} is not a kind of {VERSION}: {', '.join(KINDS)}")
    return kind.text(), document.need("metadata").need("name").text()


_DAYS = {"m": 1 / 1440, "h": 1 / 24, "d": 1.0, "w": 7.0, "M": 30.0, "Q": 90.0, "Y": 365.0}
_CALENDARS = {"1w": "week", "7d": "week", "1M": "month", "1Q": "quarter", "3M": "quarter"}
_MIN_DAYS, _MAX_DAYS = 7, 90


def days(entry: Entry) -> float:
    """Return a duration shorthand in days; months have 30, quarters 90. Raises EntryError."""
    match = re.fullmatch(r"([1-9]\d{0,6})([mhdwMQY])", entry.text())
    if match is None:
        raise EntryError(entry, f"{entry.text()!r} is not a duration such as 5m, 1h, 30d, 4w, 1M or 1Q")
    return int(match[1]) * _DAYS[match[2]]


def window_of(spec: Entry, default: str, ledger: Ledger) -> Any:
    """Return the window as an objective writes it: the nearest one that an objective can have."""
    listed = spec.get("timeWindow")
    entries = listed.items() if listed is not None else []
    if not entries:
        ledger.noted(spec, f"no timeWindow is given; {default} is taken (--window)")
        return default
    if len(entries) > 1:
        raise EntryError(entries[1], "timeWindow has exactly one window")
    only = entries[0]
    duration, calendar, rolling = only.need("duration"), only.get("calendar"), only.get("isRolling")
    is_rolling = rolling.flag() if rolling is not None else calendar is None
    if is_rolling and calendar is not None:
        raise EntryError(calendar, "a rolling window has no calendar")
    if calendar is None:
        if not is_rolling:
            raise EntryError(only, "a window that does not roll needs a calendar")
        return _rolling(duration, ledger)
    return _calendar(duration, calendar, ledger)


def _rolling(duration: Entry, ledger: Ledger, doubt: str = "") -> str:
    wanted = days(duration)
    taken = min(_MAX_DAYS, max(_MIN_DAYS, round(wanted)))
    if taken != wanted:
        doubt = f"a window has {_MIN_DAYS} to {_MAX_DAYS} whole days"
    if doubt:
        ledger.lost(duration, doubt, f"{taken}d, rolling")
    elif duration.text()[-1] in "MQY":
        ledger.noted(duration, f"months differ in length: a rolling {duration.text()} is {taken}d")
    return f"{taken}d"


def _calendar(duration: Entry, calendar: Entry, ledger: Ledger) -> Any:
    zone, start = calendar.need("timeZone").text(), calendar.need("startTime")
    written = duration.text()
    if written == "1m":  # of minutes there is no calendar; OpenSLO's own example means a month
        ledger.noted(duration, "1m, which is a minute, is read as the month 1M")
        written = "1M"
    kind = _CALENDARS.get(written)
    if kind is None:
        return _rolling(duration, ledger, f"there is no calendar window of {duration.text()}")
    try:
        begins = datetime.fromisoformat(start.text())
    except ValueError:
        raise EntryError(start, f"{start.text()!r} is not a time such as 2026-01-01 00:00:00") from None
    form = {"calendar": kind, "timezone": zone}
    try:
        CalendarWindow.model_validate(form)
    except ValidationError as error:
        raise EntryError(calendar, problem_words.reason(error.errors()[0])) from None
    if not _on_edge(kind, begins):
        ledger.lost(start, f"a calendar {kind} starts at its own first midnight", "that start is taken")
    return form


def _on_edge(kind: str, begins: datetime) -> bool:
    if (begins.hour, begins.minute, begins.second) != (0, 0, 0):
        return False
    if kind == "week":
        return begins.weekday() == 0
    return begins.day == 1 and (kind == "month" or begins.month % 3 == 1)


_PROMETHEUS = frozenset({"prometheus", "cortex", "mimir", "thanos", "victoriametrics"})
_LEFT_OUT = "the SLO is left out"


def indicator_of(
    goal: Entry, spec: Entry, library: Library, ledger: Ledger
) -> tuple[dict[str, Any], Entry] | None:
    """Return the indicator and grouping of one objective, and where they are from; None where it is left out (and reported)."""
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
        return _from_ratio(ratio, library, ledger), ratio
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


def _from_ratio(ratio: Entry, library: Library, ledger: Ledger) -> dict[str, Any]:
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
    indicator = {"kind": "custom", "error": failed.text, "total": every.text}
    return {"group_by": queries.one_grouping(failed, every), "indicator": indicator}


def convert(documents: Sequence[Entry], window: str, ledger: Ledger) -> tuple[Objective, ...]:
    """Return every objective of every SLO. `window` is the period of SLOs that name none."""
    library = Library(documents, ledger)
    taken: set[str] = set()
    objectives: list[Objective] = []
    for slo in library.slos():
        try:
            made = _objectives_of(slo, library, window, ledger, taken)
        except EntryError as error:
            ledger.wrong(error)
            continue
        objectives += made
        if made:
            ledger.unread(slo)
    library.close(ledger)
    return tuple(objectives)


def _objectives_of(
    slo: Entry, library: Library, window: str, ledger: Ledger, taken: set[str]
) -> list[Objective]:
    metadata, spec = slo.need("metadata"), slo.need("spec")
    shared = {**_described(metadata, spec, library, ledger), "window": window_of(spec, window, ledger)}
    if (policies := spec.get("alertPolicies")) is not None and policies.items():
        policies.skip()
        ledger.lost(policies, "alert policies are not converted", "the four tiers of the SRE Workbook alert")
    goals = spec.need("objectives").items()
    if not goals:
        ledger.lost(spec.need("objectives"), "holds no objective", "the SLO is left out")
    objectives = []
    for index, goal in enumerate(goals):
        own = _objective_name(goal, index, len(goals), metadata, ledger)
        name = parts.name(ledger, metadata.need("name"), own, taken)
        indicator = indicator_of(goal, spec, library, ledger)
        target, where = _target_ratio(goal)
        alone = "each is an objective of its own"
        ledger.dropped(goal, "compositeWeight", "parts of a composite are not added up", alone)
        if not name or indicator is None:
            continue
        fields, source = indicator
        data = {"name": name, **shared, "target": target, **fields}
        made = parts.objective(ledger, goal, data, {"target": where, "indicator": source})
        if made is not None:
            objectives.append(made)
    if not objectives:
        slo.skip()
    return objectives


def _objective_name(goal: Entry, index: int, count: int, metadata: Entry, ledger: Ledger) -> str:
    name = metadata.need("name").text()
    title = goal.get("displayName")
    if count == 1:
        if title is not None:
            ledger.noted(title, f"{title.text()!r} is the one objective of its SLO, which has a name")
        return name
    return f"{name}-{parts.slug(title.text())}" if title is not None else f"{name}-{index + 1}"


def _target_ratio(goal: Entry) -> tuple[float, Entry]:
    ratio, percent = goal.get("target"), goal.get("targetPercent")
    if (ratio is None) == (percent is None):
        raise EntryError(goal, "an objective needs target or targetPercent, one of them")
    if ratio is not None:
        return round(ratio.number(), 12), ratio
    assert percent is not None
    return round(percent.number() / 100, 12), percent


def _described(metadata: Entry, spec: Entry, library: Library, ledger: Ledger) -> dict[str, Any]:
    labels, owner = parts.alert_labels(ledger, metadata.mapping("labels"))
    noted = parts.alert_annotations(ledger, metadata.mapping("annotations"))
    service = spec.need("service")
    described = library.optional("Service", service)
    if described is not None and described.get("spec") is not None:
        ledger.lost(described, "a service has no words of its own here", "its name is the label service")
        described.skip()
    title, description = metadata.get("displayName"), spec.get("description")
    if title is not None and description is not None:
        noted["display_name"] = title.text()
    return {
        "description": parts.description(description or title),
        "owner": owner,
        "labels": {"service": service.text(), **labels},
        "annotations": noted,
    }
