"""What on-call was told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Notice:
    """One message to the person on call: its text as sent, and what it was about."""

    status: str
    alerts: Sequence[str]
    models: Sequence[str]
    text: str


def read_notices(log: Path) -> list[Notice]:
    """Everything on-call was told so far."""
    return []
