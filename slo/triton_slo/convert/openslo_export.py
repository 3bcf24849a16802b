"""OpenSLO v1 out, and the way back: an annotation has the whole objective.

What OpenSLO has no words for is reported, and stored in the annotation; documents that still are what this module
wrote become the same objective again. The specification: https://github.com/OpenSLO/OpenSLO (README).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml
from pydantic import ValidationError

from triton_exporter.common.duration import duration_text, parse_seconds
from triton_exporter.common.yaml_files import YAML_FAULTS
from triton_slo.artifact import Options
from triton_slo.convert.entry import Entry, EntryError
from triton_slo.convert.ledger import Ledger
from triton_slo.convert.writing import plain
from triton_slo.objective.model import Objective, Tier
from triton_slo.problem import Problem
from triton_slo.promql import by
from triton_slo.rules.plan import Plan, Variant

Document = dict[str, Any]
VERSION = "openslo/v1"
ANNOTATION = "tritonwatch/objective"
PART_OF = "tritonwatch/part-of"
RANGE = "5m"
"""Range of the rates: OpenSLO has no placeholder for one."""
_MAX_DESCRIPTION = 1050
_MAX_NAME = 63
_IN_ANNOTATION = f"kept in the annotation {ANNOTATION}"
_CALENDARS = {"week": "1w", "month": "1M", "quarter": "1Q"}
_FIRST_MIDNIGHT = "2024-01-01 00:00:00"
"""A Monday, and the first of a month and of a quarter."""


def export(objectives: Sequence[Objective], places: Mapping[str, str], ledger: Ledger) -> list[Document]:
    """Return all documents of all objectives; a notification target is written once."""
    by_name: dict[tuple[str, str], tuple[Document, str]] = {}
    for objective in objectives:
        place = places[objective.name]
        try:
            made = list(documents(objective))
        except ValueError as error:
            ledger.losses.append(Problem(place, f"{objective.name}: {error}; instead: left out"))
            continue
        for field, reason, instead in _losses(objective):
            ledger.losses.append(Problem(place, f"{objective.name}: {field}: {reason}; instead: {instead}"))
        for document in made:
            key = document["kind"], document["metadata"]["name"]
            before, owner = by_name.setdefault(key, (document, objective.name))
            if before != document:
                reason = f"{objective.name} and {owner} would both write a {key[0]} named {key[1]}"
                ledger.mistakes.append(Problem(place, reason, "rename one of them"))
    return [document for document, _ in by_name.values()]


def documents(objective: Objective) -> Iterator[Document]:
    """Yield the documents of one objective: SLO and SLI for each part that overrides make, and its alert policies.

    Raises ValueError where the indicator has no series yet.
    """
    plan = Plan(objective, Options())
    policies = list(_policies(plan))
    for index, variant in enumerate(plan.variants):
        name = objective.name if index == 0 else _fit(f"{objective.name}-part-{index + 1}")
        annotations = {ANNOTATION: _whole(objective)} if index == 0 else {PART_OF: objective.name}
        yield _slo_document(
            plan, variant, name, annotations, [policy["metadata"]["name"] for policy in policies]
        )
        yield _openslo_document("SLI", name, {"ratioMetric": _ratio_metric(plan, variant)})
    yield from policies
    for urgency in sorted({policy["spec"]["notificationTargets"][0]["targetRef"] for policy in policies}):
        yield _openslo_document("AlertNotificationTarget", urgency, {"target": "alertmanager"})


def recognised(
    documents_in: Sequence[Entry], ledger: Ledger
) -> tuple[tuple[Objective, ...], Sequence[Entry]]:
    """Return objectives whose documents are all here as they were written, and the documents that are left."""
    annotated = [(document, text) for document in documents_in if (text := _annotation(document)) is not None]
    if not annotated:
        return (), documents_in
    values = [(document, _value(document)) for document in documents_in]
    used: set[int] = set()
    known: dict[str, Objective] = {}
    for entry, text in annotated:
        objective = _parsed(text)
        wanted = [] if objective is None else _documents_or_none(objective)
        matches = [next((document for document, value in values if value == want), None) for want in wanted]
        if objective is None or not matches or None in matches:
            reason = f"the documents no longer match what the annotation {ANNOTATION} has"
            ledger.lost(entry, reason, "the documents hold, and the annotation is left out")
            continue
        known[objective.name] = objective
        used |= {id(match) for match in matches}
    return tuple(known.values()), [document for document in documents_in if id(document) not in used]


def _documents_or_none(objective: Objective) -> list[Document]:
    try:
        return list(documents(objective))
    except ValueError:
        return []


def _annotation(document: Entry) -> str | None:
    try:
        metadata = document.get("metadata")
        annotations = metadata.get("annotations") if metadata is not None else None
        text = annotations.get(ANNOTATION) if annotations is not None else None
        return None if text is None else text.text()
    except EntryError:  # reported by the next reader of the document
        return None


def _parsed(text: str) -> Objective | None:
    try:
        return Objective.model_validate(json.loads(text))
    except (ValidationError, ValueError, RecursionError):
        return None


def _value(document: Entry) -> object:
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_document(document.node)
    except YAML_FAULTS:
        return None
    finally:
        loader.dispose()


def _whole(objective: Objective) -> str:
    return json.dumps(plain(objective), sort_keys=True)


def _openslo_document(kind: str, name: str, spec: Document, **metadata: object) -> Document:
    return {
        "apiVersion": VERSION,
        "kind": kind,
        "metadata": {"name": name, **{key: value for key, value in metadata.items() if value}},
        "spec": spec,
    }


def _fit(name: str) -> str:
    """Return a name of at most 63 characters; longer ones end in a digest, so that they stay apart."""
    plain_name = name.replace("_", "-").strip("-")
    if len(plain_name) <= _MAX_NAME:
        return plain_name
    digest = hashlib.sha256(plain_name.encode()).hexdigest()[:8]
    return f"{plain_name[: _MAX_NAME - 9]}-{digest}"


def _is_valid_key(name: str) -> bool:
    return re.fullmatch(r"[a-zA-Z0-9]([a-zA-Z0-9_]{0,61}[a-zA-Z0-9])?", name) is not None


def _slo_document(
    plan: Plan, variant: Variant, name: str, annotations: Mapping[str, str], policies: Sequence[str]
) -> Document:
    objective = plan.objective
    spec: Document = {
        "description": objective.description[:_MAX_DESCRIPTION],
        "service": objective.labels.get("service") or "triton",
        "indicatorRef": name,
        "timeWindow": [_time_window(objective)],
        "budgetingMethod": "Occurrences",
        "objectives": [{"target": variant.target}],
        "alertPolicies": [{"alertPolicyRef": policy} for policy in policies],
    }
    return _openslo_document(
        "SLO",
        name,
        {key: value for key, value in spec.items() if value},
        labels={key: value for key, value in objective.labels.items() if _is_valid_key(key)},
        annotations={
            **{key: value for key, value in objective.annotations.items() if _is_valid_key(key)},
            **annotations,
        },
    )


def _time_window(objective: Objective) -> Document:
    window = objective.calendar
    if window is None:
        return {"duration": objective.window.nominal, "isRolling": True}
    return {
        "duration": _CALENDARS[window.calendar],
        "calendar": {"startTime": _FIRST_MIDNIGHT, "timeZone": window.timezone},
        "isRolling": False,
    }


def _ratio_metric(plan: Plan, variant: Variant) -> Document:
    """Return rates of bad and of all events: numbers that go up and down, so `counter` is false."""
    if (query := plan.objective.indicator.ratio_query(RANGE)) is not None:
        mean = f"avg {by(plan.objective.group_by)} (\n{query}\n)"
        return {"counter": False, "rawType": "failure", "raw": _metric(mean)}
    events = plan.measure(variant).events.preferred(RANGE)
    return {"counter": False, "bad": _metric(events.error), "total": _metric(events.total)}


def _metric(query: str) -> Document:
    return {"metricSource": {"type": "Prometheus", "spec": {"query": query}}}


def _policies(plan: Plan) -> Iterator[Document]:
    objective = plan.objective
    for index, tier in enumerate(objective.alerting.tiers if objective.alerting.enabled else ()):
        name = _fit(f"{objective.name}-alert-{index + 1}-{tier.name}")
        urgency = plan.severity(tier)
        condition = {
            "kind": "AlertCondition",
            "metadata": {"name": name},
            "spec": {"severity": urgency, "condition": _alert_condition(tier, objective)},
        }
        spec = {
            "alertWhenBreaching": True,
            "alertWhenResolved": True,
            "alertWhenNoData": objective.unknown.policy == "alert",
            "conditions": [condition],
            "notificationTargets": [{"targetRef": f"alertmanager-{urgency}"}],
        }
        yield _openslo_document("AlertPolicy", name, spec)


def _alert_condition(tier: Tier, objective: Objective) -> Document:
    return {
        "kind": "burnrate",
        "threshold": tier.factor(objective.window.seconds),
        # OpenSLO takes one number with one unit: minutes, hours or days.
        "lookbackWindow": duration_text(60.0 * max(1, round(parse_seconds(tier.long) / 60))),
        "alertAfter": "0m",
    }


def _losses(objective: Objective) -> Iterator[tuple[str, str, str]]:
    """Yield each field, why it cannot be expressed, and what is done instead."""
    plan = Plan(objective, Options())
    measure = plan.measure(plan.variants[0])
    if objective.group_by:
        yield (
            "group_by",
            "an SLO has one budget, not one for each group",
            "the queries give one result a group",
        )
    if measure.events.preferred(RANGE) != measure.events.at_once(RANGE, str):
        yield (
            "indicator.source",
            "one indicator has one source",
            f"the histogram; the fallback is {_IN_ANNOTATION}",
        )
    if len(objective.description) > _MAX_DESCRIPTION:
        yield (
            "description",
            f"it has at most {_MAX_DESCRIPTION} characters",
            f"cut; all of it is {_IN_ANNOTATION}",
        )
    for field, names in (("labels", objective.labels), ("annotations", objective.annotations)):
        if hidden := sorted(name for name in names if not _is_valid_key(name)):
            yield field, f"keys start and end with a letter or digit: {', '.join(hidden)}", _IN_ANNOTATION
    if objective.exclusions:
        yield "exclusions", "there are none", _IN_ANNOTATION
    if objective.overrides:
        yield "overrides", "an SLO has one target for all", "one SLO for each part"
    if objective.unknown.policy == "bad":
        yield "unknown.policy", "no data cannot count as failed", _IN_ANNOTATION
    if objective.alerting.enabled:
        yield from _alerting_losses(objective)


def _alerting_losses(objective: Objective) -> Iterator[tuple[str, str, str]]:
    yield "alerting.tiers", "a condition has one window", f"the long one; the short one is {_IN_ANNOTATION}"
    if any(objective.indicator.if_independent(objective.alerting.min_failures)):
        yield "alerting.min_failures", "a condition knows only a burn rate", _IN_ANNOTATION
