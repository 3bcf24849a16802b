"""Changes that a correction makes to one group: its events by tile, and its budget before and after."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from triton_slo import names
from triton_slo.fields import error_budget

SumLabels = tuple[tuple[str, str], ...]
"""Labels of a recorded sum: those of its group, its objective and its indicator."""
ALWAYS = 4_102_444_800.0
"""The year 2100, as `names.CORRECTION_FROM` of history: it counts whenever the group's sum began."""


class CorrectionError(Exception):
    """The correction cannot be made as it was asked for; the message is one line with what to do."""


@dataclass(frozen=True, slots=True)
class Tile:
    """Events that are added to a group at the end of a short time range; below 0: removed from it."""

    end: float
    error: float
    total: float


@dataclass(frozen=True, slots=True)
class PeriodBudget:
    """A group's events in its period, and what they leave of the budget.

    `target` is the share of events that must be good; `passed` the part of the budget's time that has passed.
    """

    error: float
    total: float
    target: float
    passed: float = 1.0

    @property
    def sli(self) -> float | None:
        """Share of good events; None without events."""
        return None if self.total <= 0 else 1 - min(self.error, self.total) / self.total

    @property
    def left(self) -> float | None:
        """Part of the error budget that is left, below 0 where it is overspent; None without events."""
        return None if self.sli is None else 1 - (1 - self.sli) / error_budget(self.target) * self.passed

    def changed(self, tiles: Iterable[Tile]) -> PeriodBudget:
        """Return the budget with the events of these tiles, never fewer than none, as the rules record it."""
        error, total = self.error, self.total
        for tile in tiles:
            error, total = error + tile.error, total + tile.total
        return PeriodBudget(max(0.0, error), max(0.0, total), self.target, self.passed)


@dataclass(frozen=True, slots=True)
class GroupCorrection:
    """Tiles of one group, in order; `labels` are those of its recorded sum, `slo` among them.

    The tiles count while the group's sum (of a calendar objective: its period) began at `counted_from` or earlier.
    """

    labels: SumLabels
    counted_from: float
    tiles: tuple[Tile, ...]
    before: PeriodBudget
    after: PeriodBudget

    @property
    def slo(self) -> str:
        """The objective's name."""
        return dict(self.labels)[names.SLO]

    @property
    def group(self) -> dict[str, str]:
        """The labels in which the objective's groups differ."""
        return {name: value for name, value in self.labels if name not in (names.SLO, names.INDICATOR)}

    @property
    def error(self) -> float:
        """Failed events that are added in all."""
        return sum(tile.error for tile in self.tiles)

    @property
    def total(self) -> float:
        """Events that are added in all."""
        return sum(tile.total for tile in self.tiles)
