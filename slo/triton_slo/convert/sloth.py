"""Sloth's `prometheus/v1` and its Kubernetes form: one service with its SLOs, each a custom objective here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from triton_slo import names
from triton_slo.convert import parts, queries
from triton_slo.convert.parts import Entry, EntryError, Ledger
from triton_slo.objective.model import WORKBOOK_TIERS, Objective

VERSION = "prometheus/v1"
KUBERNETES_VERSION = "sloth.slok.dev/v1"
_EXPECTED = {"page": "critical", "ticket": "warning"}
LEFT_OUT = "the SLO is left out"


def convert(documents: Sequence[Entry], window: str, ledger: Ledger) -> tuple[Objective, ...]:
    """Return every SLO of every document. `window` is the period, which Sloth keeps outside its files."""
    taken: set[str] = set()
    objectives: list[Objective] = []
    for document in documents:
        try:
            objectives += _service(_spec(document), window, ledger, taken)
            ledger.unread(document)
        except EntryError as error:
            ledger.wrong(error)
    return tuple(objectives)


def _spec(document: Entry) -> Entry:
    """Return the entry of the service: the document or the spec of a PrometheusServiceLevel. Raises EntryError."""
    version = document.get("apiVersion") or document.need("version")
    given = version.text()
    if given == VERSION:
        return document
    if given != KUBERNETES_VERSION:
        advice = "; use --from openslo" if given.startswith("openslo") else ""
        raise EntryError(version, f"{given!r} is neither Sloth's {VERSION} nor {KUBERNETES_VERSION}{advice}")
    kind = document.need("kind")
    if kind.text() != "PrometheusServiceLevel":
        raise EntryError(kind, f"{kind.text()!r} is not a PrometheusServiceLevel")
    if (metadata := document.get("metadata")) is not None:
        metadata.skip()  # of the Kubernetes object
    return document.need("spec")


def _field(parent: Entry, name: str) -> str:
    """Return the name of a field as this file writes it: the Kubernetes form has errorQuery for error_query."""
    first, *rest = name.split("_")
    camel = first + "".join(map(str.capitalize, rest))
    return camel if camel in parent.fields() else name


def _service(document: Entry, window: str, ledger: Ledger, taken: set[str]) -> list[Objective]:
    service = document.need("service").text()
    common = document.get("labels")
    objectives = []
    slos = document.need("slos")
    if not slos.items():
        ledger.lost(slos, "holds no SLO", "left out")
    for slo in slos.items():
        objective = None
        try:
            objective = _objective(slo, service, common, window, ledger, taken)
        except EntryError as error:
            ledger.wrong(error)
        if objective is None:
            slo.skip()
        else:
            objectives.append(objective)
    if common is not None:
        common.skip()
    return objectives


def _objective(
    slo: Entry, service: str, common: Entry | None, window: str, ledger: Ledger, taken: set[str]
) -> Objective | None:
    """Return the objective of one SLO, or None where it is left out (and reported)."""
    wanted = slo.need("name")
    name = parts.name(ledger, wanted, f"{service}-{wanted.text()}", taken)
    target = slo.need("objective")
    indicator, group_by, where = _indicator(slo.need("sli"), ledger)
    if not name or indicator is None:
        return None
    entries: dict[str, Entry] = {}
    for holder in (common, slo.get("labels")):
        if holder is not None:
            entries.update(holder.fields())
    if entries:
        first = next(iter(entries.values()))
        ledger.noted(first, "labels are put on alerts only, not on recorded series")
    labels, owner = parts.alert_labels(ledger, entries)
    data = {
        "name": name,
        "description": parts.description(slo.get("description")),
        "owner": owner,
        "target": round(target.number() / 100, 12),
        "window": window,
        "group_by": group_by,
        "indicator": indicator,
        **_alerting(slo.get("alerting"), {"service": service, **labels}, ledger),
    }
    return parts.objective(ledger, slo, data, {"target": target, **where})


def _indicator(sli: Entry, ledger: Ledger) -> tuple[dict[str, str] | None, tuple[str, ...], dict[str, Entry]]:
    events = sli.get("events")
    if events is None:
        ledger.lost(sli, "rules count events, and a ratio or a plugin has none", LEFT_OUT)
        return None, (), {}
    failed, every = (events.need(_field(events, f"{part}_query")) for part in ("error", "total"))
    query = failed
    try:
        error = queries.counter(failed.text())
        query = every
        total = queries.counter(every.text())
        group_by = queries.one_grouping(error, total)
    except queries.QueryError as reason:
        ledger.lost(query, str(reason), LEFT_OUT)
        return None, (), {}
    where = {"indicator.custom.error": failed, "indicator.custom.total": every}
    return {"kind": "custom", "error": error.text, "total": total.text}, group_by, where


def _alerting(alerting: Entry | None, labels: dict[str, str], ledger: Ledger) -> dict[str, Any]:
    """Return the labels, annotations and tiers of the alerts."""
    if alerting is None:
        return {"labels": labels}
    alerts: dict[str, Entry | None] = {}
    for urgency in _EXPECTED:
        alert = alerting.get(_field(alerting, f"{urgency}_alert"))
        disable = alert.get("disable") if alert else None
        if alert is not None and disable is not None and disable.flag():
            alert.skip()
        else:
            alerts[urgency] = alert
    more, _ = parts.alert_labels(ledger, alerting.mapping("labels"))
    noted = parts.alert_annotations(ledger, alerting.mapping("annotations"))
    settings: dict[str, Any] = {}
    for urgency, alert in alerts.items():
        tiers = [tier.name for tier in WORKBOOK_TIERS if tier.name.startswith(urgency)]
        for field, values in (_of_tiers(alert, urgency, ledger) if alert else {}).items():
            if values:
                settings.setdefault(field, {}).update(dict.fromkeys(tiers, values))
    name = alerting.get("name")
    if name is not None and name.text() and alerts:
        settings["name"] = parts.label_name(ledger, name, name.text())
    if not alerts:
        settings["enabled"] = False
    elif len(alerts) < len(_EXPECTED):
        [enabled] = alerts
        settings["tiers"] = [tier for tier in WORKBOOK_TIERS if tier.name.startswith(enabled)]
    return {"labels": labels | more, "annotations": noted, "alerting": settings}


def _of_tiers(alert: Entry, urgency: str, ledger: Ledger) -> dict[str, Any]:
    """Return what only the pages or only the tickets have: a severity, labels, annotations."""
    entries = dict(alert.mapping("labels"))
    severity = ""
    given = entries.get("severity")
    if given is not None and given.text() in names.SEVERITIES:
        del entries["severity"]
        severity = given.text() if given.text() != _EXPECTED[urgency] else ""
    labels, owner = parts.alert_labels(ledger, entries)
    annotations = parts.alert_annotations(ledger, alert.mapping("annotations"))
    return {
        "severities": severity,
        "labels": labels | ({f"{parts.ORIGINAL}owner": owner} if owner else {}),
        "annotations": annotations,
    }
