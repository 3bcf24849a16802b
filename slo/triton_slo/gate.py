"""May a release go on? Promote, hold or roll back, from where the objectives stand. Fails closed.

What is unknown or old holds: a gate that promotes for lack of data is worse than none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from triton_slo.canary import Verdict
from triton_slo.live import Standing

_RANK: dict[Verdict, int] = {"promote": 0, "hold": 1, "rollback": 2}


@dataclass(frozen=True, slots=True)
class Firing:
    """A burn alert that fires now."""

    slo: str
    model: str
    version: str
    severity: str
    tier: str

    def concerns(self, row: Standing) -> bool:
        """Whether it is about this objective and group."""
        return (self.slo, self.model, self.version) == (row.slo, row.model, row.version)


@dataclass(frozen=True, slots=True)
class Judgement:
    """One verdict with its reason, about one objective and group; data age in seconds, None if unknown."""

    verdict: Verdict
    reason: str
    slo: str
    model: str = ""
    version: str = ""
    data_age_seconds: float | None = None


def judge(
    rows: Iterable[Standing],
    ages: Mapping[tuple[str, str], float],
    firing: Sequence[Firing],
    *,
    max_age_seconds: float,
    minimum_budget: float = 0.0,
) -> tuple[Judgement, ...]:
    """Judge each standing; `ages` has the data's age in seconds by (model, version)."""
    return tuple(
        _judgement(
            row,
            ages.get((row.model, row.version)),
            [alert for alert in firing if alert.concerns(row)],
            max_age_seconds,
            minimum_budget,
        )
        for row in rows
    )


def worst(judgements: Iterable[Judgement]) -> Verdict:
    """The verdict on all together: the worst of them, and hold where there is nothing to judge."""
    return max((one.verdict for one in judgements), key=_RANK.__getitem__, default="hold")


def _judgement(
    row: Standing, age: float | None, firing: Sequence[Firing], max_age: float, minimum: float
) -> Judgement:
    verdict, reason = _verdict(row, age, firing, max_age, minimum)
    return Judgement(verdict, reason, row.slo, row.model, row.version, age)


def _verdict(
    row: Standing, age: float | None, firing: Sequence[Firing], max_age: float, minimum: float
) -> tuple[Verdict, str]:
    # A page is the strongest thing there is, also while the data under it stops coming.
    if pages := [alert.tier or "a page" for alert in firing if alert.severity == "critical"]:
        return "rollback", f"pages now: {', '.join(pages)}{_pace(row)}"
    if row.state == "unknown":
        return "hold", f"unknown: {row.unknown}"
    if age is None:
        return "hold", "unknown how old the data is"
    if age > max_age:
        return "hold", f"the data is {age:.0f} s old, at most {max_age:.0f} s are allowed"
    if firing:
        return "hold", f"burns budget: {', '.join(alert.tier for alert in firing)}{_pace(row)}"
    assert row.budget_left is not None
    if row.budget_left <= minimum:
        return "hold", f"budget left is {row.budget_left:.1%}, more than {minimum:.1%} is needed"
    return "promote", f"budget left is {row.budget_left:.1%}" + (
        " (idle)" if row.state == "idle" else _pace(row)
    )


def _pace(row: Standing) -> str:
    return "" if row.burn_now is None else f", burning {row.burn_now:.3g}x now"
