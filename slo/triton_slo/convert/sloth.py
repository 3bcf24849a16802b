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
            ledger.wrong(error.entry, str(error))
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
        try:
            objective = _Slo(slo, service, common, ledger).objective(window, taken)
        except EntryError as error:
            ledger.wrong(error.entry, str(error))
            slo.skip()
        else:
            if objective is None:
                slo.skip()
            else:
                objectives.append(objective)
    if common is not None:
        common.skip()
    return objectives


class _Slo:
    """One SLO on its way."""

    def __init__(self, entry: Entry, service: str, common: Entry | None, ledger: Ledger) -> None:
        self.entry, self.service, self.common, self.ledger = entry, service, common, ledger

    def objective(self, window: str, taken: set[str]) -> Objective | None:
        """Return the objective, or None where it is left out (and reported)."""
        wanted = self.entry.need("name")
        name = parts.name(self.ledger, wanted, f"{self.service}-{wanted.text()}", taken)
        target = self.entry.need("objective")
        sli = self.entry.need("sli")
        indicator, group_by, where = self._indicator(sli)
        if not name or indicator is None:
            return None
        labels, owner = self._labels()
        description = self.entry.get("description")
        data = {
            "name": name,
            "description": parts.joined_description([description.text()] if description else []),
            "owner": owner,
            "target": round(target.number() / 100, 12),
            "window": window,
            "group_by": group_by,
            "indicator": indicator,
            **self._alerting(labels),
        }
        return parts.objective(self.ledger, self.entry, data, {"target": target, **where})

    def _indicator(self, sli: Entry) -> tuple[dict[str, str] | None, tuple[str, ...], dict[str, Entry]]:
        events = sli.get("events")
        if events is None:
            self.ledger.lost(sli, "rules count events, and a ratio or a plugin has none", LEFT_OUT)
            return None, (), {}
        failed, every = (events.need(_field(events, f"{part}_query")) for part in ("error", "total"))
        query = failed
        try:
            error = queries.counter(failed.text())
            query = every
            total = queries.counter(every.text())
            group_by = queries.one_grouping(error, total)
        except queries.QueryError as reason:
            self.ledger.lost(query, str(reason), LEFT_OUT)
            return None, (), {}
        where = {"indicator.custom.error": failed, "indicator.custom.total": every}
        return {"kind": "custom", "error": error.text, "total": total.text}, group_by, where

    def _labels(self) -> tuple[dict[str, str], str]:
        entries: dict[str, Entry] = {}
        for holder in (self.common, self.entry.get("labels")):
            if holder is not None:
                entries.update(holder.fields())
        if entries:
            first = next(iter(entries.values()))
            self.ledger.noted(first, "labels are put on alerts only, not on recorded series")
        labels, owner = parts.alert_labels(self.ledger, entries)
        return {"service": self.service, **labels}, owner

    def _alerting(self, labels: dict[str, str]) -> dict[str, Any]:
        alerting = self.entry.get("alerting")
        if alerting is None:
            return {"labels": labels}
        enabled = [urgency for urgency in _EXPECTED if not self._disabled(alerting, urgency)]
        more, _ = parts.alert_labels(self.ledger, alerting.mapping("labels"))
        noted = parts.alert_annotations(self.ledger, alerting.mapping("annotations"))
        settings: dict[str, Any] = {}
        for urgency in enabled:
            for field, values in self._of_tiers(alerting, urgency).items():
                if values:
                    tiers = [tier.name for tier in WORKBOOK_TIERS if tier.name.startswith(urgency)]
                    settings.setdefault(field, {}).update(dict.fromkeys(tiers, values))
        name = alerting.get("name")
        if name is not None and name.text() and enabled:
            settings["name"] = parts.label_name(self.ledger, name, name.text())
        if not enabled:
            settings["enabled"] = False
        elif len(enabled) < len(_EXPECTED):
            settings["tiers"] = [tier for tier in WORKBOOK_TIERS if tier.name.startswith(enabled[0])]
        return {"labels": labels | more, "annotations": noted, "alerting": settings}

    @staticmethod
    def _alert(alerting: Entry, urgency: str) -> Entry | None:
        return alerting.get(_field(alerting, f"{urgency}_alert"))

    def _disabled(self, alerting: Entry, urgency: str) -> bool:
        alert = self._alert(alerting, urgency)
        disable = alert.get("disable") if alert else None
        if alert is None or disable is None or not disable.flag():
            return False
        alert.skip()
        return True

    def _of_tiers(self, alerting: Entry, urgency: str) -> dict[str, Any]:
        """Return what only the pages or only the tickets have: a severity, labels, annotations."""
        alert = self._alert(alerting, urgency)
        if alert is None:
            return {}
        entries = dict(alert.mapping("labels"))
        severity = ""
        given = entries.get("severity")
        if given is not None and given.text() in names.SEVERITIES:
            del entries["severity"]
            severity = given.text() if given.text() != _EXPECTED[urgency] else ""
        labels, owner = parts.alert_labels(self.ledger, entries)
        annotations = parts.alert_annotations(self.ledger, alert.mapping("annotations"))
        return {
            "severities": severity,
            "labels": labels | ({f"{parts.ORIGINAL}owner": owner} if owner else {}),
            "annotations": annotations,
        }
