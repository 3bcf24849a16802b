"""Changes of groups as the trail and JSON have them, and in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from triton_slo.burn.amounts import budget_left
from triton_slo.correction.group_correction import GroupCorrection, PeriodBudget, Tile
from tritonwatch.audited_corrections.trail import Entry


def group_values(correction: GroupCorrection) -> dict[str, object]:
    """Return what changes of a group, as JSON and the trail have it."""
    return {
        "labels": dict(correction.labels),
        "error": correction.error,
        "total": correction.total,
        "before": _budget_json(correction.before),
        "after": _budget_json(correction.after),
    }


def stored_groups(entry: Entry) -> list[GroupCorrection]:
    """Return the groups of an entry, each with its events as one tile."""
    return [
        GroupCorrection(
            tuple(sorted(group["labels"].items())),
            entry.start,
            (Tile(entry.end, group["error"], group["total"]),),
            *(
                PeriodBudget(**{field.name: group[side][field.name] for field in fields(PeriodBudget)})
                for side in ("before", "after")
            ),
        )
        for group in entry.groups
    ]


def change(entry: Entry) -> str:
    """Return what an entry changes, in words: the budget of its group, or the number of its groups."""
    if len(entry.groups) != 1:
        return f"{len(entry.groups)} groups"
    [group] = entry.groups
    left = [group[side]["left"] for side in ("before", "after")]
    before, after = ("no events" if share is None else budget_left(share) for share in left)
    of = " ".join(group["labels"][name] for name in ("model", "version") if name in group["labels"])
    return f"{of + ': ' if of else ''}{before} to {after}"


def reversed_group(group: Mapping[str, Any]) -> dict[str, object]:
    """Return the opposite change of a group."""
    return {
        "labels": group["labels"],
        "error": -group["error"],
        "total": -group["total"],
        "before": group["after"],
        "after": group["before"],
    }


def _budget_json(budget: PeriodBudget) -> dict[str, float | None]:
    """Return a budget as JSON has it; null is unknown."""
    return {**asdict(budget), "sli": budget.sli, "left": budget.left}
