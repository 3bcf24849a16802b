"""A verdict about one objective and group, and what it depends on besides the status: alerts and limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from triton_slo.verdict.canary import Comparison, Verdict


@dataclass(frozen=True, slots=True)
class Firing:
    """A burn alert that fires now, with all its labels."""

    severity: str
    tier: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Judgement:
    """One verdict with its reason, about one objective and group; data age in seconds, None if unknown.

    `unknown`: nothing is known of the group. `comparison` has the numbers where a canary was compared with
    its baseline.
    """

    verdict: Verdict
    reason: str
    slo: str
    model: str = ""
    version: str = ""
    data_age_seconds: float | None = None
    comparison: Comparison | None = None
    group: Mapping[str, str] = field(default_factory=dict)
    unknown: bool = False


@dataclass(frozen=True, slots=True)
class GateLimits:
    """Limits of a gate: the age of data, and the budget that must be left (`minimum_budget`, 0 to 1).

    `trusted` are sources with a caveat that promote all the same.
    """

    max_age_seconds: float = 300.0
    minimum_budget: float = 0.0
    trusted: frozenset[str] = frozenset()


FailureEvidence = Mapping[tuple[str, str], Judgement]
"""Worst judgement, by model and version, on the objectives that see failures which Triton does not count."""
