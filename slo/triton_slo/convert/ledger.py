"""Findings of a conversion: mistakes, losses and notes."""

from __future__ import annotations

from dataclasses import dataclass, field

from triton_exporter.common.problem import Problem
from triton_slo.convert.entry import Entry


@dataclass(frozen=True, slots=True)
class Ledger:
    """Findings of one conversion, in the order in which they are added.

    `mistakes` are faults of the input: nothing is written. `losses` could not be expressed; each states what was
    done instead. `notes` are choices that lose nothing.
    """

    mistakes: list[Problem] = field(default_factory=list)
    losses: list[Problem] = field(default_factory=list)
    notes: list[Problem] = field(default_factory=list)

    def wrong(self, entry: Entry, reason: str, fix: str = "") -> None:
        """Add a mistake in the input."""
        self.mistakes.append(_finding(entry, reason, fix))

    def lost(self, entry: Entry, reason: str, instead: str) -> None:
        """Add what cannot be expressed, and what was done instead."""
        self.losses.append(_finding(entry, f"{reason}; instead: {instead}"))

    def dropped(self, parent: Entry, field: str, reason: str, instead: str = "left out") -> None:
        """Add the loss of a text field, if it is there. Raises EntryError on anything but a text."""
        member = parent.get(field)
        if member is not None:
            member.text()
            self.lost(member, reason, instead)

    def noted(self, entry: Entry, reason: str) -> None:
        """Add a choice that loses nothing."""
        self.notes.append(_finding(entry, reason))

    def unread(self, entry: Entry) -> None:
        """Add the loss of everything in a document that the conversion did not read."""
        for unread in entry.unread():
            self.lost(unread, "not known, or of no use here", "left out")


def _finding(entry: Entry, reason: str, fix: str = "") -> Problem:
    return Problem(entry.place, f"{entry.path}: {reason}" if entry.path else reason, fix)
