"""OpenSLO's alert policies as tiers: one burn rate and one window become a pair of windows."""

from __future__ import annotations

import re
from typing import Any

from triton_exporter.common.duration import DAY, duration_text
from triton_slo.convert.entry import Entry, EntryError
from triton_slo.convert.ledger import Ledger
from triton_slo.convert.openslo_library import Library
from triton_slo.convert.openslo_window import days

_SEVERITIES = {
    **dict.fromkeys(("page", "critical", "sev1", "p1", "high"), "critical"),
    **dict.fromkeys(("ticket", "warning", "sev2", "p2", "medium"), "warning"),
    **dict.fromkeys(("info", "sev3", "p3", "low"), "info"),
}
_HALF_HOUR = 1800
_SHARE = 12
"""A short window is a twelfth of the long one: https://sre.google/workbook/alerting-on-slos/, table 5-8."""


def alerting(spec: Entry, library: Library, ledger: Ledger) -> dict[str, Any]:
    """Return the field `alerting` of an objective; empty where the SLO names no policy."""
    listed = spec.get("alertPolicies")
    if listed is None or not listed.items():
        ledger.noted(spec, "no alertPolicies: the four tiers of the SRE Workbook alert")
        return {}
    tiers: list[dict[str, Any]] = []
    for item in listed.items():
        policy = _resolved_policy(item, library)
        if _flag(policy, "alertWhenNoData"):
            ledger.noted(policy, "missing data alerts once for each model, whatever its objectives")
        if (resolved := policy.get("alertWhenResolved")) is not None and not resolved.flag():
            ledger.lost(
                resolved, "Alertmanager decides whether a resolved alert is sent", "send_resolved decides"
            )
        _leave(policy, ledger)
        breaching = policy.get("alertWhenBreaching")
        for condition in policy.need("conditions").items():
            tier = _tier(_resolved_condition(condition, library), len(tiers), ledger)
            if breaching is None or breaching.flag():
                tiers.append(tier)
    settings: dict[str, Any] = {"tiers": tiers} if tiers else {"enabled": False}
    return {"alerting": settings}


def _flag(policy: Entry, field: str) -> bool:
    flag = policy.get(field)
    return flag is not None and flag.flag()


def _resolved_policy(entry: Entry, library: Library) -> Entry:
    if entry.is_text:
        return library.find("AlertPolicy", entry).need("spec")
    if (reference := entry.get("alertPolicyRef")) is not None:
        return library.find("AlertPolicy", reference).need("spec")
    return _inline(entry)


def _resolved_condition(entry: Entry, library: Library) -> Entry:
    if (reference := entry.get("conditionRef")) is not None:
        return library.find("AlertCondition", reference)
    return entry


def _inline(entry: Entry) -> Entry:
    for field in ("kind", "apiVersion", "metadata"):
        if (member := entry.get(field)) is not None:
            member.skip()
    return entry.need("spec")


def _leave(policy: Entry, ledger: Ledger) -> None:
    ledger.dropped(policy, "description", "generated alerts have their own texts")
    if (targets := policy.get("notificationTargets")) is not None:
        targets.skip()
        ledger.lost(targets, "Alertmanager's routes select the receivers", "left out; route by severity")


def _tier(condition: Entry, index: int, ledger: Ledger) -> dict[str, Any]:
    metadata = condition.get("metadata")
    name = metadata.need("name").text() if metadata is not None else f"tier-{index + 1}"
    spec = _inline(condition)
    burning = spec.need("condition")
    kind = burning.get("kind")
    if kind is not None and kind.text() != "burnrate":
        raise EntryError(kind, f"{kind.text()!r} is not a kind of condition; only burnrate is supported")
    after, operator = burning.get("alertAfter"), burning.get("op")
    if after is not None and after.text() not in ("0m", "0", "0s"):
        ledger.lost(after, "burn alerts do not wait once their windows agree", "the short window guards them")
    if operator is not None and operator.text() not in ("gt", "gte"):
        raise EntryError(operator, "a burn rate alerts when it is above a threshold: gt or gte")
    ledger.dropped(spec, "description", "generated alerts have their own texts")
    long, short = _windows(burning.need("lookbackWindow"), ledger)
    threshold = burning.need("threshold")
    burn = threshold.number()
    if burn <= 0:
        raise EntryError(threshold, "a burn rate is above 0")
    return {
        "name": _tier_name(name, index),
        "severity": _severity(spec.need("severity"), ledger),
        "long": duration_text(long),
        "short": duration_text(short),
        "burn": burn,
    }


def _tier_name(name: str, index: int) -> str:
    """Return a tier's name; two conditions of one name stay two."""
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_0123456789")[:36].rstrip("_")
    return f"{plain or 'tier'}_{index + 1}"


def _severity(entry: Entry, ledger: Ledger) -> str:
    severity = _SEVERITIES.get(entry.text().lower())
    if severity is None:
        ledger.lost(entry, f"{entry.text()!r} is not known as a severity", "warning")
    return severity or "warning"


def _windows(lookback: Entry, ledger: Ledger) -> tuple[float, float]:
    """Return the long window on our grid, and a short one; in seconds."""
    wanted = days(lookback) * DAY
    long = min(max(wanted, 600.0), 90.0 * DAY)
    if long > 3600:
        long = max(1, round(long / _HALF_HOUR)) * _HALF_HOUR
    if long != wanted:
        ledger.lost(lookback, "burn windows have 10m to 90d, over an hour in half hours", duration_text(long))
    short = max(300.0, long / _SHARE)
    grid = _HALF_HOUR if short > 3600 else 60
    short = round(short / grid) * grid
    ledger.noted(
        lookback, f"a short window of {duration_text(short)} is added, so that the alert ends in time"
    )
    return long, short
