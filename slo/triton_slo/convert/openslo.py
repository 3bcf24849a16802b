"""OpenSLO v1 in: SLOs with the SLIs, alert policies and data sources they name.

The specification: https://github.com/OpenSLO/OpenSLO (README, `openslo/v1`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from triton_slo.convert import building, openslo_alerts, openslo_indicator, openslo_window
from triton_slo.convert.entry import Entry, EntryError
from triton_slo.convert.ledger import Ledger
from triton_slo.convert.openslo_library import Library
from triton_slo.objective.model import Objective


def convert(documents: Sequence[Entry], window: str, ledger: Ledger) -> tuple[Objective, ...]:
    """Return every objective of every SLO. `window` is the period of SLOs that name none."""
    library = Library(documents, ledger)
    taken: set[str] = set()
    objectives: list[Objective] = []
    for slo in library.of("SLO").values():
        try:
            made = _objectives_of(slo, library, window, ledger, taken)
        except EntryError as error:
            ledger.wrong(error.entry, str(error))
            continue
        objectives += made
        if made:
            ledger.unread(slo)
    for document in library.used():
        ledger.unread(document)
    for document in library.unused():
        ledger.lost(document, "no SLO refers to it, or it cannot be expressed here", "left out")
    return tuple(objectives)


def _objectives_of(
    slo: Entry, library: Library, window: str, ledger: Ledger, taken: set[str]
) -> list[Objective]:
    metadata, spec = slo.need("metadata"), slo.need("spec")
    shared = {
        **_described(metadata, spec, library, ledger),
        "window": openslo_window.window(spec, window, ledger),
    }
    alerts = openslo_alerts.alerting(spec, library, ledger)
    goals = spec.need("objectives").items()
    if not goals:
        ledger.lost(spec.need("objectives"), "holds no objective", "the SLO is left out")
    objectives = []
    for index, goal in enumerate(goals):
        own = _objective_name(goal, index, len(goals), metadata, ledger)
        name = building.name(ledger, metadata.need("name"), own, taken)
        indicator = openslo_indicator.indicator(goal, spec, library, ledger)
        target, where = _target_ratio(goal)
        ledger.dropped(
            goal,
            "compositeWeight",
            "parts of a composite are not added up",
            "each is an objective of its own",
        )
        if not name or indicator is None:
            continue
        data: dict[str, Any] = {
            "name": name,
            **shared,
            "target": target,
            **alerts,
            "group_by": indicator.group_by,
            "indicator": {"kind": "custom", **indicator.queries},
        }
        made = building.objective(ledger, goal, data, {"target": where, "indicator": indicator.entry})
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
    return f"{name}-{building.slug(title.text())}" if title is not None else f"{name}-{index + 1}"


def _target_ratio(goal: Entry) -> tuple[float, Entry]:
    ratio, percent = goal.get("target"), goal.get("targetPercent")
    if (ratio is None) == (percent is None):
        raise EntryError(goal, "an objective needs target or targetPercent, one of them")
    if ratio is not None:
        return round(ratio.number(), 12), ratio
    assert percent is not None
    return round(percent.number() / 100, 12), percent


def _described(metadata: Entry, spec: Entry, library: Library, ledger: Ledger) -> dict[str, Any]:
    labels, owner = building.alert_labels(ledger, metadata.mapping("labels"))
    noted = building.alert_annotations(ledger, metadata.mapping("annotations"))
    service = spec.need("service")
    described = library.optional("Service", service)
    if described is not None and described.get("spec") is not None:
        ledger.lost(described, "a service has no words of its own here", "its name is the label service")
        described.skip()
    title, description = metadata.get("displayName"), spec.get("description")
    if title is not None and description is not None:
        noted["display_name"] = title.text()
    given = description or title
    return {
        "description": building.joined_description([given.text()] if given else []),
        "owner": owner,
        "labels": {"service": service.text(), **labels},
        "annotations": noted,
    }
