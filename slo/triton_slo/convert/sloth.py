"""Sloth's `prometheus/v1`: one service with its SLOs, each a custom objective here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from triton_slo.convert import building, queries
from triton_slo.convert.entry import Entry, EntryError
from triton_slo.convert.ledger import Ledger
from triton_slo.objective.model import WORKBOOK_TIERS, Objective, Severity

VERSION = "prometheus/v1"
_SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "info", "none")
_EXPECTED = {"page": "critical", "ticket": "warning"}


def convert(documents: Sequence[Entry], window: str, ledger: Ledger) -> tuple[Objective, ...]:
    """Return every SLO of every document. `window` is the period, which Sloth keeps outside its files."""
    taken: set[str] = set()
    found: list[Objective] = []
    for document in documents:
        try:
            _check(document)
            found += _service(document, window, ledger, taken)
            ledger.unread(document)
        except EntryError as error:
            ledger.wrong(error.entry, str(error))
    return tuple(found)


def _check(document: Entry) -> None:
    fields = document.fields()
    if "apiVersion" in fields:
        version = fields["apiVersion"]
        given = version.text()
        advice = "use --from openslo" if given.startswith("openslo") else "convert the content of its spec"
        raise EntryError(version, f"{given!r} is not Sloth's {VERSION}; {advice}")
    version = document.need("version")
    if version.text() != VERSION:
        raise EntryError(version, f"{version.text()!r} is not Sloth's {VERSION}")


def _service(document: Entry, window: str, ledger: Ledger, taken: set[str]) -> list[Objective]:
    service = document.need("service").text()
    common = document.get("labels")
    found = []
    for slo in document.need("slos").items():
        try:
            one = _Slo(slo, service, common, ledger).objective(window, taken)
        except EntryError as error:
            ledger.wrong(error.entry, str(error))
            slo.skip()
        else:
            if one is None:
                slo.skip()
            else:
                found.append(one)
    if common is not None:
        common.fields()
    return found


class _Slo:
    """One SLO on its way."""

    def __init__(self, entry: Entry, service: str, common: Entry | None, ledger: Ledger) -> None:
        self.entry, self.service, self.common, self.ledger = entry, service, common, ledger

    def objective(self, window: str, taken: set[str]) -> Objective | None:
        """Return the objective, or None where it is left out (and reported)."""
        wanted = self.entry.need("name")
        name = building.name(self.ledger, wanted, f"{self.service}-{wanted.text()}", taken)
        target = self.entry.need("objective")
        sli = self.entry.need("sli")
        indicator, where = self._indicator(sli)
        if not name or indicator is None:
            return None
        labels, owner = self._labels()
        description = self.entry.get("description")
        data = {
            "name": name,
            "description": building.kept_words([description.text()] if description else []),
            "owner": owner,
            "target": round(target.number() / 100, 12),
            "window": window,
            "group_by": building.grouping(
                self.ledger, sli, queries.group_labels(*(v for k, v in indicator.items() if k != "kind"))
            ),
            "indicator": indicator,
            **self._alerting(labels),
        }
        return building.objective(self.ledger, self.entry, data, {"target": target, **where})

    def _indicator(self, sli: Entry) -> tuple[dict[str, str] | None, dict[str, Entry]]:
        fields = {
            "errors": ("events", "error_query"),
            "total": ("events", "total_query"),
            "error_ratio": ("raw", "error_ratio_query"),
        }
        indicator, where = {"kind": "custom"}, {}
        for ours, (form, theirs) in fields.items():
            parent = sli.get(form)
            if parent is None:
                continue
            query = parent.need(theirs)
            try:
                text = queries.windowed(query.text())
            except queries.QueryError as error:
                self.ledger.lost(query, str(error), "the SLO is left out")
                return None, {}
            if text is None:
                self.ledger.lost(
                    query, "it has no {{.window}}, so it is the same for every window", "left out"
                )
                return None, {}
            indicator[ours], where[f"indicator.custom.{ours}"] = text, query
        if len(indicator) == 1:
            self.ledger.lost(sli, "only events and raw queries can be carried over", "the SLO is left out")
            return None, {}
        return indicator, where

    def _labels(self) -> tuple[dict[str, str], str]:
        entries: dict[str, Entry] = {}
        for holder in (self.common, self.entry.get("labels")):
            if holder is not None:
                entries.update(holder.fields())
        if entries:
            first = next(iter(entries.values()))
            self.ledger.lost(
                first, "recorded series carry no labels of the user's", "labels are put on alerts only"
            )
        found, owner = building.alert_labels(self.ledger, entries)
        return {"service": self.service, **found}, owner

    def _alerting(self, labels: dict[str, str]) -> dict[str, Any]:
        alerting = self.entry.get("alerting")
        if alerting is None:
            return {"labels": labels}
        kept = [urgency for urgency in _EXPECTED if not self._disabled(alerting, urgency)]
        severities: dict[str, str] = {}
        more, noted = self._words(alerting)
        for urgency in _EXPECTED:
            one = alerting.get(f"{urgency}_alert")
            if one is not None:
                severity = self._urgency(one, urgency)
                if urgency in kept and severity != _EXPECTED[urgency]:
                    severities |= {t.name: severity for t in WORKBOOK_TIERS if t.name.startswith(urgency)}
        name = alerting.get("name")
        if name is not None and name.text() and kept:
            self.ledger.lost(
                name,
                "burn alerts have fixed names (TritonCustomBudgetBurn), which inhibition relies on",
                "kept as the annotation sloth_alert; let routes match the label slo",
            )
            noted["sloth_alert"] = name.text()
        settings: dict[str, Any] = {}
        if not kept:
            settings["enabled"] = False
        elif len(kept) < len(_EXPECTED):
            settings["tiers"] = [tier for tier in WORKBOOK_TIERS if tier.name.startswith(kept[0])]
        if severities:
            settings["severities"] = severities
        return {"labels": labels | more, "annotations": noted, "alerting": settings}

    @staticmethod
    def _disabled(alerting: Entry, urgency: str) -> bool:
        one = alerting.get(f"{urgency}_alert")
        disable = one.get("disable") if one else None
        return disable is not None and disable.flag()

    def _words(self, alerting: Entry) -> tuple[dict[str, str], dict[str, str]]:
        found, _ = building.alert_labels(self.ledger, alerting.mapping("labels"))
        return found, building.alert_annotations(self.ledger, alerting.mapping("annotations"))

    def _urgency(self, alert: Entry, urgency: str) -> str:
        """Severity of the page or the ticket; its other words are reported."""
        severity = _EXPECTED[urgency]
        for key, entry in alert.mapping("labels").items():
            value = entry.text()
            if key == "severity" and value in _SEVERITIES:
                severity = value
            elif key == "severity":
                self.ledger.lost(
                    entry, f"{value!r} is none of {', '.join(_SEVERITIES)}", f"{severity} is set"
                )
            else:
                self.ledger.lost(
                    entry, "labels are the same on pages and tickets", "left out; routes can match severity"
                )
        for entry in alert.mapping("annotations").values():
            entry.skip()
            self.ledger.lost(entry, "annotations are the same on pages and tickets", "left out")
        return severity
