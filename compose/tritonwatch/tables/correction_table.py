"""Corrections as tables for people and as JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence

from triton_slo.burn.amounts import budget_left, ratio
from triton_slo.correction.group_correction import GroupCorrection, PeriodBudget
from tritonwatch.tables.fitted import Column, Fitted

COLUMNS: tuple[Column[GroupCorrection], ...] = (
    Column("objective", lambda correction: correction.slo, 0, False),
    Column("model", lambda correction: _group_text(correction), 0, False),
    Column("failures", lambda correction: f"{correction.error:+,.0f}", 3),
    Column("events", lambda correction: f"{correction.total:+,.0f}", 4),
    Column("SLI before", lambda correction: _sli_text(correction.before), 2),
    Column("SLI after", lambda correction: _sli_text(correction.after), 2),
    Column("budget left before", lambda correction: _left_text(correction.before), 1),
    Column("budget left after", lambda correction: _left_text(correction.after), 0),
)


def table(corrections: Sequence[GroupCorrection], title: str) -> Fitted[GroupCorrection]:
    """Draw what a correction changes."""
    return Fitted(title, COLUMNS, ordered(corrections), lambda _: "")


def ordered(corrections: Sequence[GroupCorrection]) -> list[GroupCorrection]:
    """Return the groups with the largest change first."""
    return sorted(
        corrections,
        key=lambda correction: -abs((correction.after.left or 0.0) - (correction.before.left or 0.0)),
    )


def _group_text(correction: GroupCorrection) -> str:
    group = correction.group
    named = [group.pop("model", ""), group.pop("version", "")]
    return " ".join([*named, *(f"{name}={value}" for name, value in group.items())]).strip() or "-"


def _sli_text(budget: PeriodBudget) -> str:
    return "no events" if budget.sli is None else ratio(budget.sli)


def _left_text(budget: PeriodBudget) -> str:
    return "no events" if budget.left is None else budget_left(budget.left)
